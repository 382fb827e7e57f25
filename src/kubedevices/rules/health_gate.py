"""When checks change the health of a device: only several equal results in a row count. Pure.

`HealthGate` is for scanners that check their devices; `Check` has the settings of one check of the
health rule and of `expose`. `health_checks` runs checks. `damping` decides by seconds instead.
"""

from collections.abc import Collection
from dataclasses import dataclass

from kubedevices.values.device import Health

SHORTEST_INTERVAL = 0.1
"""Seconds between two checks at least: a shorter pause would only burn a processor."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What is checked, and how often: a file, or a command. Texts may have placeholders."""

    file: str | None = None
    """A file that must exist; with `equals` it must also contain this text."""

    equals: str | None = None
    command: tuple[str, ...] = ()
    """A program and its arguments; exit code 0 means healthy."""

    interval: float = 30.0
    """Seconds between two checks."""

    fail_after: int = 2
    """So many failures in a row make the device Unhealthy."""

    ok_after: int = 3
    """So many successes in a row make it Healthy again."""

    def __post_init__(self) -> None:
        """Refuse an interval and numbers that no door may pass on."""
        if not self.interval >= SHORTEST_INTERVAL or min(self.fail_after, self.ok_after) < 1:
            raise ValueError(
                f"a check needs an interval of {SHORTEST_INTERVAL:g} s or more, fail_after and "
                "ok_after of 1 or more"
            )


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
            if count < 1:
                raise ValueError(f"{name} must be at least 1, not {count}")
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
