"""Tells by what registers whether a program is a device plugin, a DRA driver, or both.

The program starts once, on a node that has all: a kubelet that both can find, and an API server.
"""

import enum
from collections.abc import Sequence
from pathlib import Path

from kubedevices.check.drivers.node_setup import open_node
from kubedevices.check.drivers.target import DriverTarget
from kubedevices.check.drivers.timing import DriverTiming
from kubedevices.check.shared_state import DeviceChanges, SharedState
from kubedevices.check.target import NO_TRIGGER
from kubedevices.kubelet_api.dra import PLUGIN_TYPE
from kubedevices.kubelet_api.services import registration_methods
from kubedevices.node.arrival.plugin_watcher import DEVICE_PLUGIN, PluginWatcher, WatcherTiming
from kubedevices.values.allocation import PluginInfo, RegisterRequest
from kubedevices.values.socket_paths import KUBELET_SOCKET_NAME
from kubedevices.wire.unix_grpc import GrpcServer

LIMIT = 10.0
"""Seconds until something must have registered."""

_OTHER = 1.0
"""Seconds after the first registration, in which a program that is both registers again."""


class ProgramKind(enum.StrEnum):
    """What a program can register as."""

    PLUGIN = "device plugin"
    DRIVER = "DRA driver"


class _Kubelet:
    """Accepts everything, and notes what came."""

    def __init__(self) -> None:
        self.seen: set[ProgramKind] = set()

    async def register(self, _request: RegisterRequest) -> None:
        self.seen.add(ProgramKind.PLUGIN)

    def explain(self, info: PluginInfo) -> None:
        self.seen.add(ProgramKind.DRIVER if info.type == PLUGIN_TYPE else ProgramKind.PLUGIN)

    async def connect(self, _info: PluginInfo, _socket: Path) -> None:
        """Call nothing."""

    def disconnect(self, _name: str, _socket: Path) -> None:
        """Nothing is connected."""


async def detect(command: Sequence[str]) -> set[ProgramKind]:
    """Return what the program registers as; empty if nothing registers soon.

    Raises `PluginNotStarted` and `NoPrivateView`.
    """
    kubelet = _Kubelet()
    target, shared = DriverTarget(tuple(command)), SharedState(DeviceChanges(NO_TRIGGER))
    async with open_node(target, DriverTiming(), shared) as node:
        root = node.files.kubelet
        watcher = PluginWatcher(
            root / "plugins_registry",
            {PLUGIN_TYPE: kubelet, DEVICE_PLUGIN: kubelet},
            timing=WatcherTiming(interval=0.1),
        )
        server = GrpcServer(registration_methods(kubelet), name="kubelet that detects")
        await server.start(root / "device-plugins" / KUBELET_SOCKET_NAME)
        await watcher.start()
        try:
            node.process = await node.launch()
            if await node.until(lambda: kubelet.seen, LIMIT):
                await node.until(lambda: len(kubelet.seen) == len(ProgramKind), _OTHER)
        finally:
            await node.end_processes()
            await watcher.stop()
            await server.stop()
    return kubelet.seen
