"""A kubelet as a plugin sees it: it dials back, asks for devices, restarts, and misbehaves.

Speaks through `wire/`. Only what a plugin can notice is here; no allocation, no capacity.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kubedevices.allocation import API_VERSION, PluginOptions, RegisterRequest
from kubedevices.device import ReportedDevice
from kubedevices.errors import DialError, RpcError, StatusCode, WireError
from kubedevices.resource_name import is_resource_name
from kubedevices.wire.clients import DevicePluginClient
from kubedevices.wire.services import registration_methods
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.waiting import until

DeviceListing = tuple[ReportedDevice, ...]


@dataclass(eq=False)
class Connected:
    """One registration that was accepted, and what came of it."""

    resource: str
    options: PluginOptions
    channel: GrpcChannel
    lists: list[DeviceListing] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether its ListAndWatch stream is open."""
        return self.task is not None and not self.task.done()

    @property
    def client(self) -> DevicePluginClient:
        """For the other calls of the API."""
        return DevicePluginClient(self.channel)


class FakeKubelet:
    """Set its attributes at any time; they count from the next Register on.

    `refuse_with`: answer Register with this error. `register_gate`: an event to wait for before
    answering. `open_streams`: whether to ask for the devices at all. `one_per_resource`: end the
    stream of an earlier registration of the same resource, as old kubelets do. `dial_timeout`:
    how long it tries to reach a plugin before it answers with an error.
    """

    def __init__(self, socket_dir: Path) -> None:
        self.socket_dir = socket_dir
        self.socket = socket_dir / "kubelet.sock"
        self.refuse_with: RpcError | None = None
        self.register_gate: asyncio.Event | None = None
        self.open_streams = True
        self.one_per_resource = False
        self.dial_timeout = 10.0
        self.requests: list[RegisterRequest] = []
        """Every Register call, in order, with its time in `request_times`."""
        self.request_times: list[float] = []
        self.accepted: list[Connected] = []
        """Every registration that was answered with OK, in order."""
        self._server: GrpcServer | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------ life

    def wipe(self) -> None:
        """Delete every file of the plugin directory, as a kubelet does at its start."""
        for path in self.socket_dir.iterdir():
            if not path.is_dir():
                path.unlink(missing_ok=True)

    async def start(self, *, wipe: bool = True) -> None:
        """Wipe the directory and listen on kubelet.sock."""
        if wipe:
            self.wipe()
        self._server = GrpcServer(registration_methods(self), name="fake kubelet")
        await self._server.start(self.socket)

    async def stop(self, *, leave_socket: bool = False) -> None:
        """Die: every connection ends. A real kubelet leaves kubelet.sock behind."""
        await self.cancel_streams(close=True)
        if self._server is not None:
            await self._server.stop()
            self._server = None
        if leave_socket:
            _leave_dead_socket(self.socket)

    async def restart(self, *, wipe: bool = True) -> None:
        """Die and come back."""
        await self.stop(leave_socket=True)
        await self.start(wipe=wipe)

    async def replace_socket(self) -> None:
        """Make a new kubelet.sock and leave streams and plugin sockets alone."""
        old, self._server = self._server, None
        self.socket.unlink()
        await self.start(wipe=False)
        if old is not None:
            await old.stop()

    async def cancel_streams(self, *, close: bool = False) -> None:
        """End every ListAndWatch stream from our side, with `close` the connections too."""
        for connected in self.accepted:
            if connected.task is not None and connected.is_open:
                connected.task.cancel()
                await asyncio.wait({connected.task})
        if close:
            for connected in self.accepted:
                await connected.channel.close()

    # ------------------------------------------------------------ what a test asks

    def connected(self, resource: str) -> list[Connected]:
        """Return the registrations of `resource` whose stream is open."""
        return [each for each in self.accepted if each.resource == resource and each.is_open]

    def devices(self, resource: str) -> dict[str, str]:
        """Return ID to health by the last list of the newest open stream, {} without one."""
        for connected in reversed(self.connected(resource)):
            if connected.lists:
                return {device.id: device.health for device in connected.lists[-1]}
        return {}

    def lists(self, resource: str) -> list[DeviceListing]:
        """Return every list that ever came for `resource`."""
        return [
            listing for each in self.accepted if each.resource == resource for listing in each.lists
        ]

    async def wait_for(
        self, resource: str, devices: dict[str, str] | int, timeout: float = 10
    ) -> Connected:
        """Wait until `resource` has these devices (or this many), by its newest open stream."""

        def is_there() -> bool:
            now = self.devices(resource)
            found: dict[str, str] | int = len(now) if isinstance(devices, int) else now
            return bool(self.connected(resource)) and found == devices

        await until(is_there, timeout, f"{resource}: {devices}, got {self.devices(resource)}")
        return self.connected(resource)[-1]

    async def wait_requests(self, count: int, timeout: float = 10) -> None:
        """Wait until Register was called `count` times in all."""
        await until(lambda: len(self.requests) >= count, timeout, f"{count} Register calls")

    # ------------------------------------------------------------ the Registration service

    async def register(self, request: RegisterRequest) -> None:
        """Check, dial back, ask for the options, answer, and then ask for the devices."""
        self.requests.append(request)
        self.request_times.append(asyncio.get_running_loop().time())
        if self.register_gate is not None:
            await self.register_gate.wait()
        if self.refuse_with is not None:
            raise self.refuse_with
        if request.version != API_VERSION:
            raise RpcError(
                StatusCode.UNKNOWN,
                f'requested API version "{request.version}" is not supported by kubelet. '
                'Supported version is ["v1beta1"]',
            )
        if not is_resource_name(request.resource_name):
            text = f'the ResourceName "{request.resource_name}" is invalid'
            raise RpcError(StatusCode.UNKNOWN, text)
        connected = await self._dial_back(request)
        if self.one_per_resource:
            for earlier in self.connected(request.resource_name):
                assert earlier.task is not None
                earlier.task.cancel()
        self.accepted.append(connected)
        if self.open_streams:
            connected.task = asyncio.create_task(
                self._watch(connected), name=f"fake kubelet watches {connected.resource}"
            )

    async def _dial_back(self, request: RegisterRequest) -> Connected:
        channel = await self._dial(self.socket_dir / request.endpoint)
        try:
            options = await DevicePluginClient(channel).get_device_plugin_options(timeout=10)
        except WireError as error:
            await channel.close()
            text = f"failed to get device plugin options: {error}"
            raise RpcError(StatusCode.UNKNOWN, text) from error
        return Connected(request.resource_name, options, channel)

    async def _dial(self, path: Path) -> GrpcChannel:
        """Try again and again until the timeout, as a blocking dial of grpc-go does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.dial_timeout
        while True:
            try:
                return await GrpcChannel.dial(path, timeout=max(0.01, deadline - loop.time()))
            except DialError as error:
                if loop.time() > deadline:
                    text = "failed to dial device plugin: context deadline exceeded"
                    raise RpcError(StatusCode.UNKNOWN, text) from error
                await asyncio.sleep(0.01)

    async def _watch(self, connected: Connected) -> None:
        with contextlib.suppress(WireError):
            async with contextlib.aclosing(connected.client.list_and_watch()) as lists:
                async for listing in lists:
                    connected.lists.append(listing)


@contextlib.asynccontextmanager
async def fake_kubelet(socket_dir: Path) -> AsyncIterator[FakeKubelet]:
    """Give a running one."""
    async with FakeKubelet(socket_dir) as kubelet:
        yield kubelet


def _leave_dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
