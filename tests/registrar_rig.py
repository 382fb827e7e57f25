"""A registrar under test with its server and file watch, without runner and scanner."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.host.file_watch import FileWatch
from kubedevices.plugin.device_list import DeviceListBuilder
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.options import Settings
from kubedevices.plugin.registrar import Registrar
from kubedevices.plugin.server import PluginServer
from kubedevices.values.device import Device
from tests.widgets import QUICK, RESOURCE, widgets

if TYPE_CHECKING:
    from kubedevices.plugin.timing import Timing

NAME = "example.com-widget.sock"


class Rig:
    """A running registrar and its server."""

    def __init__(self, directory: Path, devices: list[Device], **options: Any) -> None:
        self.directory, self.socket = directory, directory / options.pop("name", NAME)
        timing: Timing = options.pop("timing", QUICK)
        self.watch = FileWatch(
            interval=timing.look_interval,
            use_events=options.pop("use_events", True),
            names_only=True,
        )
        self.builder = DeviceListBuilder(RESOURCE)
        self.server = PluginServer(
            RESOURCE,
            Hooks(None),
            self.builder.build({each.id: each for each in devices}),
            Settings(),
        )
        kubelet = directory / "kubelet.sock" if options.pop("register", True) else None
        self.registrar = Registrar(self.server, self.socket, kubelet, self.watch, timing)
        self.task: asyncio.Task[None] | None = None

    def publish(self, *devices: Device) -> None:
        self.server.publish(self.builder.build({each.id: each for each in devices}))

    @property
    def ended_early(self) -> bool:
        """Whether the registrar has ended by itself."""
        return self.task is not None and self.task.done()

    async def ended(self, timeout: float = 5) -> None:
        """Wait until the registrar ends by itself; raises its error."""
        assert self.task is not None
        await asyncio.wait({self.task}, timeout=timeout)
        assert self.task.done()
        self.task.result()


@contextlib.asynccontextmanager
async def registrar(directory: Path, *devices: Device, **options: Any) -> AsyncIterator[Rig]:
    """Run a registrar; at the end, it must leave no socket."""
    rig = Rig(directory, list(devices or widgets("w1")), **options)
    with rig.watch:
        rig.task = asyncio.create_task(rig.registrar.run(), name="registrar under test")
        try:
            yield rig
        finally:
            rig.task.cancel()
            await asyncio.wait({rig.task})
            assert not rig.registrar.is_serving
            assert not rig.registrar.is_registered
