"""One server stays registered: the kubelet restarts, sockets vanish, streams end."""

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable

import pytest

from kubedevices.errors import RpcError, SocketInUse, StatusCode
from kubedevices.plugin.timing import Timing
from kubedevices.values.allocation import PluginOptions
from tests.fake_kubelet import FakeKubelet
from tests.registrar_rig import NAME, registrar
from tests.socket_metadata import change_everything
from tests.waiting import until
from tests.widgets import QUICK, RESOURCE, widgets

BLIND = QUICK._replace(look_interval=60)
"""With `use_events=False`: nothing tells of a file, so the checks of the moment must do."""


# ---------------------------------------------------------------- the kubelet restarts


@pytest.mark.parametrize("use_events", [True, False], ids=["events", "looks"])
@pytest.mark.parametrize("wipe", [True, False], ids=["wiped", "kept"])
async def test_the_registrar_registers_at_a_new_kubelet(
    kubelet: FakeKubelet, wipe: bool, use_events: bool
) -> None:
    """Whether the directory is wiped or not, by events or by looks alone."""
    timing = QUICK._replace(look_interval=60 if use_events else 0.05, again_soon=60, again_first=60)
    async with registrar(kubelet.socket_dir, timing=timing, use_events=use_events) as rig:
        for count in range(2, 6):
            await kubelet.wait_for(RESOURCE, 1)
            before = rig.socket.stat().st_ino, rig.socket.stat().st_ctime_ns
            await kubelet.restart(wipe=wipe)
            await until(lambda n=count: len(kubelet.accepted) == n)  # type: ignore[misc]
            after = rig.socket.stat().st_ino, rig.socket.stat().st_ctime_ns
            assert (before == after) is not wipe
        await kubelet.wait_for(RESOURCE, 1)


async def test_the_plugin_registers_when_only_kubelet_sock_is_replaced(
    kubelet: FakeKubelet,
) -> None:
    """Our socket and the old stream stay as they are, beside the new registration."""
    timing = QUICK._replace(look_interval=60)
    async with registrar(kubelet.socket_dir, timing=timing) as rig:
        await kubelet.wait_for(RESOURCE, 1)
        inode = rig.socket.stat().st_ino
        await kubelet.replace_socket()
        await until(lambda: len(kubelet.connected(RESOURCE)) == 2)
        assert rig.socket.stat().st_ino == inode
        await kubelet.wait_for(RESOURCE, 1)
        rig.publish(*widgets("w1", "w2"))
        await until(lambda: all(len(each.lists) == 2 for each in kubelet.accepted))


@pytest.mark.parametrize("name", ["kubelet.sock", NAME])
async def test_a_socket_with_new_metadata_is_the_same_socket(
    kubelet: FakeKubelet, name: str
) -> None:
    """chmod, chown and a relabelling of either socket end no stream and register nothing."""
    async with registrar(kubelet.socket_dir) as rig:
        session = await kubelet.wait_for(RESOURCE, 1)
        with rig.watch.subscribe(kubelet.socket_dir / name) as seen:
            change_everything(kubelet.socket_dir / name)
            await asyncio.wait_for(seen.changed(), 10)  # and so has the registrar
        rig.publish(*widgets("w1", "w2"))
        assert await kubelet.wait_for(RESOURCE, 2) is session
        assert len(kubelet.requests) == 1
        assert rig.registrar.is_registered


async def test_the_end_of_an_old_stream_causes_no_registration(kubelet: FakeKubelet) -> None:
    """After make-before-break the old kubelet's stream may end when it likes."""
    async with registrar(kubelet.socket_dir) as rig:
        old = await kubelet.wait_for(RESOURCE, 1)
        await kubelet.replace_socket()
        await until(lambda: len(kubelet.connected(RESOURCE)) == 2)
        assert old.task is not None
        old.task.cancel()
        await until(lambda: len(rig.server.streams) == 1)
        rig.publish(*widgets("w1", "w2"))
        await kubelet.wait_for(RESOURCE, 2)
        await asyncio.sleep(4 * QUICK.again_soon)
        assert len(kubelet.requests) == 2
        await until(lambda: rig.registrar.is_registered)


async def test_an_old_stream_does_not_hide_the_loss_of_the_new_one(kubelet: FakeKubelet) -> None:
    """A stream of an earlier kubelet that hangs on does not count for the registration of now."""
    async with registrar(kubelet.socket_dir):
        await kubelet.wait_for(RESOURCE, 1)
        await kubelet.replace_socket()
        await until(lambda: len(kubelet.connected(RESOURCE)) == 2)
        newest = kubelet.accepted[-1]
        assert newest.task is not None
        newest.task.cancel()
        await kubelet.wait_requests(3)
        await until(lambda: len(kubelet.connected(RESOURCE)) == 2)


async def test_a_deleted_socket_is_bound_again(kubelet: FakeKubelet) -> None:
    """The socket is bound again and registered again at once; old streams have ended."""
    timing = QUICK._replace(look_interval=60)
    async with registrar(kubelet.socket_dir, timing=timing) as rig:
        old = await kubelet.wait_for(RESOURCE, 1)
        rig.socket.unlink()
        await until(lambda: len(kubelet.accepted) == 2)
        await until(lambda: not old.is_open)
        await kubelet.wait_for(RESOURCE, 1)


async def test_a_renamed_socket_is_bound_again(kubelet: FakeKubelet) -> None:
    """A socket with another name counts as lost."""
    async with registrar(kubelet.socket_dir) as rig:
        await kubelet.wait_for(RESOURCE, 1)
        rig.socket.rename(kubelet.socket_dir / "other.sock")
        await until(lambda: len(kubelet.accepted) == 2)
        assert rig.socket.is_socket()


async def test_a_socket_path_taken_by_another_process_is_an_error(kubelet: FakeKubelet) -> None:
    """If another process listens at our path, this is an error, and its socket stays."""
    async with registrar(kubelet.socket_dir) as rig:
        await kubelet.wait_for(RESOURCE, 1)
        with socket.socket(socket.AF_UNIX) as rude:
            rude.bind(str(kubelet.socket_dir / "theirs"))
            rude.listen()
            (kubelet.socket_dir / "theirs").rename(rig.socket)
            with pytest.raises(SocketInUse):
                await rig.ended()
            assert rig.socket.is_socket()


async def test_a_socket_deleted_again_and_again_is_bound_with_growing_pauses(
    kubelet: FakeKubelet,
) -> None:
    """Bound again at once the first time, then with growing pauses; a new kubelet ends them."""
    timing = QUICK._replace(rebind_first=60, rebind_last=60)
    async with registrar(kubelet.socket_dir, timing=timing) as rig:
        await until(lambda: rig.registrar.is_registered)
        rig.socket.unlink()
        await until(lambda: len(kubelet.accepted) == 2)
        await until(lambda: rig.registrar.is_registered)
        rig.socket.unlink()
        await until(lambda: not rig.registrar.is_registered)
        await asyncio.sleep(0.1)
        assert not rig.socket.exists()
        await kubelet.restart()
        await kubelet.wait_for(RESOURCE, 1)


async def test_a_socket_that_lasted_is_bound_again_at_once(kubelet: FakeKubelet) -> None:
    """Losses that lie far apart are no fight about the path."""
    timing = QUICK._replace(rebind_first=60, rebind_last=60, socket_lasted=0.1)
    async with registrar(kubelet.socket_dir, timing=timing) as rig:
        for count in range(1, 5):
            await until(lambda n=count: len(kubelet.accepted) == n)  # type: ignore[misc]
            await asyncio.sleep(2 * timing.socket_lasted)
            rig.socket.unlink()


def once(action: Callable[[], object]) -> Callable[[], object]:
    """Do it the first time and nothing after that."""
    pending = [action]

    def call() -> None:
        while pending:
            pending.pop()()

    return call


async def test_the_socket_wiped_between_bind_and_register(kubelet: FakeKubelet) -> None:
    """A kubelet that starts meanwhile deletes it, and would dial for ten seconds."""
    timing = QUICK._replace(look_interval=60)
    kubelet.register_gate = asyncio.Event()
    async with registrar(kubelet.socket_dir, timing=timing) as rig:
        await kubelet.wait_requests(1)
        assert kubelet.accepted == []
        kubelet.wipe_plugins()
        kubelet.register_gate.set()
        await kubelet.wait_for(RESOURCE, 1, timeout=5)
        assert rig.registrar.is_serving
        assert len(kubelet.requests) >= 2


async def test_a_socket_that_came_and_went_between_two_looks(kubelet: FakeKubelet) -> None:
    """Without file events, the look before the bind and the one after the loss see the same."""
    kubelet.register_gate = asyncio.Event()
    async with registrar(kubelet.socket_dir, timing=BLIND, use_events=False) as rig:
        await kubelet.wait_requests(1)
        rig.socket.unlink()
        rig.watch._look()
        await kubelet.wait_requests(2, timeout=5)


async def test_a_socket_lost_during_register_is_registered_again(kubelet: FakeKubelet) -> None:
    """Even when Register succeeds, a socket lost meanwhile is bound and registered again."""

    def wipe() -> None:
        kubelet.wipe_plugins()
        kubelet.open_streams = True

    kubelet.open_streams = False  # or the stream would be the first to tell
    kubelet.after_accept = once(wipe)
    async with registrar(kubelet.socket_dir, timing=BLIND, use_events=False) as rig:
        await until(lambda: rig.registrar.is_registered)
        await kubelet.wait_for(RESOURCE, 1)
        assert len(kubelet.accepted) == 2
        assert rig.server.counts["registrations"] == 1


async def test_a_refusal_for_a_socket_that_is_gone_is_not_final(kubelet: FakeKubelet) -> None:
    """The error a kubelet gives because our socket was wiped is no refusal."""

    def wipe_first() -> None:
        is_first = len(kubelet.requests) == 1
        kubelet.dial_timeout = 0.0 if is_first else 10.0
        if is_first:
            kubelet.wipe_plugins()

    kubelet.before_dial = wipe_first
    async with registrar(kubelet.socket_dir, timing=BLIND, use_events=False) as rig:
        await until(lambda: rig.registrar.is_registered)
        await kubelet.wait_for(RESOURCE, 1)
        assert rig.server.counts["failed_registrations"] == 0


REFUSAL = RpcError(StatusCode.UNKNOWN, "the ResourceName is invalid")


async def test_a_refusal_from_before_our_socket_was_wiped_is_not_final(
    kubelet: FakeKubelet,
) -> None:
    """Whatever its words are: it was not about the socket that we bind now."""

    def wipe_and_refuse() -> None:
        kubelet.wipe_plugins()
        raise REFUSAL

    kubelet.before_dial = once(wipe_and_refuse)
    async with registrar(kubelet.socket_dir, timing=BLIND, use_events=False) as rig:
        await until(lambda: rig.registrar.is_registered or rig.ended_early)
        await kubelet.wait_for(RESOURCE, 1)
        counts = rig.server.counts
        assert (counts["failed_registrations"], counts["kubelet_away"]) == (0, 1)


async def test_a_refusal_of_a_kubelet_that_was_replaced_is_not_final(kubelet: FakeKubelet) -> None:
    """The next one is asked: it may be another version."""
    successor = FakeKubelet(kubelet.socket_dir)
    successor.socket = kubelet.socket_dir / "successor"
    await successor.start(wipe=False)

    def replace_and_refuse() -> None:
        successor.socket.replace(kubelet.socket)
        raise REFUSAL

    kubelet.before_dial = replace_and_refuse
    async with registrar(kubelet.socket_dir, timing=BLIND, use_events=False) as rig:
        await until(lambda: rig.registrar.is_registered or rig.ended_early)
        await successor.wait_for(RESOURCE, 1)
        assert (len(kubelet.requests), len(successor.requests)) == (1, 1)
    await successor.stop()


# ---------------------------------------------------------------- the stream


async def test_a_cancelled_stream_is_registered_again_soon(kubelet: FakeKubelet) -> None:
    """The kubelet cancels ListAndWatch and keeps answering: with real waiting times, 0.2 s."""
    loop = asyncio.get_running_loop()
    async with registrar(kubelet.socket_dir, timing=Timing()) as rig:
        await kubelet.wait_for(RESOURCE, 1)
        lost_at = loop.time()
        await kubelet.cancel_streams()
        await until(lambda: not rig.registrar.is_registered)
        await kubelet.wait_for(RESOURCE, 1)
        assert loop.time() - lost_at < 5  # every other pause is 10 s
        assert len(kubelet.requests) == 2


async def test_streams_that_keep_ending_cause_growing_pauses(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """From the second loss on the pauses grow, and the log names the likely reason."""
    soon = QUICK.again_soon
    async with registrar(kubelet.socket_dir):
        for count in range(1, 5):
            await until(lambda n=count: len(kubelet.accepted) == n)  # type: ignore[misc]
            await kubelet.wait_for(RESOURCE, 1)
            await kubelet.cancel_streams()
        await kubelet.wait_for(RESOURCE, 1)
        times = kubelet.request_times
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert pauses[1] >= 8 * soon
        assert pauses[2] >= QUICK.again_last
    assert "another plugin may own the resource name" in caplog.text


async def test_a_new_kubelet_forgets_the_losses(kubelet: FakeKubelet) -> None:
    """However often streams ended before, a new kubelet.sock is registered at once."""
    timing = QUICK._replace(again_first=60, again_last=60)
    async with registrar(kubelet.socket_dir, timing=timing):
        for count in (1, 2):
            await until(lambda n=count: len(kubelet.accepted) == n)  # type: ignore[misc]
            await kubelet.wait_for(RESOURCE, 1)
            await kubelet.cancel_streams()
        await kubelet.restart()
        await kubelet.wait_for(RESOURCE, 1)
        await kubelet.cancel_streams()
        await kubelet.wait_for(RESOURCE, 1)


async def test_a_kubelet_that_never_opens_the_stream(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a stream it registers again, each time later, and says what may be wrong."""
    caplog.set_level(logging.WARNING)
    kubelet.open_streams = False
    async with registrar(kubelet.socket_dir) as rig:
        await kubelet.wait_requests(1)
        assert rig.registrar.is_serving
        await kubelet.wait_requests(3)
        times = kubelet.request_times
        assert times[1] - times[0] >= QUICK.again_first
        assert times[2] - times[1] >= 2 * QUICK.again_first
        assert "does not ask for the devices" in caplog.text
        kubelet.open_streams = True
        await kubelet.wait_for(RESOURCE, 1)


async def test_a_stream_opened_late_ends_the_wait(kubelet: FakeKubelet) -> None:
    """If a kubelet opens its stream late, the plugin does not register again."""
    timing = QUICK._replace(again_first=2)
    kubelet.open_streams = False
    async with registrar(kubelet.socket_dir, timing=timing) as rig:
        await until(lambda: kubelet.accepted)
        await asyncio.sleep(0.1)
        kubelet.watch(kubelet.accepted[0])
        await kubelet.wait_for(RESOURCE, 1)
        await asyncio.sleep(timing.again_first)
        assert len(kubelet.requests) == 1
        await until(lambda: rig.registrar.is_registered)


async def test_running_calls_may_finish_when_the_plugin_stops(kubelet: FakeKubelet) -> None:
    """Cancelled while an Allocate runs, it answers that call and ends the streams at once."""
    began, may_go_on = asyncio.Event(), asyncio.Event()

    async with registrar(kubelet.socket_dir) as rig:
        connected = await kubelet.wait_for(RESOURCE, 1)

        async def slow() -> PluginOptions:
            began.set()
            await may_go_on.wait()
            return PluginOptions(pre_start_required=True)

        rig.server.get_device_plugin_options = slow  # type: ignore[method-assign]
        call = asyncio.create_task(connected.client.get_device_plugin_options(timeout=5))
        await began.wait()
        assert rig.task is not None
        rig.task.cancel()
        await until(lambda: not connected.is_open)
        await asyncio.sleep(0.1)
        assert not call.done()
        assert not rig.task.done()
        may_go_on.set()
        assert await call == PluginOptions(pre_start_required=True)
        await asyncio.wait({rig.task}, timeout=10)
        assert rig.task.cancelled()
