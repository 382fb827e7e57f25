"""grpc-go as the kubelet of our plugins, and as a client of our other sockets."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from kubedevices.errors import RegistrationRefused, RpcError, StatusCode
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.services.pod_resources import PodResourcesServer
from kubedevices.serving.modes import serve
from tests.cli.commands import running
from tests.interop.go_client import GoClient
from tests.interop.go_kubelet import GoKubelet
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, Widgets, healthy, widgets
from tests.wire.behaviour import SERVICE, Behaviour
from tests.wire.conftest import dialled, started
from tests.wire.peer_servers import OurServer

ECHO, BIG, HANG, WATCH = (f"/{SERVICE}/{name}" for name in ("Echo", "Big", "Hang", "Watch"))
MIB = 2**20


@asynccontextmanager
async def go_client(directory: Path, **options: object) -> AsyncIterator[GoClient]:
    """Dial `s.sock` in `directory`."""
    client = await GoClient.dial(directory / "s.sock", **options)
    try:
        yield client
    finally:
        await client.close()


# ---------------------------------------------------------------- our plugins


DIALS = {"now": "localhost", "before 1.28": ""}
"""Which :authority: older kubelets leave it to grpc-go, which takes the path of the socket."""


@pytest.mark.parametrize("authority", DIALS.values(), ids=DIALS)
async def test_a_plugin_under_a_kubelet(short_dir: Path, authority: str) -> None:
    """Registration, options, lists, allocation: bytes as the protocol's tables have them."""
    scanner = Widgets(widget=widgets("w1", "w2"))
    name = rb"\n\x07v1beta1\x12.(example\.com-widget\.[.\w]+\.sock)\x1a\x12example\.com/widget"
    async with GoKubelet(short_dir, authority=authority) as kubelet:
        async with serve(scanner, domain=DOMAIN, socket_dir=short_dir, timing=QUICK):
            await until(lambda: kubelet.lists == [healthy("w1", "w2")], what="the first list")
            (asked,) = [each.removesuffix(b"\x22\x00") for each in kubelet.requests]
            endpoint = re.fullmatch(name, asked, re.DOTALL)
            assert endpoint is not None, asked
            assert asked[endpoint.start(1) - 1] == len(endpoint[1])
            assert kubelet.options == [b""]
            scanner.show(widget=widgets("w2", "w3", unhealthy=("w3",)))
            await until(lambda: len(kubelet.lists) == 2, what="the second list")
            assert kubelet.lists[1] == {"w2": "Healthy", "w3": "Unhealthy"}
            assert dict((await kubelet.allocate("w2")).envs) == {"WIDGET": "w2"}
            with pytest.raises(RpcError, match="w9") as caught:
                await kubelet.allocate("w9")
            assert caught.value.code is StatusCode.NOT_FOUND
        await until(lambda: kubelet.stream_end, what="the end of the list")
        assert kubelet.stream_end == (StatusCode.OK, "")


async def test_a_refusal_comes_through(short_dir: Path) -> None:
    """What a kubelet's grpc-go says no with is what the plugin's user reads."""
    async with GoKubelet(short_dir) as kubelet:
        text = 'the ResourceName "ä/widget" is invalid: 100 %'
        kubelet.refuse_with = RpcError(StatusCode.UNKNOWN, text)
        with pytest.raises(RegistrationRefused, match=text):
            async with serve(Widgets(widget=widgets("w1")), domain=DOMAIN, socket_dir=short_dir):
                await asyncio.Event().wait()


async def test_fifty_allocations_beside_changing_lists(short_dir: Path) -> None:
    """Over one connection, each gets its own answer, and the last list arrives."""
    scanner = Widgets(widget=widgets(*map(str, range(50))))
    async with (
        GoKubelet(short_dir) as kubelet,
        serve(scanner, domain=DOMAIN, socket_dir=short_dir, timing=QUICK),
    ):
        await until(lambda: kubelet.lists, what="the first list")
        calls = [asyncio.create_task(kubelet.allocate(str(n)), name=f"{n}") for n in range(50)]
        for count in range(51, 81):
            scanner.show(widget=widgets(*map(str, range(count))))
            await asyncio.sleep(0)
        answers = await asyncio.gather(*calls)
        assert [each.envs["WIDGET"] for each in answers] == [str(n) for n in range(50)]
        await until(lambda: len(kubelet.lists[-1]) == 80, what="the last list")


async def test_simulate_under_a_kubelet(short_dir: Path) -> None:
    """The command as a process: devices, allocation, SIGTERM."""
    simulate = ["simulate", "--socket-dir", short_dir, "--number-devices", "3"]
    async with GoKubelet(short_dir) as kubelet:
        with running(simulate, log=short_dir / "log") as plugin:
            await until(lambda: kubelet.lists, 20, "the first list")
            assert list(kubelet.lists[0].values()) == ["Healthy"] * 3
            await kubelet.allocate(*kubelet.lists[0])
            plugin.terminate()
            assert await asyncio.to_thread(plugin.wait, 10) == 0
            await until(lambda: kubelet.stream_end, what="the end of the list")


# ---------------------------------------------------------------- our server alone


async def test_sizes_at_a_kubelets_limit(short_dir: Path) -> None:
    """Up to 4 MiB arrive, a byte more ends the call alone; a client may raise its limit."""
    async with (
        started(OurServer(Behaviour(), max_receive=12 * MIB), short_dir),
        go_client(short_dir) as kubelet,
        go_client(short_dir, max_receive=32 * MIB) as other,
    ):
        async with aclosing(kubelet.stream(WATCH, b"list")) as lists:
            await anext(lists)
            assert len(await kubelet.unary(BIG, b"%d" % (4 * MIB))) == 4 * MIB
            with pytest.raises(RpcError, match="larger than max") as caught:
                await kubelet.unary(BIG, b"%d" % (4 * MIB + 1))
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
            assert await kubelet.unary(ECHO, b"on") == b"on"
        big = bytes(range(256)) * (10 * MIB // 256)
        assert await other.unary(ECHO, big) == big
        with pytest.raises(RpcError, match="larger than max") as caught:
            await other.unary(ECHO, bytes(12 * MIB + 1))
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        assert await other.unary(ECHO, b"on") == b"on"


async def test_compressed_requests(short_dir: Path) -> None:
    """A compressed request is refused by call; the next one without is answered."""
    async with started(OurServer(Behaviour()), short_dir), go_client(short_dir) as client:
        for _ in range(2):
            with pytest.raises(RpcError, match="compressed") as caught:
                await client.unary(ECHO, bytes(1000), gzip=True)
            assert caught.value.code is StatusCode.UNIMPLEMENTED
        assert await client.unary(ECHO, b"on") == b"on"


async def test_a_connection_comes_back_by_itself(short_dir: Path) -> None:
    """grpc-go dials again when our server stops and another takes its place, without an error."""
    server = OurServer(Behaviour())
    await server.start(short_dir / "s.sock")
    async with go_client(short_dir) as client:
        call = asyncio.create_task(client.unary(HANG, b""), name="call in progress")
        await until(lambda: server.behaviour.running == 1, what="the call is in progress")
        await server.stop()
        with pytest.raises(RpcError, match="is stopping") as caught:
            await call
        assert caught.value.code is StatusCode.UNAVAILABLE
        async with started(OurServer(Behaviour()), short_dir):
            await client.gets("READY")
            assert await client.unary(ECHO, b"on") == b"on"


async def test_a_stop_in_the_middle_of_a_message(short_dir: Path) -> None:
    """A client that has half a list when we stop learns that the server is gone, nothing worse."""
    server = OurServer(Behaviour())
    await server.start(short_dir / "s.sock")
    async with go_client(short_dir, max_receive=64 * MIB, window=2**16) as client:
        call = asyncio.create_task(client.unary(BIG, b"%d" % (50 * MIB)), name="big answer")
        (link,) = server.server._links
        await until(lambda: any(each.is_partly_sent for each in link.calls), what="half an answer")
        await server.stop()
        with pytest.raises(RpcError) as caught:
            await call
        assert caught.value.code is StatusCode.UNAVAILABLE


async def test_a_dial_without_a_listener_times_out(short_dir: Path) -> None:
    """The Go client's own dial gives up after its time: what a kubelet answers Register with."""
    with pytest.raises(Exception, match="context deadline exceeded"):
        await GoClient.dial(short_dir / "s.sock", timeout=0.2)


# ---------------------------------------------------------------- our node's other sockets


async def test_podresources_for_monitoring_agents(short_dir: Path) -> None:
    """Agents on grpc-go get what our own client gets."""
    methods = ["/v1.PodResourcesLister/List", "/v1.PodResourcesLister/GetAllocatableResources"]
    async with DeviceManager(short_dir / "p") as manager:
        server = PodResourcesServer(manager, short_dir / "s.sock")
        await server.start()
        async with dialled(short_dir) as ours, go_client(short_dir) as theirs:
            for method in methods:
                expected = await ours.unary(method, b"", timeout=5)
                assert await theirs.unary(method, b"") == expected
            with pytest.raises(RpcError, match="not found"):
                await theirs.unary("/v1.PodResourcesLister/Get", b"\x0a\x04nope")
        await server.stop()
