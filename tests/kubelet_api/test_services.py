"""The typed services and clients, over a socket: what one side says is what the other is asked."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import ProtocolError, RpcError, StatusCode, UnsupportedVersion
from kubedevices.kubelet_api import services
from kubedevices.kubelet_api.clients import (
    DevicePluginClient,
    JsonClient,
    PluginRegistrationClient,
    RegistrationClient,
)
from kubedevices.kubelet_api.convert import device_list_to_wire, device_to_wire
from kubedevices.kubelet_api.services import (
    device_plugin_methods,
    json_methods,
    plugin_registration_methods,
    registration_methods,
)
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    PluginInfo,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    RegisterRequest,
)
from kubedevices.values.device import Device, DeviceSpec, Mount, ReportedDevice
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer, Methods, StreamMethod, UnaryMethod
from tests.waiting import until
from tests.wire.conftest import dialled


@asynccontextmanager
async def offering(methods: Methods, directory: Path) -> AsyncIterator[GrpcChannel]:
    """Serve `methods` and give a channel to them."""
    server = GrpcServer(methods, name="t", max_receive=4 * 2**20)
    await server.start(directory / "s.sock")
    async with dialled(directory) as channel:
        yield channel
    await server.stop()


class Plugin:
    """A plugin that records its requests."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.is_watched = False

    async def get_device_plugin_options(self) -> PluginOptions:
        return PluginOptions(pre_start_required=True)

    async def list_and_watch(self) -> AsyncIterator[bytes]:
        self.is_watched = True
        try:
            for count in (1, 2):
                yield device_list_to_wire(device_to_wire(Device(f"d{n}")) for n in range(count))
            await asyncio.Event().wait()
        finally:
            self.is_watched = False

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        self.asked.append(request)
        return PreferredAllocationResponse((("d1",),))

    async def allocate(self, request: AllocateRequest) -> AllocateResponse:
        self.asked.append(request)
        return AllocateResponse([ANSWER])

    async def pre_start_container(self, request: PreStartContainerRequest) -> None:
        self.asked.append(request)


ANSWER = ContainerAllocateResponse(
    env={"A": "ü"},
    mounts=[Mount("/host", "/there", read_only=True)],
    devices=[DeviceSpec("/dev/fuse", "/dev/fuse", "rw")],
    annotations={"k": "v"},
    cdi_devices=["example.com/w=d1"],
)


async def test_device_plugin(short_dir: Path) -> None:
    """All five calls of a plugin."""
    plugin = Plugin()
    async with offering(device_plugin_methods(plugin), short_dir) as channel:
        client = DevicePluginClient(channel)
        options = await client.get_device_plugin_options(timeout=5)
        assert options == PluginOptions(pre_start_required=True)
        preferred = PreferredAllocationRequest((ContainerPreferredRequest(("d0", "d1"), (), 1),))
        assert await client.get_preferred_allocation(
            preferred, timeout=5
        ) == PreferredAllocationResponse((("d1",),))
        allocate = AllocateRequest((ContainerAllocateRequest(("d1",)),))
        assert await client.allocate(allocate, timeout=5) == AllocateResponse([ANSWER])
        pre_start = PreStartContainerRequest(("d1",))
        await client.pre_start_container(pre_start, timeout=5)
        assert plugin.asked == [preferred, allocate, pre_start]


async def test_list_and_watch(short_dir: Path) -> None:
    """Every list arrives; closing the iterator ends the plugin's generator."""
    plugin = Plugin()
    async with offering(device_plugin_methods(plugin), short_dir) as channel:
        async with aclosing(DevicePluginClient(channel).list_and_watch()) as lists:
            assert await anext(lists) == (ReportedDevice("d0", "Healthy"),)
            assert len(await anext(lists)) == 2
            assert plugin.is_watched
        await until(lambda: not plugin.is_watched, what="the generator has ended")


async def test_every_unary_call_has_a_deadline(short_dir: Path) -> None:
    """The typed clients pass their timeout on."""

    async def hang(_payload: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    names = (services.ALLOCATE, services.REGISTER, services.GET_INFO, "/x.Y/Z")
    async with offering({name: UnaryMethod(hang) for name in names}, short_dir) as channel:
        calls = [
            DevicePluginClient(channel).allocate(AllocateRequest(()), timeout=0.05),
            RegistrationClient(channel).register(RegisterRequest("", "", ""), timeout=0.05),
            PluginRegistrationClient(channel).get_info(timeout=0.05),
            JsonClient(channel, "x.Y").call("Z", timeout=0.05),
        ]
        for call in calls:
            with pytest.raises(RpcError) as caught:
                await call
            assert caught.value.code is StatusCode.DEADLINE_EXCEEDED


async def test_registration(short_dir: Path) -> None:
    """Register arrives whole; a refusal is UNKNOWN with the kubelet's very words."""

    class Registration:
        taken: RegisterRequest | None = None

        async def register(self, request: RegisterRequest) -> None:
            if request.version != "v1beta1":
                raise UnsupportedVersion(request.version, "v1beta1")
            self.taken = request

    registration = Registration()
    async with offering(registration_methods(registration), short_dir) as channel:
        client = RegistrationClient(channel)
        request = RegisterRequest("v1beta1", "w.sock", "example.com/w", PluginOptions(True, True))
        await client.register(request, timeout=5)
        assert registration.taken == request
        with pytest.raises(RpcError, match='"v2" is not supported by kubelet') as caught:
            await client.register(RegisterRequest("v2", "w.sock", "example.com/w"), timeout=5)
        assert caught.value.code is StatusCode.UNKNOWN


async def test_plugin_registration(short_dir: Path) -> None:
    """GetInfo and NotifyRegistrationStatus."""

    class Info:
        told: tuple[bool, str] | None = None

        async def get_info(self) -> PluginInfo:
            return PluginInfo("DevicePlugin", "example.com/w", "/w.sock", ("v1beta1",))

        async def notify_registration_status(self, registered: bool, error: str) -> None:
            self.told = (registered, error)

    info = Info()
    async with offering(plugin_registration_methods(info), short_dir) as channel:
        client = PluginRegistrationClient(channel)
        assert await client.get_info(timeout=5) == await info.get_info()
        await client.notify_registration_status(registered=False, error="no", timeout=5)
        assert info.told == (False, "no")


@pytest.mark.parametrize(
    "method", [services.ALLOCATE, services.GET_PREFERRED_ALLOCATION, services.PRE_START_CONTAINER]
)
async def test_a_request_that_cannot_be_decoded(short_dir: Path, method: str) -> None:
    """A request that cannot be decoded is INTERNAL and never reaches the plugin."""
    plugin = Plugin()
    async with offering(device_plugin_methods(plugin), short_dir) as channel:
        with pytest.raises(RpcError, match="cannot read the request") as caught:
            await channel.unary(method, b"\xff\xff", timeout=5)
        assert caught.value.code is StatusCode.INTERNAL
        assert plugin.asked == []


async def test_a_response_that_cannot_be_decoded(short_dir: Path) -> None:
    """A response that cannot be decoded is a `ProtocolError` and ends the stream."""
    ended = asyncio.Event()

    async def wrong(_payload: bytes) -> bytes:
        return b"\xff\xff"

    async def wrong_stream(_payload: bytes) -> AsyncIterator[bytes]:
        try:
            yield b"\xff\xff"
            await asyncio.Event().wait()
        finally:
            ended.set()

    methods: Methods = {
        services.ALLOCATE: UnaryMethod(wrong),
        services.LIST_AND_WATCH: StreamMethod(wrong_stream),
        "/x.Y/Z": UnaryMethod(wrong),
    }
    async with offering(methods, short_dir) as channel:
        client = DevicePluginClient(channel)
        with pytest.raises(ProtocolError):
            await client.allocate(AllocateRequest(()), timeout=5)
        with pytest.raises(ProtocolError):
            await anext(client.list_and_watch())
        async with asyncio.timeout(5):
            await ended.wait()
        with pytest.raises(ProtocolError, match="not JSON"):
            await JsonClient(channel, "x.Y").call("Z", timeout=5)


async def test_json_service(short_dir: Path) -> None:
    """A service of our own speaks JSON objects, in calls and in streams."""

    async def add(request: dict[str, Any]) -> dict[str, Any]:
        return {"sum": request["a"] + request["b"]}

    async def count(request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        for number in range(request.get("to", 2)):
            yield {"number": number, "text": "ü"}

    async with offering(json_methods("x.Y", {"Add": add}, {"Count": count}), short_dir) as channel:
        client = JsonClient(channel, "x.Y")
        assert await client.call("Add", {"a": 1, "b": 2}, timeout=5) == {"sum": 3}
        assert [each["number"] async for each in client.stream("Count", {"to": 3})] == [0, 1, 2]
        assert [each["text"] async for each in client.stream("Count")] == ["ü", "ü"]
        with pytest.raises(RpcError, match="internal error: KeyError"):
            await client.call("Add", timeout=5)
        for nonsense in (b"[1]", b"{", b"[" * 100_000, b"\xff"):
            with pytest.raises(RpcError, match="cannot read the request") as caught:
                await channel.unary("/x.Y/Add", nonsense, timeout=5)
            assert caught.value.code is StatusCode.INTERNAL
