"""One connected plugin: its calls have deadlines, its lists arrive, its end is noticed."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from kubedevices.errors import (
    DialPluginFailed,
    EndpointStopped,
    NoContainerResponse,
    PluginOptionsFailed,
    PreferredAllocationFailed,
    PreStartFailed,
    RpcError,
    StatusCode,
)
from kubedevices.kubelet_api import device_lists
from kubedevices.node.arrival import endpoint as endpoint_module
from kubedevices.node.arrival.endpoint import RECEIVE_LIMIT, Endpoint, PluginTimeouts
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.values.allocation import (
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
)
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.golden_data import load
from tests.waiting import until

MESSAGES = load("messages")
PATIENT = PluginTimeouts()
SHORT = PluginTimeouts(dial=0.3, preferred=0.05, allocate=0.05, pre_start=0.05)
"""For plugins that hang: a busy machine may need longer for those that answer."""


class Recorder:
    """An `EndpointListener` that records its calls."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.ends: list[str] = []
        self.wants_more = True
        self.is_new = True

    async def list_received(
        self,
        endpoint: Endpoint,
        devices: tuple[ReportedDevice, ...],
        slices: LoopSlices,
        message: bytes,
    ) -> bool:
        self.lists.append([device.id for device in devices])
        return self.is_new

    def stream_ended(self, endpoint: Endpoint, reason: str) -> bool:
        self.ends.append(reason)
        return self.wants_more


@asynccontextmanager
async def connected(
    plugin: FakePlugin, timeouts: PluginTimeouts = PATIENT, *, receive_limit: int = RECEIVE_LIMIT
) -> AsyncIterator[Endpoint]:
    async with plugin:
        endpoint = Endpoint(RESOURCE, plugin.socket, timeouts=timeouts, receive_limit=receive_limit)
        await endpoint.connect()
        try:
            yield endpoint
        finally:
            await endpoint.close()


@contextmanager
def following(endpoint: Endpoint, *, reopen_for: float = 0) -> Iterator[Recorder]:
    recorder = Recorder()
    task = asyncio.ensure_future(endpoint.follow(recorder, reopen_for=reopen_for))
    try:
        yield recorder
    finally:
        task.cancel()


# ---------------------------------------------------------------- calls


async def test_allocate_returns_the_answer_of_the_plugin(short_dir: Path) -> None:
    """One request for one container. The first element of the answer is returned unchanged."""
    async with connected(FakePlugin(short_dir)) as endpoint:
        answer = await endpoint.allocate(("a", "b"))
        assert answer.env == {"IDS": "a,b"}
        assert [spec.host_path for spec in answer.devices] == ["/dev/a", "/dev/b"]


async def test_an_answer_without_containers_is_an_error(short_dir: Path) -> None:
    """The plugin answers OK with an empty list."""
    plugin = FakePlugin(short_dir)
    plugin.allocate_answer = lambda _: AllocateResponse()
    async with connected(plugin) as endpoint:
        with pytest.raises(NoContainerResponse) as error:
            await endpoint.allocate(("a",))
    assert str(error.value).startswith(MESSAGES["prefixes"][4])


async def test_only_the_first_of_several_container_answers_is_used(short_dir: Path) -> None:
    """Some plugins always answer for a fixed number of containers."""
    plugin = FakePlugin(short_dir)
    plugin.allocate_answer = lambda _: AllocateResponse(
        [ContainerAllocateResponse(env={"N": n}) for n in ("1", "2")]
    )
    async with connected(plugin) as endpoint:
        assert (await endpoint.allocate(("a",))).env == {"N": "1"}


async def test_a_hanging_allocate_ends_at_its_deadline(short_dir: Path) -> None:
    """A kubelet waits without a limit, and every other pod waits too."""
    plugin = FakePlugin(short_dir)
    plugin.hang("allocate")
    async with connected(plugin, SHORT) as endpoint:
        with pytest.raises(RpcError) as error:
            await endpoint.allocate(("a",))
        assert error.value.code is StatusCode.DEADLINE_EXCEEDED


async def test_a_preference_is_returned_unchanged(short_dir: Path) -> None:
    """The allocator checks the preference, not the endpoint."""
    plugin = FakePlugin(short_dir, preferred=lambda _: ["z", "z", "y"])
    async with connected(plugin) as endpoint:
        request = ContainerPreferredRequest(("a", "b"), ("a",), 2)
        assert await endpoint.get_preferred_allocation(request) == ("z", "z", "y")
        assert plugin.preferred_requests == [request]


async def test_a_lost_connection_during_the_options_call_is_an_error_at_once(
    short_dir: Path,
) -> None:
    """The node does not dial a plugin again that ends during GetDevicePluginOptions."""
    patient = PluginTimeouts(dial=60, options=60)
    async with FakePlugin(short_dir) as plugin, asyncio.timeout(20):
        plugin.hang("options")
        connecting = asyncio.create_task(
            Endpoint(RESOURCE, plugin.socket, timeouts=patient).connect()
        )
        await until(lambda: plugin.options_asked == 1)
        for link in list(plugin._server._links):
            link.abort()
        with pytest.raises(PluginOptionsFailed, match="the connection was lost"):
            await connecting


async def test_a_plugin_without_the_preference_option_is_not_called(short_dir: Path) -> None:
    """The preference is empty."""
    plugin = FakePlugin(short_dir)
    async with connected(plugin) as endpoint:
        request = ContainerPreferredRequest(("a",), (), 1)
        assert await endpoint.get_preferred_allocation(request) == ()
    assert plugin.preferred_requests == []


@pytest.mark.parametrize("misbehaviour", ["error", "hang"])
@pytest.mark.parametrize(
    ("method", "failure", "prefix"),
    [("preferred", PreferredAllocationFailed, 0), ("pre_start", PreStartFailed, 1)],
)
async def test_a_failing_call_has_the_kubelets_words(
    short_dir: Path, method: str, failure: type[Exception], prefix: int, misbehaviour: str
) -> None:
    """Errors and missed deadlines have the same beginning."""
    plugin = FakePlugin(short_dir, preferred=lambda _: [], pre_start=True)
    if misbehaviour == "hang":
        plugin.hang(method)
    else:
        plugin.errors[method] = RpcError(StatusCode.INTERNAL, "no idea")
    async with connected(plugin, SHORT if misbehaviour == "hang" else PATIENT) as endpoint:
        call: Awaitable[object]
        if method == "preferred":
            call = endpoint.get_preferred_allocation(ContainerPreferredRequest(("a",), (), 1))
        else:
            call = endpoint.pre_start_container(("a",))
        with pytest.raises(failure) as error:
            await call
    assert str(error.value).startswith(MESSAGES["prefixes"][prefix])
    assert plugin.pre_starts == [("a",)] * (method == "pre_start")


async def test_a_stopped_endpoint_refuses_every_call(short_dir: Path) -> None:
    """No call is sent. The text has the kubelet's beginning and end."""
    plugin = FakePlugin(short_dir)
    async with connected(plugin) as endpoint:
        await endpoint.close()
        with pytest.raises(EndpointStopped) as error:
            await endpoint.allocate(("a",))
    golden = MESSAGES["stopped_endpoint"]
    assert str(error.value).startswith(golden["prefix"])
    assert str(error.value).endswith(golden["suffix"])
    assert plugin.allocations == []


async def test_a_call_ends_at_once_when_the_connection_is_lost(short_dir: Path) -> None:
    """The call does not wait for its deadline."""
    plugin = FakePlugin(short_dir)
    plugin.hang("allocate")
    async with connected(plugin) as endpoint:
        call = asyncio.ensure_future(endpoint.allocate(("a",)))
        await until(lambda: plugin.allocations)
        await plugin.stop()
        with pytest.raises(RpcError):
            await asyncio.wait_for(call, 5)


async def test_a_refused_dial_is_an_error_after_the_deadline(short_dir: Path) -> None:
    """The node repeats a refused dial until the deadline."""
    with pytest.raises(DialPluginFailed, match="context deadline exceeded"):
        await Endpoint(RESOURCE, short_dir / "none.sock", timeouts=SHORT).connect()


async def test_close_waits_for_calls_in_flight(short_dir: Path) -> None:
    """If a newer instance replaces the endpoint during an Allocate call, the answer still
    counts.
    """
    plugin = FakePlugin(short_dir)
    gate = plugin.hang("allocate")
    async with connected(plugin) as endpoint:
        call = asyncio.ensure_future(endpoint.allocate(("a",)))
        await until(lambda: plugin.allocations)
        closing = asyncio.ensure_future(endpoint.close(grace=5))
        gate.set()
        assert (await call).env == {"IDS": "a"}
        await closing


async def test_close_waits_only_for_its_grace_period(short_dir: Path) -> None:
    """After the grace period the connection is closed, and calls in flight fail."""
    plugin = FakePlugin(short_dir)
    plugin.hang("allocate")
    async with connected(plugin) as endpoint:
        call = asyncio.ensure_future(endpoint.allocate(("a",)))
        await until(lambda: plugin.allocations)
        await endpoint.close(grace=0.05)
        with pytest.raises(RpcError):
            await call


# ---------------------------------------------------------------- the stream


async def test_each_list_causes_one_callback(short_dir: Path) -> None:
    """The first list and each update."""
    plugin = FakePlugin(short_dir, devices=healthy("a", "b", "c"))
    async with connected(plugin) as endpoint:
        with following(endpoint) as seen:
            await until(lambda: len(seen.lists) == 1)
            await plugin.send(healthy("a", "d"))
            await until(lambda: len(seen.lists) == 2)
            assert seen.lists == [["a", "b", "c"], ["a", "d"]]
            assert seen.ends == []


@pytest.mark.parametrize("error", [None, RpcError(StatusCode.INTERNAL, "boom")])
async def test_the_end_of_the_stream_stops_the_endpoint(
    short_dir: Path, error: RpcError | None
) -> None:
    """A normal end and an error have the same effect.

    Without `reopen_for` there is no second ListAndWatch.
    """
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with connected(plugin) as endpoint:
        with following(endpoint) as seen:
            await until(lambda: seen.lists)
            await plugin.end_streams(error)
            await until(lambda: seen.ends)
            assert seen.ends == ["boom" if error else "the plugin ended the stream"]
            assert endpoint.is_stopped
            assert plugin.streams_opened == 1


async def test_a_lost_stream_is_opened_again_on_its_connection(short_dir: Path) -> None:
    """The connection is still open, so a new ListAndWatch call is enough."""
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with connected(plugin) as endpoint:
        with following(endpoint, reopen_for=10) as seen:
            await until(lambda: seen.lists)
            await plugin.end_streams()
            await until(lambda: len(seen.lists) == 2)
            assert len(seen.ends) == 1
            assert not endpoint.is_stopped
            assert (await endpoint.allocate(("a",))).env == {"IDS": "a"}
            assert plugin.streams_opened == 2


async def test_the_stream_of_a_replaced_endpoint_is_not_opened_again(short_dir: Path) -> None:
    """`stream_ended` of the listener returns False."""
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with connected(plugin) as endpoint:
        recorder = Recorder()
        recorder.wants_more = False
        task = asyncio.ensure_future(endpoint.follow(recorder, reopen_for=10))
        await until(lambda: recorder.lists)
        await plugin.end_streams()
        await asyncio.wait_for(task, 5)
        assert plugin.streams_opened == 1


async def test_a_lost_connection_is_dialled_again_while_the_socket_is_the_same(
    short_dir: Path,
) -> None:
    """A plugin that closed its connections but kept its socket never registers again."""
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with connected(plugin) as endpoint:
        with following(endpoint, reopen_for=10) as seen:
            await until(lambda: seen.lists)
            assert endpoint._channel is not None
            await endpoint._channel.close()
            await until(lambda: len(seen.lists) == 2)
            assert plugin.options_asked == 2
            assert len(seen.ends) == 1


async def test_a_new_socket_at_the_same_path_is_not_dialled(short_dir: Path) -> None:
    """The new socket may serve another resource: its plugin has to register."""
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with connected(plugin) as endpoint:
        recorder = Recorder()
        task = asyncio.ensure_future(endpoint.follow(recorder, reopen_for=60))
        await until(lambda: recorder.lists)
        plugin.socket.rename(short_dir / "moved.sock")
        async with FakePlugin(short_dir, devices=healthy("other")) as other:
            await plugin.stop()
            await asyncio.wait_for(task, 5)
            assert recorder.lists == [["a"]]
            assert other.streams_opened == 0


async def test_a_stream_that_ends_twice_is_not_opened_again(short_dir: Path) -> None:
    """Otherwise the devices of a plugin that ends each stream after a list would come and go for
    minutes.
    """
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with connected(plugin) as endpoint:
        recorder = Recorder()
        task = asyncio.ensure_future(endpoint.follow(recorder, reopen_for=300))
        for number in (1, 2):
            await until(lambda number=number: len(recorder.lists) == number)  # type: ignore[misc]
            await plugin.end_streams()
        await asyncio.wait_for(task, 20)
        assert (recorder.lists, len(recorder.ends)) == ([["a"], ["a"]], 2)
        assert endpoint.is_stopped
        assert plugin.streams_opened == 2


async def test_a_stream_that_fails_at_once_is_opened_once_more(short_dir: Path) -> None:
    """The listener is called for one end only."""
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with connected(plugin) as endpoint:
        recorder = Recorder()
        task = asyncio.ensure_future(endpoint.follow(recorder, reopen_for=300))
        await until(lambda: recorder.lists)
        plugin.errors["list"] = RpcError(StatusCode.INTERNAL, "broken")
        await plugin.end_streams()
        await asyncio.wait_for(task, 20)
        assert recorder.lists == [["a"]]
        assert len(recorder.ends) == 1
        assert plugin.streams_opened == 2


async def test_a_list_beyond_the_limit_ends_the_stream_and_is_logged(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message names the resource and the limit."""
    plugin = FakePlugin(short_dir, devices=healthy(*(f"device-{n}" for n in range(100))))
    async with connected(plugin, receive_limit=500) as endpoint:
        with following(endpoint) as seen:
            await until(lambda: seen.ends)
    assert seen.lists == []
    assert f"{RESOURCE}: the device list was refused (the limit is 500 bytes)" in caplog.text


async def test_an_invalid_list_ends_the_stream(short_dir: Path) -> None:
    """Bytes that are no ListAndWatchResponse stop the endpoint. No error is raised."""
    plugin = FakePlugin(short_dir, devices=healthy("a"))
    async with connected(plugin) as endpoint:
        with following(endpoint) as seen:
            await until(lambda: seen.lists)
            await plugin.send_bytes(b"\xff\xff\xff\xff garbage")
            await until(lambda: seen.ends)
            assert endpoint.is_stopped


async def test_a_flood_of_lists_does_not_block_the_loop(short_dir: Path) -> None:
    """A plugin sends changed lists without a pause: the node reads them, and other work goes on."""
    devices = healthy(*(f"device-{n}" for n in range(500)))
    plugin = FakePlugin(short_dir, devices=devices)

    async def flood() -> None:
        while True:
            devices.reverse()
            await plugin.send(devices)
            await asyncio.sleep(0)

    async with connected(plugin) as endpoint:
        with following(endpoint) as seen:
            flooding = asyncio.create_task(flood())
            await until(lambda: len(seen.lists) > 20)
            before = len(seen.lists)
            for _ in range(10):
                await asyncio.wait_for(endpoint.allocate(("a",)), 5)
            await until(lambda: len(seen.lists) > before)
            flooding.cancel()


class EndpointWithoutPauses(Endpoint):
    """Records its pauses instead of waiting."""

    pauses: ClassVar[list[float]]

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let every slice of work take a second, and all other work no time."""
    seconds = itertools.count()
    slices = partial(LoopSlices, clock=lambda: float(next(seconds)))
    monkeypatch.setattr(endpoint_module, "LoopSlices", slices)
    monkeypatch.setattr(endpoint_module, "_READING_A_BYTE", 0.0)
    EndpointWithoutPauses.pauses = []
    return EndpointWithoutPauses.pauses


async def test_an_identical_list_is_not_decoded_again(
    short_dir: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin repeats the same bytes: the node compares them with the last list and pauses."""
    monkeypatch.setattr(endpoint_module, "LoopSlices", partial(LoopSlices, clock=lambda: 0.0))
    plugin = FakePlugin(short_dir, devices=healthy("x" * 10_000))
    async with plugin:
        endpoint = EndpointWithoutPauses(RESOURCE, plugin.socket)
        await endpoint.connect()
        with following(endpoint) as seen:
            await until(lambda: pauses)
            monkeypatch.setattr(device_lists, "_read_block", None)
            await plugin.flood()
            await until(lambda: len(pauses) > 10, 60)
            assert len(seen.lists) == 1
            assert set(pauses[1:]) == {0.02}
        await endpoint.close()


async def test_the_pause_after_a_list_is_proportional_to_its_cost(
    short_dir: Path, pauses: list[float]
) -> None:
    """The pause has no upper bound: three quarters of the time are for other work."""
    devices = healthy(*(f"device-{n}" for n in range(5000)))
    plugin = FakePlugin(short_dir, devices=devices)
    async with plugin:
        endpoint = EndpointWithoutPauses(RESOURCE, plugin.socket)
        await endpoint.connect()
        with following(endpoint):
            await until(lambda: pauses)
            slices = len(devices) / device_lists.DEVICES_AT_ONCE
            assert 3 * slices <= pauses[0] <= 3 * (slices + 2)
        await endpoint.close()


def test_the_repr_of_an_endpoint_names_its_instance() -> None:
    """The text has one line, for logs and failing assertions."""
    endpoint = Endpoint(RESOURCE, Path("/p/widget.sock"))
    endpoint.generation = 3
    assert repr(endpoint) == f"<Endpoint {RESOURCE} at /p/widget.sock #3 connected>"
