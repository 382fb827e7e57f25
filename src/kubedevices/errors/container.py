"""Errors of CDI, device files, vfio and the command lines of runtimes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kubedevices.errors.shared import CannotAsk, KubedevicesError, UsageError, _OfPath


class InvalidCdiName(UsageError):
    """A text that is not a CDI vendor, class, kind, device name or qualified name."""

    def __init__(self, name: str, rule: str) -> None:
        self.name, self.rule = name, rule
        super().__init__(f"CDI name {name!r} is invalid: {rule}")


class InvalidCdiAnnotation(UsageError):
    """A `cdi.k8s.io/` annotation that runtimes refuse."""

    def __init__(self, key: str, rule: str) -> None:
        self.key, self.rule = key, rule
        super().__init__(f"CDI annotation {key!r}: {rule}")


class CdiProblem(NamedTuple):
    """One error in a CDI file; `pointer` is its JSON pointer, empty for the whole file."""

    pointer: str
    problem: str

    def __str__(self) -> str:
        """Render as `pointer: problem`."""
        return f"{self.pointer}: {self.problem}" if self.pointer else self.problem


class InvalidCdiSpec(UsageError):
    """All errors of one CDI file; `pointer` and `problem` are of the first error."""

    def __init__(self, file: str, problems: Sequence[CdiProblem]) -> None:
        self.file, self.problems = file, tuple(problems)
        self.pointer, self.problem = self.problems[0].pointer, self.problems[0].problem
        where = f"{file}: " if file else ""
        super().__init__("\n".join(f"{where}{problem}" for problem in self.problems))


class UnresolvableCdiDevices(KubedevicesError):
    """Names that no CDI file defines, each with the reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        self.names = tuple(self.reasons)
        why = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
        super().__init__(f"unresolvable CDI devices {', '.join(self.names)} ({why})")


class CdiInjectionFailed(KubedevicesError):
    """A CDI edit is impossible on this host or for this container; nothing was changed."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"CDI injection failed: {path}: {reason}")


class CdiWriteFailed(CannotAsk, _OfPath):
    """A CDI file could not be written: containers started now would lack their devices."""

    text = "cannot write the CDI file {path}: {reason}"


class NotADeviceFile(CannotAsk, _OfPath):
    """A path that is not a device file, or cannot be read."""

    text = "{path}: {reason}"


class NoVfioGroup(CannotAsk):
    """A PCI device that cannot be used through vfio now."""

    def __init__(self, pci_address: str, reason: str) -> None:
        self.pci_address, self.reason = pci_address, reason
        super().__init__(f"PCI device {pci_address}: {reason}")


class NotExpressible(UsageError):
    """Run options that the command line of a runtime cannot express."""

    def __init__(self, runtime: str, what: str) -> None:
        self.runtime, self.what = runtime, what
        super().__init__(f"not expressible for {runtime}: {what}")


class UnsafeVariable(UsageError):
    """A variable of a plugin's answer that a program of the host does not get."""

    def __init__(self, name: str, plugin: str, reason: str, *, can_allow: bool) -> None:
        self.name, self.plugin, self.reason = name, plugin, reason
        whose = f" of the plugin of {plugin}" if plugin else ""
        advice = f" (--allow-env {name} allows it)" if can_allow else ""
        super().__init__(f"the environment variable {name!r}{whose} is refused: {reason}{advice}")
