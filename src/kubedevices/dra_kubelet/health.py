"""What drivers said about the health of their devices, and for how long that is believed.

A device about which nothing was heard for its timeout is unknown. When the driver's stream ends,
all its devices are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kubedevices.kubelet_api.dra import DeviceHealth, HealthStatus

DEFAULT_TIMEOUT = 30
"""Seconds, where the driver says none."""

LONGEST_MESSAGE = 1024

DeviceName = tuple[str, str]
"""Pool and device."""


@dataclass
class HealthCache:
    """The last health of each device, by driver; `now` is any clock that goes forward, seconds."""

    _devices: dict[str, dict[DeviceName, tuple[DeviceHealth, float]]] = field(default_factory=dict)

    def update(self, driver: str, devices: Iterable[DeviceHealth], now: float) -> set[DeviceName]:
        """Take a complete list; return the devices about which something is new."""
        known = self._devices.setdefault(driver, {})
        changed, reported = set(), set()
        for each in devices:
            name = each.pool, each.device
            reported.add(name)
            made = _shortened(each)
            before = known.get(name)
            if before is None or _state(before[0]) != _state(made):
                changed.add(name)
            known[name] = made, now
        for name, (last, at) in known.items():
            late = now - at > _timeout(last)
            if name not in reported and last.health is not HealthStatus.UNKNOWN and late:
                known[name] = last._replace(health=HealthStatus.UNKNOWN, message=""), now
                changed.add(name)
        return changed

    def clear(self, driver: str) -> None:
        """Forget a driver: its stream has ended."""
        self._devices.pop(driver, None)

    def get(self, driver: str, pool: str, device: str, now: float) -> tuple[HealthStatus, str]:
        """Return health and message of a device."""
        found = self._devices.get(driver, {}).get((pool, device))
        if found is None or now - found[1] > _timeout(found[0]):
            return HealthStatus.UNKNOWN, ""
        return found[0].health, found[0].message


def _shortened(device: DeviceHealth) -> DeviceHealth:
    """Cut a message that is too long, as a kubelet does."""
    if len(device.message) <= LONGEST_MESSAGE:
        return device
    return device._replace(message=device.message[: LONGEST_MESSAGE - 3] + "...")


def _timeout(device: DeviceHealth) -> float:
    return device.timeout if device.timeout > 0 else DEFAULT_TIMEOUT


def _state(device: DeviceHealth) -> tuple[HealthStatus, str, float]:
    return device.health, device.message, _timeout(device)
