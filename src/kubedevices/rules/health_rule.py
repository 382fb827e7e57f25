"""The keys of the health rule: when a change of health counts, and which checks decide. Pure."""

# `key` makes a field, not a value

from dataclasses import dataclass
from typing import ClassVar

from kubedevices.config.checks import at_least
from kubedevices.config.durations import duration
from kubedevices.config.keys import Declared, key
from kubedevices.rules.health_gate import Check


@dataclass(frozen=True, kw_only=True)
class DampingRule(Declared):
    """When a change of health counts."""

    unhealthy_after: float = duration(
        "how long a device must be unhealthy without a break", default=0.0
    )
    healthy_after: float = duration(
        "how long a device must be healthy again without a break", default=0.0
    )
    max_flaps: int | None = key(
        "how often a device may turn Unhealthy within an hour, however briefly; "
        "once more cordons it",
        default=None,
        check=at_least(0),
    )
    recover_after: float | None = duration(
        "how long until a cordoned device comes back by itself", default=None
    )


@dataclass(frozen=True, kw_only=True)
class HealthRule(DampingRule):
    """When a change of health is reported, and which checks decide beside the plugin.

    The {address} in texts of checks is the PCI address that the ID of a device contains or that a
    device file leads to.
    """

    HINT: ClassVar[str] = "write 'health: {unhealthyAfter: 5s, healthyAfter: 30s}'"

    checks: tuple[Check, ...] = key(
        "a device is healthy if the plugin says Healthy and all of these checks succeed", default=()
    )
    ignore: tuple[str, ...] = key(
        "globs of IDs of devices that are always Healthy, whatever plugin and checks say",
        default=(),
    )
    recover: Check | None = key(
        "while the plugin says Unhealthy, this check alone decides", default=None
    )

    @property
    def needs_address(self) -> bool:
        """Whether a check has the placeholder {address}."""
        checks = (*self.checks, self.recover) if self.recover else self.checks
        texts = (text for check in checks for text in (check.path or "", *check.command))
        return any("{address}" in text for text in texts)
