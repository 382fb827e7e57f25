"""A node with one fake plugin in its own thread, for tests that ask the node from another
thread.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.services.control import ControlService
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import RESOURCE, FakePlugin

Result = TypeVar("Result")


class NodeThread:
    """The running node; `call` runs a coroutine on its loop and waits for the result."""

    def __init__(self, socket_dir: Path) -> None:
        self.socket_dir = socket_dir
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="node under test")

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def serve(self, devices: Sequence[ReportedDevice]) -> None:
        """Let the plugin register and list these devices, and wait until the node has them."""
        self.call(self.plugin.send(devices))
        self.call(self.plugin.register())
        self.call(self.manager.wait_for(RESOURCE, capacity=len(devices)))

    async def _start(self) -> None:
        self.manager = DeviceManager(self.socket_dir)
        await self.manager.start()
        self._control = ControlService(self.manager, self.manager.state_dir)
        await self._control.start()
        self.plugin = FakePlugin(self.socket_dir)
        await self.plugin.start()

    async def stop(self) -> None:
        await self._control.stop()
        await self.plugin.stop()
        await self.manager.stop()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            self.call(self._start())
            yield
            self.call(self.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@contextmanager
def node_thread(socket_dir: Path) -> Iterator[NodeThread]:
    """Run a node in `socket_dir`; its plugin has not registered yet."""
    node = NodeThread(socket_dir)
    with node.running():
        yield node
