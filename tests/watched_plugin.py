"""A plugin that a plugin watcher finds; a test decides what it says about itself."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kubedevices.kubelet_api.services import plugin_registration_methods
from kubedevices.values.allocation import PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer

if TYPE_CHECKING:
    from kubedevices.errors import RpcError

RESOURCE = "example.com/widget"


class WatchedPlugin:
    """A plugin with a socket in the registry directory; records the notifications that it gets."""

    def __init__(self, path: Path, **said: object) -> None:
        self.path = path
        info: dict[str, object] = {"type": "DevicePlugin", "name": RESOURCE, "endpoint": ""}
        info |= {"supported_versions": ("v1beta1",), **said}
        self.info = PluginInfo(**info)  # type: ignore[arg-type]
        self.told: list[tuple[bool, str]] = []
        self.asked = 0
        self.get_info_error: RpcError | None = None
        self.get_info_gate = asyncio.Event()
        self.get_info_gate.set()
        self.notify_error: RpcError | None = None
        self.server = GrpcServer(plugin_registration_methods(self), name="plugin")

    async def __aenter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        await self.server.start(self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    async def get_info(self) -> PluginInfo:
        self.asked += 1
        await self.get_info_gate.wait()
        if self.get_info_error:
            raise self.get_info_error
        return self.info

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        self.told.append((registered, error))
        if self.notify_error:
            raise self.notify_error
