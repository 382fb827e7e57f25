"""The registered drivers with their instances, and the deletion of their slices. asyncio.

During an update several instances of a driver may be registered. The kubelet calls the connected
instance that registered last. If no instance is connected for 30 s, the kubelet deletes the
ResourceSlices of the driver ("wipes" them), so that the scheduler sends no more pods for its
devices to this node.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubedevices.errors import (
    ApiRefused,
    ApiUnreachable,
    DriverNotAccepted,
    DynamicResourcesFailed,
    RegistrationError,
)
from kubedevices.kubelet_api.dra import HEALTH_SERVICES, PACKAGES, DeviceHealth
from kubedevices.testing.dra_kubelet.connection import CallTiming, DriverConnection
from kubedevices.values.allocation import PluginInfo

WIPE_DELAY = 30.0
"""Seconds without a connection until the slices of a driver are deleted."""

_FIRST_RETRY, _LAST_RETRY = 1.0, 300.0
_log = logging.getLogger(__name__)

OnHealth = Callable[[str, tuple[DeviceHealth, ...] | None], None]
"""Called with a driver and its health list, or None when its stream has ended."""


class Drivers:
    """Connects to drivers, as the `node.arrival.plugin_watcher.PluginHandler` for DRA.

    `wipe` deletes the slices of a driver on this node, or of all drivers if the name is empty.
    """

    def __init__(
        self,
        wipe: Callable[[str], Awaitable[None]],
        on_health: OnHealth,
        *,
        wipe_delay: float = WIPE_DELAY,
        timing: CallTiming | None = None,
    ) -> None:
        self._wipe, self._on_health = wipe, on_health
        self._wipe_delay, self._timing = wipe_delay, timing
        self._instances: dict[str, list[DriverConnection]] = {}
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self._retiring: dict[asyncio.Task[None], DriverConnection] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Delete the slices of all drivers, in the background. No driver is registered yet."""
        self._wipe_after(0, "")

    async def stop(self) -> None:
        """Close all connections, also with running calls; slices are not deleted any more."""
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
        """Return why a driver is refused: it has no API version known here; None if accepted."""
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
        """Add an instance, which is then dialled in the background. Raises `DriverNotAccepted`."""
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
                health_service=_newest_health(info),
                on_change=lambda: self._schedule_wipe(driver),
                on_health=lambda devices: self._on_health(driver, devices),
                timing=self._timing,
            )
        )
        self._schedule_wipe(driver)

    def disconnect(self, name: str, socket: Path) -> None:
        """Remove an instance: its registration socket has been removed."""
        instances = self._instances.get(name, [])
        for each in [each for each in instances if each.endpoint == socket]:
            instances.remove(each)
            task = asyncio.create_task(each.retire(), name=f"end of {each!r}")
            self._retiring[task] = each
            task.add_done_callback(self._retiring.pop)
        if not instances:
            self._instances.pop(name, None)
        self._schedule_wipe(name)

    # ------------------------------------------------------------ deleting slices

    def _schedule_wipe(self, driver: str) -> None:
        """Schedule the deletion of slices if no instance is connected; otherwise cancel it."""
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


def _newest_health(info: PluginInfo) -> str:
    """Return the newest health service that a driver names, as kubelet 1.37 does.

    A driver for kubelets before 1.37 may serve v1alpha1 without naming it.
    """
    named = (each for each in HEALTH_SERVICES if each in info.supported_versions)
    return next(named, HEALTH_SERVICES[-1])
