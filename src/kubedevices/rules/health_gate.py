"""When checks change the health of a device: only several equal results in a row count. Pure.

`HealthGate` is for scanners that check their devices; `Check` has the settings of one check of the
health rule and of `expose`. `health_checks` runs checks. `damping` decides by seconds instead.
"""

# `key` makes a field, not a value

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kubedevices.config.checks import path_template, template, times
from kubedevices.config.durations import duration
from kubedevices.config.keys import Complain, Declared, key
from kubedevices.errors import UsageError
from kubedevices.values.device import Health

SHORTEST_INTERVAL = 0.1
"""Seconds between two checks at least: a shorter pause would only burn a processor."""


def _below(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/") or "{" in text:
        return f"{text!r}: write a name below /sys/bus/pci/devices/ADDRESS"
    return "" if text else "a name is needed"


@dataclass(frozen=True, kw_only=True)
class Check(Declared):
    """A check of whether a device works: the content of a file, or the exit code of a command.

    Texts may have the placeholders {id} and {address}, which is a PCI address.
    """

    HINT: ClassVar[str] = "write '{file: /sys/..., equals: ok}' or '{command: [...]}'"
    ONE_OF: ClassVar[tuple[str, ...]] = ("file", "command", "sysfs")

    file: str | None = key(
        "a file that must exist, or contain the text of 'equals'",
        default=None,
        check=path_template("id", "address"),
    )
    sysfs: str | None = key(
        "the same for a file of the device's PCI function, for example enable",
        default=None,
        check=_below,
    )
    equals: str | None = key("text that the file must contain", default=None)
    command: tuple[str, ...] = key(
        "a program and its arguments; exit code 0 means healthy",
        default=(),
        not_empty=True,
        check=template("id", "address"),
        hint="a list: the program and its arguments",
    )
    interval: float = duration("pause between two checks", default=30.0, least=SHORTEST_INTERVAL)
    fail_after: int = key("failures in a row that make a device unhealthy", default=2, check=times)
    ok_after: int = key(
        "successes in a row that make a device healthy again", default=3, check=times
    )

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Check that `equals` has a file, and that a command has a program."""
        if values.get("command", ("x",))[0] == "":
            complain(("command", 0), "this text is empty", "the program's name comes first")
        if "equals" in values and "command" in values:
            complain(("equals",), "only the exit code of a command counts", "remove 'equals'")

    @property
    def path(self) -> str | None:
        """The file to read, with placeholders; None for a command."""
        if self.sysfs is not None:
            return f"/sys/bus/pci/devices/{{address}}/{self.sysfs}"
        return self.file


@dataclass
class _Gate:
    """The reported health, and how many checks in a row contradicted it."""

    is_ok: bool
    against: int = 0


class HealthGate:
    """Changes to `UNHEALTHY` after `fail_after` failed checks in a row, back after `ok_after` good.

    A check that agrees with the reported health sets the count to zero. The first check of a device
    decides at once. Use the ID of the physical device, so that its replicas have the same health.
    """

    def __init__(self, fail_after: int = 1, ok_after: int = 3) -> None:
        for name, count in (("fail_after", fail_after), ("ok_after", ok_after)):
            if problem := times(count):
                raise UsageError(f"HealthGate.{name}: {problem}")
        self.fail_after, self.ok_after = fail_after, ok_after
        self._gates: dict[str, _Gate] = {}

    def observe(self, device_id: str, is_ok: bool) -> Health:
        """Take the result of a check; return the health to report."""
        gate = self._gates.setdefault(device_id, _Gate(is_ok))
        if is_ok is gate.is_ok:
            gate.against = 0
        else:
            gate.against += 1
            if gate.against >= (self.ok_after if is_ok else self.fail_after):
                gate.is_ok, gate.against = is_ok, 0
        return Health.HEALTHY if gate.is_ok else Health.UNHEALTHY

    def health(self, device_id: str) -> Health | None:
        """Return the health to report; None before the first check."""
        gate = self._gates.get(device_id)
        if gate is None:
            return None
        return Health.HEALTHY if gate.is_ok else Health.UNHEALTHY

    def keep_only(self, device_ids: Collection[str]) -> None:
        """Forget every other device; if it comes back, its first check decides at once."""
        for device_id in [*self._gates]:
            if device_id not in device_ids:
                del self._gates[device_id]
