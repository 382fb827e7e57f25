"""The result type of `explain`: what was looked at, what was found, and what to do about it."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any


class Outcome(enum.StrEnum):
    """The result of a finding; `UNKNOWN` if the fact could not be seen."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    PROBLEM = "problem"


class Step(enum.StrEnum):
    """The stations of a device on its way from the plugin into a container, in this order."""

    NAME = "name"
    DIRECTORY = "directory"
    KUBELET_SOCKET = "kubelet.sock"
    PATH_LENGTH = "path length"
    PLUGIN_SOCKET = "plugin socket"
    PROXY = "proxy"
    REGISTRATION = "registration"
    DEVICE_LIST = "device list"
    HEALTH = "health"
    HELD = "held"
    DRIVER = "driver"
    CLAIM = "claim"
    NUMA = "NUMA nodes"
    DEVICE_FILE = "device file"
    LINK = "/dev/char link"
    PERMISSIONS = "permissions"
    SELINUX = "SELinux"
    CDI = "CDI name"
    CONTAINER = "container"
    CGROUP = "cgroup"

    def ok(self, looked_at: str, found: str) -> "Finding":
        """Return a finding without a fault."""
        return Finding(self, Outcome.OK, looked_at, found)

    def unknown(self, looked_at: str, found: str, advice: str = "", command: str = "") -> "Finding":
        """Return a finding about a fact that could not be seen; `found` says why."""
        return Finding(self, Outcome.UNKNOWN, looked_at, found, advice, command)

    def warning(self, looked_at: str, found: str, advice: str, command: str = "") -> "Finding":
        """Return a finding about a fault that stops no allocation now, but may do harm later."""
        return Finding(self, Outcome.WARNING, looked_at, found, advice, command)

    def problem(self, looked_at: str, found: str, advice: str, command: str = "") -> "Finding":
        """Return a finding about a fault because of which a device cannot be allocated or used."""
        return Finding(self, Outcome.PROBLEM, looked_at, found, advice, command)


@dataclass(frozen=True, slots=True)
class Finding:
    """One station: `advice` says what to do, `command` is a shell command; both may be empty."""

    step: Step
    result: Outcome
    looked_at: str
    found: str
    advice: str = ""
    command: str = ""

    @classmethod
    def from_dict(cls, found: Mapping[str, str]) -> "Finding":
        """Return the finding of which `as_dict` was `found`; raises `ValueError`."""
        texts = (found.get(name, "") for name in ("looked_at", "found", "advice", "command"))
        return cls(Step(found["step"]), Outcome(found["result"]), *texts)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding for JSON and YAML; the keys are public."""
        return {each.name: str(getattr(self, each.name)) for each in fields(self)}


_SEVERITY = tuple(Outcome)
_MUST_BE_KNOWN = tuple(Step)[: [*Step].index(Step.DEVICE_LIST) + 1]


def worst(findings: Iterable[Finding]) -> Outcome:
    """Return the worst result; `OK` without findings.

    `UNKNOWN` counts only for the stations up to the device list. Later stations, such as a cgroup
    of version 2, are unknown on a healthy host too.
    """
    counted = (
        each.result
        for each in findings
        if each.result is not Outcome.UNKNOWN or each.step in _MUST_BE_KNOWN
    )
    return max(counted, key=_SEVERITY.index, default=Outcome.OK)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings in the order of the stations."""
    stations = tuple(Step)
    return tuple(sorted(findings, key=lambda each: stations.index(each.step)))
