"""`StubPlugin`: a device plugin whose answers the test sets, for tests of clients of plugins.

It has the same settings as the stub in the kubelet's own tests, with three differences: an `update`
also holds for later streams, the default answer to Allocate has one response per container, and
after a restart of the node the stub registers again at once. To write a real plugin, use
`kubedevices.Scanner`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Self

from kubedevices.errors import RpcError, StatusCode, WireError
from kubedevices.kubelet_api.clients import RegistrationClient
from kubedevices.kubelet_api.convert import device_list_to_wire, device_to_wire
from kubedevices.kubelet_api.services import device_plugin_methods, plugin_registration_methods
from kubedevices.plugin import hook_threads
from kubedevices.testing.workbench.loop_thread import LoopThread
from kubedevices.values.allocation import (
    API_VERSION,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    PluginInfo,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    RegisterRequest,
)
from kubedevices.values.device import Device
from kubedevices.values.socket_paths import KUBELET_SOCKET_NAME, plugin_socket
from kubedevices.wire.unix_grpc import FileIdentity, GrpcChannel, GrpcServer

__tracebackhide__ = True  # a failing test shows its own lines, not ours

_LOOK_EVERY = 0.02
_REGISTER_LIMIT = 30.0


def answer_nothing(request: AllocateRequest) -> AllocateResponse:
    """Return an empty response for every container: the default of `allocate`."""
    return AllocateResponse([ContainerAllocateResponse() for _ in request.containers])


def prefer_first(request: ContainerPreferredRequest) -> Iterable[str]:
    """Prefer the must-include devices, then the first devices: the default of `prefer`."""
    rest = [each for each in request.available if each not in request.must_include]
    return [*request.must_include, *rest][: request.size]


class StubPlugin:
    """One resource on one socket in `socket_dir`, in its own thread; `with` starts and stops it.

    A test may set `allocate`, `prefer` and `may_register` at any time. The stub calls these
    functions in a thread. If a function raises an error, the call fails; an `RpcError` sets the
    status. The stub calls `may_register` before every registration until it returns True.
    `allocations` and `pre_starts` record the device IDs of calls, `registrations` is the number of
    registrations, and `refusal` is the text of the last Register that the node refused.
    """

    def __init__(
        self,
        devices: Iterable[Device] = (),
        *,
        socket_dir: Path,
        resource: str = "example.com/stub",
        pre_start: bool = False,
        preferred: bool = False,
    ) -> None:
        self.resource, self.socket_dir = resource, socket_dir
        self.socket = plugin_socket(socket_dir, resource)
        self.allocate: Callable[[AllocateRequest], AllocateResponse] = answer_nothing
        self.prefer: Callable[[ContainerPreferredRequest], Iterable[str]] = prefer_first
        self.may_register: Callable[[], bool] = lambda: True
        self.allocations: list[tuple[str, ...]] = []
        self.pre_starts: list[tuple[str, ...]] = []
        self.registrations = 0
        self.refusal = ""
        self._options = PluginOptions(pre_start, preferred)
        self._service = _Service(self, self._options, devices)
        self._thread: LoopThread | None = None

    def __repr__(self) -> str:
        return f"<StubPlugin {self.resource} {'running' if self._thread else 'stopped'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve, and register with each new kubelet.sock; raises `CannotAsk`."""
        if self._thread is None:
            thread = LoopThread(f"stub {self.resource}")
            try:
                thread.call(self._service.start())
            except BaseException:
                thread.close()
                raise
            self._thread = thread

    def stop(self) -> None:
        """Close all connections and remove the socket; do nothing if it is stopped already."""
        thread, self._thread = self._thread, None
        if thread:
            thread.call(self._service.stop())
            thread.close()

    def restart(self) -> None:
        """Stop and start, like a process that crashed; the stub registers again."""
        self.stop()
        self.start()

    def register(self) -> None:
        """Register once more, without asking `may_register`; raises `RpcError` or `DialError`."""
        if self._thread is None:
            self.start()
        assert self._thread
        self._thread.call(self._service.register())

    def update(self, devices: Iterable[Device]) -> None:
        """Send this list to all open streams now, and to later streams, also after a restart."""
        devices = [*devices]
        if self._thread:
            self._thread.call(self._service.show(devices))
        else:
            self._service.set_devices(devices)


class _Service:
    """The asyncio part of a stub: both gRPC services, and the watch on kubelet.sock."""

    def __init__(self, stub: StubPlugin, options: PluginOptions, devices: Iterable[Device]) -> None:
        self._stub, self._options = stub, options
        self._kubelet_socket = stub.socket_dir / KUBELET_SOCKET_NAME
        self.set_devices(devices)

    def set_devices(self, devices: Iterable[Device]) -> None:
        self._message = device_list_to_wire(
            device_to_wire(each, each.numa_nodes or ()) for each in devices
        )

    async def start(self) -> None:
        self._changed = asyncio.Condition()
        self._registering = asyncio.Lock()
        self._registered_at: FileIdentity | None = None
        await self._serve()
        self._watching = asyncio.create_task(self._watch(), name=f"registers {self._stub!r}")

    async def _serve(self) -> None:
        methods = {**device_plugin_methods(self), **plugin_registration_methods(self)}
        self._server = GrpcServer(methods, name=repr(self._stub), max_receive=4 * 2**20)
        await self._server.start(self._stub.socket)

    async def stop(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._server.stop()

    async def show(self, devices: Iterable[Device]) -> None:
        async with self._changed:
            self.set_devices(devices)
            self._changed.notify_all()

    # ------------------------------------------------------------ registering

    async def _watch(self) -> None:
        while True:
            found = FileIdentity.of(self._kubelet_socket)
            is_new = found is not None and found != self._registered_at
            if is_new and await hook_threads.call(self._stub.may_register):
                try:
                    await self.register()
                except RpcError as error:
                    self._stub.refusal = error.message
                except WireError:
                    pass  # the node does not listen yet, or has ended: try again
            await asyncio.sleep(_LOOK_EVERY)

    async def register(self) -> None:
        async with self._registering:
            found = FileIdentity.of(self._kubelet_socket)
            if not self._server.owns_socket():  # a starting kubelet has removed it
                await self._server.stop()
                await self._serve()
            async with await GrpcChannel.dial(self._kubelet_socket) as channel:
                request = RegisterRequest(
                    API_VERSION, self._stub.socket.name, self._stub.resource, self._options
                )
                await RegistrationClient(channel).register(request, timeout=_REGISTER_LIMIT)
            self._registered_at = found
            self._stub.registrations += 1

    async def get_info(self) -> PluginInfo:
        return PluginInfo("DevicePlugin", self._stub.resource, "", (API_VERSION,))

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        self._stub.registrations += registered
        self._stub.refusal = error

    # ------------------------------------------------------------ the device plugin

    async def get_device_plugin_options(self) -> PluginOptions:
        return self._options

    async def list_and_watch(self) -> AsyncIterator[bytes]:
        sent = None
        while True:
            if sent is not self._message:
                sent = self._message
                yield sent
                continue
            async with self._changed:
                if sent is self._message:
                    await self._changed.wait()

    async def allocate(self, request: AllocateRequest) -> AllocateResponse:
        self._stub.allocations += [container.device_ids for container in request.containers]
        return await hook_threads.call(self._stub.allocate, request)

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        if not self._options.get_preferred_allocation_available:
            raise RpcError(StatusCode.UNIMPLEMENTED, "this stub has no preference")
        answers = [
            tuple(await hook_threads.call(self._stub.prefer, container))
            for container in request.containers
        ]
        return PreferredAllocationResponse(tuple(answers))

    async def pre_start_container(self, request: PreStartContainerRequest) -> None:
        self._stub.pre_starts.append(request.device_ids)
