"""Which kubelets a plugin is judged for: harm counts where somebody runs the kubelet that does it.

A check says since and until which version kubelets do the harm. What all judged versions do has the
check's own severity, what some do is a warning, and what none does is not tried.
"""

import re
from typing import NamedTuple

from kubedevices.conformance.check import PluginCheck, Severity
from kubedevices.errors import UsageError

Version = tuple[int, int]

_RANGE = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?(?:-v?(\d+)\.(\d+)(?:\.\d+)?)?")


class Kubelets(NamedTuple):
    """From the oldest to the newest version."""

    first: Version
    last: Version

    def __str__(self) -> str:
        first, last = (".".join(map(str, each)) for each in self)
        return first if first == last else f"{first} to {last}"

    @classmethod
    def parse(cls, text: str) -> "Kubelets":
        """Read `1.36` or `1.34-1.36`; raises `UsageError`."""
        match = _RANGE.fullmatch(text)
        if not match:
            raise UsageError(f"--kubelet {text}: it must read like 1.36 or 1.34-1.36")
        first = (int(match[1]), int(match[2]))
        last = (int(match[3]), int(match[4])) if match[3] else first
        if last < first:
            raise UsageError(f"--kubelet {text}: the older version comes first")
        return cls(first, last)

    def severity(self, check: PluginCheck) -> Severity | None:
        """Return how bad it is to break the check's rule on these kubelets, None for no harm."""
        since = _version(check.since) if check.since else self.first
        until = _version(check.until) if check.until else self.last
        if since > self.last or until < self.first:
            return None
        if since > self.first or until < self.last:
            return min(check.severity, Severity.WARN, key=list(Severity).index)
        return check.severity

    @staticmethod
    def harmful(check: PluginCheck) -> str:
        """Say which versions do the harm, `""` for all."""
        since = f"since {check.since}" if check.since else ""
        return " ".join(filter(None, [since, f"until {check.until}" if check.until else ""]))


def _version(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


SUPPORTED = Kubelets((1, 34), (1, 36))
"""The versions that the Kubernetes project supported when this was written."""
