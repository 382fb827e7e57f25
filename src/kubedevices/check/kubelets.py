"""The kubelet versions that a plugin is judged for (`--kubelet`), and the severity that follows.

A check names the first and the last kubelet version that does the harm. If all judged versions do
the harm, the check has its own severity. If only some do, the check warns. If none does, the check
is skipped.
"""

import re
from typing import NamedTuple

from kubedevices.check.check import WARN, PluginCheck, Severity, milder
from kubedevices.errors import UsageError

Version = tuple[int, int]

_RANGE = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?(?:-v?(\d+)\.(\d+)(?:\.\d+)?)?")


class Kubelets(NamedTuple):
    """A range of versions, both ends included."""

    first: Version
    last: Version

    def __str__(self) -> str:
        first, last = (".".join(map(str, each)) for each in self)
        return first if first == last else f"{first} to {last}"

    @classmethod
    def parse(cls, text: str) -> "Kubelets":
        """Parse `1.36` or `1.34-1.36`; raises `UsageError`."""
        match = _RANGE.fullmatch(text)
        if not match:
            raise UsageError(f"--kubelet {text}: it must read like 1.36 or 1.34-1.36")
        first = (int(match[1]), int(match[2]))
        last = (int(match[3]), int(match[4])) if match[3] else first
        if last < first:
            raise UsageError(f"--kubelet {text}: the older version comes first")
        return cls(first, last)

    def severity(self, check: PluginCheck) -> Severity | None:
        """Return the severity of the check for these kubelets, None if none of them does harm."""
        since = _version(check.since) if check.since else self.first
        until = _version(check.until) if check.until else self.last
        if since > self.last or until < self.first:
            return None
        if since > self.first or until < self.last:
            return milder(check.severity, WARN)
        return check.severity

    @staticmethod
    def harmful(check: PluginCheck) -> str:
        """Return the versions that do the harm as text, `""` for all."""
        since = f"since {check.since}" if check.since else ""
        return " ".join(filter(None, [since, f"until {check.until}" if check.until else ""]))


def _version(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


SUPPORTED = Kubelets((1, 34), (1, 36))
"""The versions that the Kubernetes project supported when this release was made."""
