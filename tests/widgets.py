"""A scanner whose devices a test sets, and short waiting times for tests."""

import asyncio
from collections.abc import Iterable

import kubedevices as kd
from kubedevices.plugin.timing import Timing
from kubedevices.values.socket_paths import InstanceSocket

DOMAIN = "example.com"
RESOURCE = "example.com/widget"

QUICK = Timing(
    look_interval=0.05,
    first_retry=0.02,
    last_retry=0.1,
    again_soon=0.02,
    again_first=0.3,
    again_last=1.2,
    after_leave=0.02,
    rebind_first=0.05,
    rebind_last=0.5,
    isolate_first=0.05,
    isolate_last=0.5,
)
"""The proportions of the defaults, about thirty times faster."""


def widgets(*ids: str, unhealthy: tuple[str, ...] = ()) -> list[kd.Device]:
    """Return devices with these IDs; those in `unhealthy` are unhealthy."""
    return [
        kd.Device(
            name,
            health=kd.Health.UNHEALTHY if name in unhealthy else kd.Health.HEALTHY,
            env={"WIDGET": name},
            numa_nodes=(),
        )
        for name in ids
    ]


def tree_of(*ids: str, health: kd.Health = kd.Health.HEALTHY) -> kd.DeviceTree:
    """Return a tree with one type."""
    return kd.DeviceTree({"widget": [kd.Device(name, health=health) for name in ids]})


def healthy(*ids: str) -> dict[str, str]:
    """Return the devices as a node sees them, all healthy."""
    return dict.fromkeys(ids, "Healthy")


def without_instance(names: Iterable[str]) -> list[str]:
    """Return the names of sockets without their instance suffix: `example.com-widget.sock`."""
    parts = ((name, InstanceSocket.parse(name)) for name in names)
    return sorted(f"{found.stem}.sock" if found else name for name, found in parts)


class Widgets(kd.Scanner):
    """Reports the devices given to `show`, at the start or later; ends when the plugin stops."""

    def __init__(self, **types: list[kd.Device]) -> None:
        self.tree = kd.DeviceTree(types)
        self.notifier: kd.Notifier | None = None
        self.is_ended = False
        self.error: Exception | None = None
        self.may_scan: asyncio.Event | None = None
        self._end = asyncio.Event()

    async def scan(self, notifier: kd.Notifier) -> None:
        if self.may_scan is not None:
            await self.may_scan.wait()
        self.notifier = notifier
        notifier.notify(self.tree)
        stopped = asyncio.ensure_future(notifier.wait_stopped())
        ended = asyncio.ensure_future(self._end.wait())
        await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        ended.cancel()
        self.is_ended = True
        if self.error:
            raise self.error

    def show(self, **types: list[kd.Device]) -> None:
        """Report these devices and no others."""
        self.tree = kd.DeviceTree(types)
        if self.notifier is not None:
            self.notifier.notify(self.tree)

    def end(self, error: Exception | None = None) -> None:
        """Let `scan` return, or raise `error`."""
        self.error = error
        self._end.set()
