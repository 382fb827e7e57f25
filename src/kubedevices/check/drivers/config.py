"""How to check a DRA driver: one object for the command line, and for tests that run the check."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kubedevices.check.check import PluginCheck
from kubedevices.check.drivers import catalogue
from kubedevices.check.drivers.rights import granted_by, guards_slices
from kubedevices.check.drivers.target import DriverTarget
from kubedevices.check.drivers.timing import LONG, QUICK, DriverTiming
from kubedevices.check.target import Trigger
from kubedevices.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class DriverCheck:
    """How to check a DRA driver. Each field but the first is an option of `kubedevices check`."""

    command: tuple[str, ...] = field(kw_only=False)
    """The command that starts the driver, with words such as `{kubeconfig}`, which are replaced."""

    only: tuple[str, ...] = ()
    """IDs of rules, or themes such as `prepare`: only these run."""

    skip: tuple[str, ...] = ()
    """IDs of rules, or themes, that do not run."""

    trigger: str = ""
    """A shell command that changes a device; `{n}` is the number of the run."""

    undo: str = ""
    """A shell command that undoes the trigger with the same `{n}`."""

    change_timeout: float | None = None
    """Seconds until a change of a device is published; None means 15, or 8 in a quick run."""

    manifests: tuple[Path, ...] = ()
    """Files with the ClusterRole of the driver, which is compared with what the driver did."""

    parameters: Path | None = None
    """A file with two YAML documents: two valid parameter sets, with values that differ."""

    kubelet: str = ""
    """The kubelets to judge for, such as `1.36-1.38`; empty means the supported versions."""

    quick: bool = False
    """Leaves out rules that wait for long, and shortens the limits of the others."""

    long: bool = False
    """Waits for 35 minutes in `register.idle`, and longer in others; kills the driver 200 times."""

    one_at_a_time: bool = False
    """Starts no copies of the driver at the same time."""

    timeout_scale: float = 1.0
    """Multiplies all limits and pauses, for a slow machine."""

    expect: Path | None = None
    """A YAML file of known findings, which do not fail the run."""

    fail_on: str = "fail"
    """Which new findings fail the run: `fail`, `warn` for warnings too, or `never`."""

    show_requests: bool = False
    """Shows in the report what the driver asked the API server, and how often."""

    def target(self) -> DriverTarget:
        """Return what to check; raises `UsageError`, `CannotRead` and `ConfigError`."""
        if not self.command:
            raise UsageError(
                "nothing to check: write -- COMMAND, which starts the driver (see --help)"
            )
        if self.long and self.quick:
            raise UsageError("--long and --quick exclude each other")
        if self.undo and not self.trigger:
            raise UsageError("--undo needs --trigger")
        manifests = [each for file in self.manifests for each in _documents(file)]
        return DriverTarget(
            tuple(self.command),
            trigger=Trigger.parse(self.trigger, self.undo),
            granted=granted_by(manifests) if self.manifests else None,
            guarded=guards_slices(manifests),
            parameters=_two_sets(self.parameters) if self.parameters else (),
            at_once=1 if self.one_at_a_time else DriverTarget.at_once,
            long=self.long,
            quick=self.quick,
        )

    def timing(self) -> DriverTiming:
        """Return all durations of a run; raises `UsageError`."""
        chosen = QUICK if self.quick else LONG if self.long else DriverTiming()
        timing = chosen.scaled(self.timeout_scale)
        if self.change_timeout is None:
            return timing
        if self.change_timeout <= 0:
            raise UsageError("--change-timeout must be more than 0 seconds")
        return replace(timing, change=self.change_timeout)

    def rules(self) -> list[PluginCheck]:
        """Return the rules to try; raises `UsageError` for an ID that does not exist."""
        chosen = catalogue().select(self.only, self.skip)
        return [rule for rule in chosen if not (self.quick and rule.slow)]


def _two_sets(file: Path) -> tuple[dict[str, Any], ...]:
    found = _documents(file)
    sets = [each for each in found if isinstance(each, dict)]
    if len(found) != len(sets) or len(sets) != 2 or sets[0].keys() != sets[1].keys():
        raise UsageError(
            f"--parameters {file}: write two YAML documents, separated by ---, each a mapping with "
            "the same keys: two sets of parameters that the driver accepts in a claim"
        )
    return tuple(sets)


def _documents(file: Path) -> list[object]:
    """Return the YAML documents of a file; raises `CannotRead` and `ConfigError`."""
    # Imported here, because most runs read no YAML.
    from kubedevices.config import yaml_source  # noqa: PLC0415

    documents = yaml_source.parse_documents(yaml_source.read_content(file), file)
    return [yaml_source.construct_value(node, file) for node in documents if node]
