"""A device plugin that a test controls, also with behaviour that no plugin should have.

It uses real sockets and the real protocol. A test sends its lists, every call is recorded, and each
method can hang, fail or give wrong answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Self

from kubedevices.errors import KubedevicesError, RpcError, StatusCode
from kubedevices.kubelet_api.clients import RegistrationClient
from kubedevices.kubelet_api.convert import device_list_to_wire, reported_to_wire
from kubedevices.kubelet_api.services import device_plugin_methods
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
    RegisterRequest,
)
from kubedevices.values.device import DeviceSpec, ReportedDevice
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer

RESOURCE = "example.com/widget"

AllocateAnswer = Callable[[AllocateRequest], AllocateResponse]
PreferredAnswer = Callable[[ContainerPreferredRequest], Iterable[str]]


def healthy(*ids: str, numa: tuple[int, ...] | None = None) -> list[ReportedDevice]:
    """Return healthy devices."""
    return [ReportedDevice(device_id, "Healthy", numa) for device_id in ids]


def unhealthy(*ids: str) -> list[ReportedDevice]:
    """Return unhealthy devices."""
    return [ReportedDevice(device_id, "Unhealthy") for device_id in ids]


def as_list(devices: Iterable[ReportedDevice]) -> bytes:
    """Encode one ListAndWatchResponse."""
    return device_list_to_wire(map(reported_to_wire, devices))


def answer_by_id(request: AllocateRequest) -> AllocateResponse:
    """Answer each container with its IDs in an environment variable and one device file per ID."""
    return AllocateResponse(
        [
            ContainerAllocateResponse(
                env={"IDS": ",".join(container.device_ids)},
                devices=[DeviceSpec(f"/dev/{name}") for name in container.device_ids],
            )
            for container in request.containers
        ]
    )


class FakePlugin:
    """One resource on one socket; `async with` serves it, `register` announces it."""

    def __init__(
        self,
        socket_dir: Path,
        resource: str = RESOURCE,
        *,
        socket_name: str = "widget.sock",
        devices: Iterable[ReportedDevice] = (),
        pre_start: bool = False,
        preferred: PreferredAnswer | None = None,
    ) -> None:
        self.socket_dir, self.resource, self.socket_name = socket_dir, resource, socket_name
        self.options: PluginOptions | KubedevicesError = PluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=preferred is not None
        )
        self.allocate_answer: AllocateAnswer = answer_by_id
        self.preferred_answer = preferred
        self.errors: dict[str, RpcError] = {}
        """Method name (`allocate`, …) → the error it answers with."""
        self.allocations: list[tuple[str, ...]] = []
        self.preferred_requests: list[ContainerPreferredRequest] = []
        self.pre_starts: list[tuple[str, ...]] = []
        self.streams_opened = 0
        self.open_streams = 0
        self.lists_sent = 0
        self.options_asked = 0
        self._gates: dict[str, asyncio.Event] = {}
        self._message: bytes | None = as_list(devices)
        self._version = 0
        self._changed = asyncio.Condition()
        self._stream_end: RpcError | None = None
        self._streams_ended = 0
        self._flooding = False
        self._server = GrpcServer(
            device_plugin_methods(self), name=f"fake {socket_name}", max_receive=4 * 2**20
        )

    # ------------------------------------------------------------ methods for tests

    @property
    def socket(self) -> Path:
        return self.socket_dir / self.socket_name

    async def start(self) -> None:
        await self._server.start(self.socket)

    async def stop(self) -> None:
        for gate in self._gates.values():
            gate.set()
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def register(self, *, version: str = "v1beta1", endpoint: str | None = None) -> None:
        """Call Register as a plugin does; raises `RpcError` if refused."""
        async with await GrpcChannel.dial(self.socket_dir / "kubelet.sock") as channel:
            await RegistrationClient(channel).register(
                RegisterRequest(
                    version, self.socket_name if endpoint is None else endpoint, self.resource
                ),
                timeout=20,
            )

    async def send(self, devices: Iterable[ReportedDevice]) -> None:
        """Send a new list on every open stream, and on every stream opened later."""
        await self.send_bytes(as_list(devices))

    async def send_bytes(self, message: bytes | None) -> None:
        """Send these bytes as a list; with None, streams opened later get no list."""
        async with self._changed:
            self._message = message
            self._version += 1
            self._changed.notify_all()

    async def flood(self) -> None:
        """Send the current list again and again, as fast as the client reads."""
        async with self._changed:
            self._flooding = True
            self._changed.notify_all()

    async def end_streams(self, error: RpcError | None = None) -> None:
        """End every open stream, with OK or with `error`; the socket stays open."""
        async with self._changed:
            self._stream_end = error
            self._streams_ended += 1
            self._changed.notify_all()

    def hang(self, method: str) -> asyncio.Event:
        """Let `method` (`allocate`, `options`, …) hang until the returned event is set."""
        return self._gates.setdefault(method, asyncio.Event())

    # ------------------------------------------------------------ the DevicePlugin service

    async def get_device_plugin_options(self) -> PluginOptions:
        self.options_asked += 1
        await self._behave("options")
        if isinstance(self.options, KubedevicesError):
            raise self.options
        return self.options

    async def list_and_watch(self) -> AsyncIterator[bytes]:
        self.streams_opened += 1
        self.open_streams += 1
        ended, sent = self._streams_ended, -1
        try:
            await self._behave("list")
            while self._streams_ended == ended:
                if sent != self._version or self._flooding:
                    sent = self._version
                    if self._message is not None:
                        self.lists_sent += 1
                        yield self._message
                        continue
                async with self._changed:
                    if self._streams_ended == ended and self._version == sent:
                        await self._changed.wait()
            if self._stream_end:
                raise self._stream_end
        finally:
            self.open_streams -= 1

    async def allocate(self, request: AllocateRequest) -> AllocateResponse:
        self.allocations += [container.device_ids for container in request.containers]
        await self._behave("allocate")
        return self.allocate_answer(request)

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        self.preferred_requests += request.containers
        await self._behave("preferred")
        if self.preferred_answer is None:
            raise RpcError(StatusCode.UNIMPLEMENTED, "not offered")
        return PreferredAllocationResponse(
            tuple(tuple(self.preferred_answer(container)) for container in request.containers)
        )

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        self.pre_starts.append(request.device_ids)
        await self._behave("pre_start")
        return PreStartContainerResponse(request.unknown)

    async def _behave(self, method: str) -> None:
        if method in self._gates:
            await self._gates[method].wait()
        if method in self.errors:
            raise self.errors[method]
