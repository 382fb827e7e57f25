"""grpc-go as a plugin of our node: what servers of that library do, and most device plugins are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import AdmissionRejected, RpcError, StatusCode
from kubedevices.node.arrival.endpoint import PluginTimeouts
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import DEFAULTS, NodeSettings
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.interop.go_client import GoStatusError
from tests.interop.go_plugin import GoFakePlugin
from tests.interop.go_server import GoServer
from tests.waiting import until

ECHO, FLOW, WATCH = "/test.Service/Echo", "/test.Service/Flow", "/test.Service/Watch"


@pytest.fixture
def plugins(short_dir: Path) -> Path:
    """Give the plugin directory of a node."""
    return short_dir / "p"


def pod(name: str) -> Pod:
    return Pod(name, containers=(Container("c", {RESOURCE: 1}),))


@asynccontextmanager
async def registered(
    plugins: Path, *ids: str, settings: NodeSettings = DEFAULTS, **options: Any
) -> AsyncIterator[tuple[DeviceManager, GoFakePlugin]]:
    """Run a node and a plugin; the node has the plugin's devices."""
    async with (
        DeviceManager(plugins, settings=settings) as manager,
        GoFakePlugin(plugins, devices=healthy(*ids), **options) as plugin,
    ):
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=len(ids))
        yield manager, plugin


async def refusal(manager: DeviceManager, name: str) -> str:
    """Allocate one device in vain and return why."""
    with pytest.raises(AdmissionRejected) as caught:
        await manager.allocate(pod(name))
    return str(caught.value)


# ---------------------------------------------------------------- with our node


async def test_from_registration_to_container(plugins: Path) -> None:
    """Registration, lists, preference, allocation and start, each over grpc-go."""
    has: dict[str, Any] = {"pre_start": True, "preferred": lambda _: ["b"]}
    async with registered(plugins, "a", "b", **has) as (manager, plugin):
        await plugin.send([*healthy("b", "c", "d"), *unhealthy("a")])
        await manager.wait_for(RESOURCE, capacity=4, allocatable=3)
        await manager.allocate(pod("p"))
        await manager.get_device_run_container_options(pod("p"), "c")
        assert plugin.allocations == plugin.pre_starts == [("b",)]
        assert sorted(plugin.preferred_requests[0].available) == ["b", "c", "d"]
        assert plugin.streams_opened == 1


async def test_a_refused_registration(plugins: Path) -> None:
    """grpc-go reads our status and our text, quotation marks and all."""
    async with DeviceManager(plugins), GoFakePlugin(plugins) as plugin:
        with pytest.raises(RpcError, match='requested API version "v9" is not supported') as caught:
            await plugin.register(version="v9")
        assert caught.value.code is StatusCode.UNKNOWN


async def test_status_with_details(plugins: Path) -> None:
    """A status with kilobytes of details arrives; one with far too many fails that call alone."""
    async with registered(plugins, "a") as (manager, plugin):
        error = GoStatusError(StatusCode.INTERNAL, "Gerät fehlt: 100 % weg")
        error.details = 6000
        plugin.errors["allocate"] = error
        text = await refusal(manager, "p")
        assert "code = Internal desc = Gerät fehlt: 100 % weg" in text
        error.details = 200_000
        assert "HTTP/2 error code" in await refusal(manager, "p")
        plugin.errors.clear()
        await manager.allocate(pod("p"))
        assert plugin.streams_opened == 1


async def test_a_killed_plugin_comes_back(plugins: Path) -> None:
    """After SIGKILL its devices are unhealthy at once; a new process has them again."""
    async with DeviceManager(plugins) as manager:
        for _ in range(2):
            plugin = GoFakePlugin(plugins, devices=healthy("a"))
            await plugin.start()
            await plugin.register()
            await manager.wait_for(RESOURCE, allocatable=1)
            await plugin.go.kill()
            await manager.wait_for(RESOURCE, capacity=1, allocatable=0)


async def test_graceful_stop(plugins: Path) -> None:
    """A plugin that stops gently finishes the allocation in progress and gets no other."""
    async with registered(plugins, "a", "b") as (manager, plugin):
        gate = plugin.hang("allocate")
        allocating = asyncio.create_task(manager.allocate(pod("p")), name="allocation")
        await until(lambda: plugin.allocations, what="the allocation is in progress")
        stopping = asyncio.create_task(plugin.go.stop(10), name="graceful stop")
        await until(lambda: not plugin.socket.exists(), what="the plugin stops")
        gate.set()
        assert await allocating
        assert "going away" in await refusal(manager, "q")
        await plugin.end_streams()
        await stopping
        await manager.wait_for(RESOURCE, capacity=2, allocatable=0)


async def test_allocations_after_the_connections_maximum_age(plugins: Path) -> None:
    """A server that retires connections gets a new one; the device list stays on the old one."""
    async with registered(plugins, "a", "b", options={"max_age": 0.3}) as (manager, plugin):
        endpoint = manager._endpoints.find(RESOURCE)
        assert endpoint is not None
        channel = endpoint._channel
        assert channel is not None
        await until(lambda: channel._first_link.connection.peer_sent_goaway, what="GOAWAY")
        await manager.allocate(pod("p"))
        await plugin.send(healthy("a", "b", "c"))
        await manager.wait_for(RESOURCE, allocatable=3)
        assert (len(plugin.allocations), plugin.streams_opened) == (1, 1)


async def test_a_list_that_ends_with_its_connection(plugins: Path) -> None:
    """A server that ends old connections, streams and all, is asked for its devices once more."""
    options = {"max_age": 0.2, "grace": 0.2}
    async with (
        DeviceManager(plugins) as manager,
        GoFakePlugin(plugins, devices=healthy("a"), options=options) as plugin,
    ):
        await plugin.register()
        await until(lambda: plugin.streams_opened == 2, what="one more list")
        await manager.wait_for(RESOURCE, allocatable=1)
        await manager.wait_for(RESOURCE, allocatable=0)
        assert plugin.streams_opened == 2


@pytest.mark.parametrize("limit", [1, 2])
async def test_few_streams_at_once(plugins: Path, limit: int) -> None:
    """With two streams allocations take turns beside the list; with one they fail in time."""
    soon, few = NodeSettings(timeouts=PluginTimeouts(allocate=0.5)), {"max_streams": limit}
    async with registered(plugins, *"abc", settings=soon, options=few) as (manager, plugin):
        if limit == 1:
            assert "did not answer within 0.5 s" in await refusal(manager, "p")
            assert not plugin.allocations
        else:
            await asyncio.gather(*(manager.allocate(pod(name)) for name in "pqr"))
            assert len(plugin.allocations) == 3


# ---------------------------------------------------------------- with our channel alone


class Service:
    """Handlers for a server of grpc-go."""

    def __init__(self) -> None:
        self.sent = 0

    async def echo(self, payload: bytes) -> bytes:
        return payload

    async def flow(self, payload: bytes) -> AsyncIterator[bytes]:
        """Send messages of these sizes in megabytes."""
        for size in payload:
            yield bytes((size,)) * size * 2**20
            self.sent += 1

    async def watch(self, payload: bytes) -> AsyncIterator[bytes]:
        yield payload
        await asyncio.Event().wait()

    def server(self, **options: object) -> GoServer:
        return GoServer({ECHO: self.echo}, {FLOW: self.flow, WATCH: self.watch}, **options)


@pytest.fixture
async def served(request: pytest.FixtureRequest, short_dir: Path) -> AsyncIterator[GrpcChannel]:
    """Give a channel to a server with the options of the test."""
    server = Service().server(**request.param)
    await server.start(short_dir / "s.sock")
    async with await GrpcChannel.dial(short_dir / "s.sock") as channel:
        yield channel
    await server.stop()


def with_server(**options: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("served", [options], indirect=True, ids=[""])


@with_server()
async def test_lists_far_above_a_kubelets_limit(served: GrpcChannel) -> None:
    """Messages of 1 to 20 MiB come whole."""
    sizes = bytes((4, 20, 1, 9))
    got = [message async for message in served.stream(FLOW, sizes)]
    assert [len(each) for each in got] == [size * 2**20 for size in sizes]
    assert all(each == each[:1] * len(each) for each in got)


@with_server(keepalive=1)
async def test_a_servers_keepalive_pings_are_answered(served: GrpcChannel) -> None:
    """A server that pings an idle client each second and hears nothing would hang up."""
    async with aclosing(served.stream(WATCH, b"x")) as messages:
        await anext(messages)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.6):
                await served.closed.wait()
        assert await served.unary(ECHO, b"on", timeout=5) == b"on"


@with_server()
async def test_too_many_pings(served: GrpcChannel) -> None:
    """Who pings an idle grpc-go server more than each two hours is thrown out, and told why."""
    pings = [served.ping(timeout=5) for _ in range(20)]
    *_, error = await asyncio.gather(*pings, return_exceptions=True)
    assert isinstance(error, RpcError)
    assert error.code is StatusCode.UNAVAILABLE
    assert error.message == "the peer is going away (HTTP/2 error code 11): too_many_pings"


@with_server(gzip=True)
async def test_compressed_answers(served: GrpcChannel) -> None:
    """A server that compresses unasked is refused by call; the connection goes on."""
    for _ in range(2):
        with pytest.raises(RpcError, match="compressed") as caught:
            await served.unary(ECHO, bytes(1000), timeout=5)
        assert caught.value.code is StatusCode.UNIMPLEMENTED
    assert not served.closed.is_set()


@with_server(headers=True)
async def test_unexpected_metadata_changes_nothing(served: GrpcChannel) -> None:
    """Metadata before and after an answer, binary or long, changes nothing."""
    for number in range(3):
        assert await served.unary(ECHO, b"%d" % number, timeout=5) == b"%d" % number
