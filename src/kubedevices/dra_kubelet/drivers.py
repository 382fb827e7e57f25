"""The drivers that are registered, each with its instances; and when their slices go. asyncio.

Several instances of a driver may serve at once, while it is updated: the last that registered is
called, if it is connected. When no instance is, a driver has a while to come back until the kubelet
deletes its ResourceSlices, so that no more pods are sent to this node for its devices.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubedevices.allocation import PluginInfo
from kubedevices.dra_kubelet.connection import CallTiming, DriverConnection
from kubedevices.errors import (
    ApiRefused,
    ApiUnreachable,
    DriverNotAccepted,
    DynamicResourcesFailed,
    RegistrationError,
)
from kubedevices.kubelet_api.dra import PACKAGES, DeviceHealth

WIPE_DELAY = 30.0
"""Seconds that a driver has to come back."""

_FIRST_RETRY, _LAST_RETRY = 1.0, 300.0
_log = logging.getLogger(__name__)

Heard = Callable[[str, tuple[DeviceHealth, ...] | None], None]
"""Takes a driver and its list of health, or None when its stream has ended."""


class Drivers:
    """Takes in drivers, as `node.arrival.plugin_watcher.PluginHandler`.

    `wipe` deletes the slices of a driver on this node, of all drivers for an empty name.
    """

    def __init__(
        self,
        wipe: Callable[[str], Awaitable[None]],
        heard: Heard,
        *,
        health_service: str,
        wipe_delay: float = WIPE_DELAY,
        timing: CallTiming | None = None,
    ) -> None:
        self._wipe, self._heard = wipe, heard
        self._health_service, self._wipe_delay, self._timing = health_service, wipe_delay, timing
        self._instances: dict[str, list[DriverConnection]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._retiring: dict[asyncio.Task[None], DriverConnection] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Delete the slices of all drivers, in the background: none is registered yet."""
        self._wipe_after(0, "")

    async def stop(self) -> None:
        """Hang up everywhere, also while calls are under way; nothing is deleted any more."""
        self._is_stopped = True
        for task in self._wipes.values():
            task.cancel()
        connections = [each for members in self._instances.values() for each in members]
        connections += self._retiring.values()
        self._instances.clear()
        await asyncio.gather(*(each.close() for each in connections))
        await asyncio.gather(*self._retiring, *self._wipes.values(), return_exceptions=True)

    def instances(self, driver: str) -> tuple[DriverConnection, ...]:
        """Return the connections to a driver, in the order of registration."""
        return tuple(self._instances.get(driver, ()))

    def get(self, driver: str, verb: str) -> DriverConnection:
        """Return the instance to call; raises `DynamicResourcesFailed` if none is registered."""
        instances = self._instances.get(driver)
        if not instances:
            raise DynamicResourcesFailed(verb, f"DRA driver {driver} is not registered")
        return next((each for each in reversed(instances) if each.is_connected), instances[-1])

    # ------------------------------------------------------------ what the plugin watcher calls

    def explain(self, info: PluginInfo) -> RegistrationError | None:
        """Return why a driver is not accepted: it has none of the versions that are known here."""
        versions = list(info.supported_versions)
        if not versions:
            problem = "empty list of supported gRPC services (aka supported versions)"
        elif not PACKAGES.keys() & set(versions):
            problem = (
                f"none of services supported by the plugin ({versions}) are supported by the "
                f"kubelet ({list(PACKAGES)})"
            )
        else:
            return None
        return DriverNotAccepted(
            info.name,
            info.endpoint,
            f"invalid supported gRPC versions of DRA driver plugin {info.name} at endpoint "
            f"{info.endpoint}: {problem}",
        )

    async def connect(self, info: PluginInfo, socket: Path) -> None:
        """Take in an instance; it is dialled afterwards. Raises `DriverNotAccepted`."""
        driver = info.name
        instances = self._instances.setdefault(driver, [])
        if any(each.endpoint == socket for each in instances):
            problem = f"endpoint {socket} already registered for DRA driver plugin {driver}"
            raise DriverNotAccepted(driver, str(socket), problem)
        instances.append(
            DriverConnection(
                driver,
                socket,
                next(each for each in info.supported_versions if each in PACKAGES),
                health_service=self._health_service,
                changed=lambda: self._look_at(driver),
                heard=lambda devices: self._heard(driver, devices),
                timing=self._timing,
            )
        )
        self._look_at(driver)

    def disconnect(self, name: str, socket: Path) -> None:
        """Let an instance go whose registration socket is gone."""
        instances = self._instances.get(name, [])
        for each in [each for each in instances if each.endpoint == socket]:
            instances.remove(each)
            task = asyncio.create_task(each.retire(), name=f"end of {each!r}")
            self._retiring[task] = each
            task.add_done_callback(self._retiring.pop)
        if not instances:
            self._instances.pop(name, None)
        self._look_at(name)

    # ------------------------------------------------------------ deleting slices

    def _look_at(self, driver: str) -> None:
        """See to it that the slices of a driver that cannot be called are deleted, later."""
        if self._is_stopped:
            return
        if any(each.is_connected for each in self._instances.get(driver, ())):
            if (task := self._wipes.pop(driver, None)) is not None:
                task.cancel()
        elif driver not in self._wipes:
            self._wipe_after(self._wipe_delay, driver)

    def _wipe_after(self, delay: float, driver: str) -> None:
        task = asyncio.create_task(self._delete(delay, driver), name=f"wipe of {driver or 'all'}")
        self._wipes[driver] = task

        def forget(task: asyncio.Task[None]) -> None:
            if self._wipes.get(driver) is task:
                del self._wipes[driver]

        task.add_done_callback(forget)

    async def _delete(self, delay: float, driver: str) -> None:
        await asyncio.sleep(delay)
        pause = _FIRST_RETRY
        while True:
            try:
                await self._wipe(driver)
            except (ApiRefused, ApiUnreachable) as error:
                _log.info("slices of %s are not deleted yet: %s", driver or "all drivers", error)
            else:
                _log.info("the slices of %s are deleted", driver or "all drivers")
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_RETRY)
