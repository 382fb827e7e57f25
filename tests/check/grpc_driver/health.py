"""The health of the devices, in both versions of the service."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.check.grpc_driver import messages
from tests.check.grpc_driver.inventory import Device, Inventory

_REFRESH = 8.0
"""Seconds until a list without changes is sent again."""

_TIMEOUT = 30
_HEALTHY, _UNHEALTHY = 1, 2


class Health:
    """Sends the complete list at once, after each change, and before the last one is too old."""

    refresh: float | None = _REFRESH

    def __init__(self, node: str, inventory: Inventory) -> None:
        self.node, self.inventory = node, inventory
        self._changed = threading.Condition()
        self.is_stopped = False
        inventory.on_change.append(self.wake)

    def streams(self) -> dict[str, Any]:
        """Return the method of each version of the service."""
        return {version: partial(self.watch, made) for version, made in messages.HEALTH.items()}

    def wake(self) -> None:
        """Let all streams look whether something has changed."""
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """End all streams."""
        self.is_stopped = True
        self.wake()

    def watch(self, response: Any, _request: Any, context: Any) -> Iterator[Any]:
        """Yield lists until the kubelet or the driver ends the stream."""
        context.add_callback(self.wake)
        while context.is_active() and not self.is_stopped:
            devices = self.inventory.devices
            yield self.complete(response, devices)
            self.wait(devices, context)

    def wait(self, devices: dict[str, Device], context: Any) -> None:
        """Wait until the devices are others, or until the stream or a period ends."""

        def is_over() -> bool:
            ended = self.is_stopped or not context.is_active()
            return ended or self.inventory.devices != devices

        with self._changed:
            self._changed.wait_for(is_over, self.refresh)

    def complete(self, response: Any, devices: dict[str, Device]) -> Any:
        """Return the list of all devices."""
        made = response()
        for each in devices.values():
            entry = made.devices.add(
                health=_UNHEALTHY if each.is_broken else _HEALTHY,
                last_updated_time=int(self.inventory.scanned_at),
                health_check_timeout_seconds=_TIMEOUT,
                message=f"{each.name} is broken" if each.is_broken else "",
            )
            entry.device.pool_name, entry.device.device_name = self.node, each.name
        return made
