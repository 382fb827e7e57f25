"""The health of devices, as drivers report it.

The health of a device becomes unknown if the driver does not report it for the device's timeout.
When the driver's stream ends, the health of all its devices becomes unknown.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kubedevices.kubelet_api.dra import DeviceHealth, HealthStatus

DEFAULT_TIMEOUT = 30
"""Seconds, if the driver sets no timeout."""

LONGEST_MESSAGE = 1024
"""Characters of a message; a kubelet cuts longer messages."""

DeviceName = tuple[str, str]
"""Pool and device."""


@dataclass
class HealthCache:
    """The last health of each device, by driver; `now` is a monotonic clock, in seconds."""

    _devices: dict[str, dict[DeviceName, tuple[DeviceHealth, float]]] = field(default_factory=dict)

    def update(self, driver: str, devices: Iterable[DeviceHealth], now: float) -> None:
        """Record a list. A device that is missing in it keeps its health until its timeout."""
        known = self._devices.setdefault(driver, {})
        known.update({(each.pool, each.device): (_shortened(each), now) for each in devices})

    def clear(self, driver: str) -> None:
        """Remove all devices of a driver: its stream has ended."""
        self._devices.pop(driver, None)

    def get(self, driver: str, pool: str, device: str, now: float) -> tuple[HealthStatus, str]:
        """Return health and message of a device, `UNKNOWN` after its timeout."""
        found = self._devices.get(driver, {}).get((pool, device))
        if found is None or now - found[1] > _timeout(found[0]):
            return HealthStatus.UNKNOWN, ""
        return found[0].health, found[0].message


def _shortened(device: DeviceHealth) -> DeviceHealth:
    """Return the device with a message of at most `LONGEST_MESSAGE` characters."""
    if len(device.message) <= LONGEST_MESSAGE:
        return device
    return device._replace(message=device.message[: LONGEST_MESSAGE - 3] + "...")


def _timeout(device: DeviceHealth) -> float:
    return device.timeout if device.timeout > 0 else DEFAULT_TIMEOUT
