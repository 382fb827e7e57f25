"""A kubelet as a plugin sees it: dials back, reads lists, restarts, and can misbehave.

It uses the real protocol. It has only behaviour that a plugin can notice: no allocation, no
capacity.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from kubedevices.errors import DialError, RpcError, StatusCode, WireError
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.kubelet_api.services import registration_methods
from kubedevices.values.allocation import API_VERSION, PluginOptions, RegisterRequest
from kubedevices.values.device import ReportedDevice
from kubedevices.values.resource_name import is_resource_name
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

DeviceListing = tuple[ReportedDevice, ...]
CleanUp = Literal["", "by name", "by socket"]


@dataclass(eq=False)
class Connected:
    """One accepted registration with its lists."""

    resource: str
    options: PluginOptions
    channel: GrpcChannel
    endpoint: str = ""
    lists: list[DeviceListing] = field(default_factory=list)
    devices: dict[str, str] = field(default_factory=dict)
    """ID → health in the last list."""
    task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether its ListAndWatch stream is open."""
        return self.task is not None and not self.task.done()

    @property
    def client(self) -> DevicePluginClient:
        """A client for the other calls of the API."""
        return DevicePluginClient(self.channel)


class FakeKubelet:
    """A test may set the attributes at any time; they apply from the next Register call on."""

    def __init__(self, socket_dir: Path) -> None:
        self.socket_dir = socket_dir
        self.socket = socket_dir / "kubelet.sock"
        self.refuse_with: RpcError | None = None
        """Answer Register with this error."""
        self.register_gate: asyncio.Event | None = None
        """Wait for this event before a Register call is processed."""
        self.goes_on = False
        """Finish a Register call although the plugin cancelled it, as kubelets do."""
        self.dial_timeout = 10.0
        """Seconds to dial a plugin before Register fails."""
        self.open_streams = True
        """Whether to call ListAndWatch after a registration."""
        self.one_per_resource = False
        """End the stream of an earlier registration of the same resource, as old kubelets do."""
        self.clean_up: CleanUp = ""
        """Which client the end of a stream removes: none, the last client of the resource
        (`by name`, as kubelets up to 1.36), or the client of the same socket (`by socket`, as later
        kubelets)."""
        self.clean_up_after = 0.0
        """Seconds from the end of a stream to its clean-up, as in a busy kubelet."""
        self.disconnected: list[str] = []
        """Resources whose devices a clean-up made unhealthy, in order."""
        self._clients: dict[tuple[str, str], Connected | None] = {}
        self.before_dial: Callable[[], object] = lambda: None
        self.after_accept: Callable[[], object] = lambda: None
        self.requests: list[RegisterRequest] = []
        """Every Register call in order; `request_times` has the times."""
        self.request_times: list[float] = []
        self.accepted: list[Connected] = []
        """Every registration that was accepted, in order."""
        self._server: GrpcServer | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------ start and stop

    def wipe(self) -> None:
        """Delete every file of the plugin directory, as a kubelet does at its start."""
        self.wipe_plugins()
        self.socket.unlink(missing_ok=True)

    def wipe_plugins(self) -> None:
        """Delete every file but kubelet.sock."""
        for path in self.socket_dir.iterdir():
            if not path.is_dir() and path != self.socket:
                path.unlink(missing_ok=True)

    async def start(self, *, wipe: bool = True) -> None:
        """Wipe the directory and listen on kubelet.sock."""
        if wipe:
            self.wipe()
        self._server = GrpcServer(registration_methods(self), name="fake kubelet")
        await self._server.start(self.socket)

    async def stop(self, *, leave_socket: bool = False) -> None:
        """Stop: every connection ends.

        A real kubelet leaves kubelet.sock behind, see `leave_socket`.
        """
        for call in self._calls:
            call.cancel()
        await self.cancel_streams(close=True)
        if self._server is not None:
            await self._server.stop()
            self._server = None
        if leave_socket:
            leave_dead_socket(self.socket)

    async def restart(self, *, wipe: bool = True) -> None:
        """Stop and start again."""
        await self.stop(leave_socket=True)
        await self.start(wipe=wipe)

    async def replace_socket(self) -> None:
        """Create a new kubelet.sock; streams and plugin sockets stay."""
        old, self._server = self._server, None
        self.socket.unlink()
        await self.start(wipe=False)
        if old is not None:
            await old.stop()

    async def cancel_streams(self, *, close: bool = False) -> None:
        """Cancel every ListAndWatch stream; with `close`, close the connections too."""
        for connected in self.accepted:
            if connected.task is not None and connected.is_open:
                connected.task.cancel()
                await asyncio.wait({connected.task})
        if close:
            for connected in self.accepted:
                await connected.channel.close()

    # ------------------------------------------------------------ questions of a test

    def connected(self, resource: str) -> list[Connected]:
        """Return the registrations of `resource` whose stream is open."""
        return [each for each in self.accepted if each.resource == resource and each.is_open]

    def devices(self, resource: str) -> dict[str, str]:
        """Return ID → health of the last list on the newest open stream, {} without a stream."""
        streams = self.connected(resource)
        return streams[-1].devices if streams else {}

    def lists(self, resource: str) -> list[DeviceListing]:
        """Return every list received for `resource`."""
        return [
            listing for each in self.accepted if each.resource == resource for listing in each.lists
        ]

    async def wait_for(
        self, resource: str, devices: dict[str, str] | int, timeout: float = 30
    ) -> Connected:
        """Wait until the newest open stream of `resource` has these devices, or this number of
        devices.
        """

        def is_there() -> bool:
            streams = self.connected(resource)
            if not streams or not streams[-1].lists:
                return False
            found = streams[-1].devices
            return len(found) == devices if isinstance(devices, int) else found == devices

        await until(is_there, timeout, f"{resource}: {devices}, got {self.devices(resource)}")
        return self.connected(resource)[-1]

    async def wait_requests(self, count: int, timeout: float = 30) -> None:
        """Wait until there were `count` Register calls."""
        await until(lambda: len(self.requests) >= count, timeout, f"{count} Register calls")

    # ------------------------------------------------------------ the Registration service

    async def register(self, request: RegisterRequest) -> None:
        """Check the request, dial back, read the options, answer, and then call ListAndWatch."""
        self.requests.append(request)
        self.request_times.append(asyncio.get_running_loop().time())
        call = asyncio.create_task(self._register(request), name="fake kubelet: Register")
        self._calls.add(call)
        call.add_done_callback(self._forget)
        try:
            await asyncio.shield(call)
        except asyncio.CancelledError:
            if not self.goes_on:
                call.cancel()
            raise

    def _forget(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # a plugin that gave up never reads it, and asyncio would log it

    async def _register(self, request: RegisterRequest) -> None:
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
        self.before_dial()
        key = self._key(request.resource_name, request.endpoint)
        if self.clean_up == "by socket" and key in self._clients:
            path = self.socket_dir / request.endpoint
            raise RpcError(StatusCode.UNKNOWN, f"device plugin already connected: {path}")
        self._clients[key] = None
        try:
            connected = await self._dial_back(request)
        except RpcError:
            self._clients.pop(key, None)
            raise
        self._clients[key] = connected
        if self.one_per_resource:
            for earlier in self.connected(request.resource_name):
                assert earlier.task is not None
                earlier.task.cancel()
        self.accepted.append(connected)
        if self.open_streams:
            self.watch(connected)
        self.after_accept()

    def watch(self, connected: Connected) -> None:
        """Call ListAndWatch for a registration, as `open_streams` does."""
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
        return Connected(request.resource_name, options, channel, request.endpoint)

    async def _dial(self, path: Path) -> GrpcChannel:
        """Dial again and again until the timeout, as a blocking dial of grpc-go does."""
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
                    connected.devices = {device.id: device.health for device in listing}
        await asyncio.sleep(self.clean_up_after)
        await self._clean_up(connected)

    def _key(self, resource: str, endpoint: str) -> tuple[str, str]:
        return resource, endpoint if self.clean_up == "by socket" else ""

    async def _clean_up(self, ended: Connected) -> None:
        key = self._key(ended.resource, ended.endpoint)
        if not self.clean_up or key not in self._clients:
            return
        client = self._clients.pop(key)
        if not any(resource == ended.resource for resource, _ in self._clients):
            self.disconnected.append(ended.resource)
        if client is not None:
            await client.channel.close()


def leave_dead_socket(path: Path) -> None:
    """Create a socket file without a listener, as a killed process leaves it."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
