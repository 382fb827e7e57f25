"""Two instances serve one resource: the newer takes over without a gap, the older stands by."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.clients import JsonClient
from kubedevices.kubelet_api.services import json_methods
from kubedevices.plugin import newer_instance
from kubedevices.plugin.newer_instance import kubelet_lists
from kubedevices.plugin.other_instances import SERVICE
from kubedevices.plugin.runner import PluginRunner
from kubedevices.serving.modes import serve
from kubedevices.values.socket_paths import InstanceSocket, instance_of, instance_socket
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.fake_kubelet import CleanUp, FakeKubelet, leave_dead_socket
from tests.plugin_process import plugin_process
from tests.registrar_rig import registrar
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, healthy, widgets

STUCK = QUICK._replace(again_soon=60, again_first=60, newer_instance_timeout=60, instance_ping=60)
"""With these times nothing happens by waiting: only calls between instances have an effect."""


def instance(directory: Path, *ids: str, **options: Any) -> Any:
    """Serve widgets with these IDs."""
    options = {"timing": STUCK, **options}
    return serve(Widgets(widget=widgets(*ids)), domain=DOMAIN, socket_dir=directory, **options)


def stands_by(runner: PluginRunner) -> bool:
    return runner.is_serving("widget") and not runner.is_registered("widget")


def socket_of(runner: PluginRunner) -> Path:
    return runner.settings.socket_of(RESOURCE, "widget")


@pytest.mark.parametrize("clean_up", ["", "by name", "by socket"])
async def test_a_newer_instance_takes_over_without_a_gap(
    short_dir: Path, clean_up: CleanUp
) -> None:
    """Whomever a kubelet disconnects when the older one's stream ends, devices never vanish."""
    async with FakeKubelet(short_dir) as kubelet:
        kubelet.clean_up = clean_up
        async with instance(short_dir, "old") as old:
            await kubelet.wait_for(RESOURCE, healthy("old"))
            async with instance(short_dir, "new") as new:
                await until(lambda: stands_by(old) and new.is_ready)
                await until(lambda: not old.servers["widget"].streams)
                old.stop()
                await until(lambda: not old.is_serving("widget"))
                await kubelet.wait_for(RESOURCE, healthy("new"))
                assert kubelet.disconnected == []
                newest = kubelet.connected(RESOURCE)[-1]
                assert newest.endpoint == socket_of(new).name
                if clean_up == "by name":  # or its end would not be noticed
                    assert kubelet._clients[RESOURCE, ""] is newest
    if clean_up:
        assert kubelet.disconnected == [RESOURCE], "the end of the last one is noticed"


async def test_a_busy_kubelet_sees_the_end_of_the_older_instance_first(
    kubelet: FakeKubelet,
) -> None:
    """Else the end of the older one's stream would end the newer one's second registration."""
    timing = STUCK._replace(after_leave=2.5)
    kubelet.clean_up, kubelet.clean_up_after = "by name", 0.05
    async with instance(kubelet.socket_dir, "old", timing=timing) as old:
        await kubelet.wait_for(RESOURCE, healthy("old"))
        async with instance(kubelet.socket_dir, "new", timing=timing) as new:
            await until(lambda: new.is_ready and not kubelet.accepted[0].is_open)
            assert kubelet.disconnected == []
            registered = [each.endpoint for each in kubelet.accepted]
            assert registered == [socket_of(each).name for each in (old, new, new)]
            kubelet.clean_up_after = 0


@pytest.mark.parametrize("clean_up", ["", "by name", "by socket"])
async def test_the_older_instance_serves_again_when_the_newer_ends(
    kubelet: FakeKubelet, clean_up: CleanUp
) -> None:
    """At once, as often as that happens: a new version may crash again and again."""
    async with instance(kubelet.socket_dir, "old") as old:
        kubelet.clean_up = clean_up
        await kubelet.wait_for(RESOURCE, healthy("old"))
        for _ in range(3):
            async with instance(kubelet.socket_dir, "new") as new:
                await until(lambda: stands_by(old) and new.is_ready)
                await kubelet.wait_for(RESOURCE, healthy("new"))
            await kubelet.wait_for(RESOURCE, healthy("old"))
            await until(lambda: old.is_ready)


async def test_the_newest_of_many_instances_has_the_resource(kubelet: FakeKubelet) -> None:
    """When it ends, the newest of the others."""
    async with contextlib.AsyncExitStack() as stack:
        kubelet.clean_up = "by name"
        runners = []
        for name in "abc":
            runners.append(await stack.enter_async_context(instance(kubelet.socket_dir, name)))
            await kubelet.wait_for(RESOURCE, healthy(name))
            await until(lambda: all(map(stands_by, runners[:-1])))
        for name in "cb":
            runners.pop().stop()
            await kubelet.wait_for(RESOURCE, healthy(chr(ord(name) - 1)))
            await until(lambda: runners[-1].is_ready and all(map(stands_by, runners[:-1])))


async def test_instances_that_start_at_once_do_not_fight(kubelet: FakeKubelet) -> None:
    """The order of their starts decides, not who registers last."""
    async with contextlib.AsyncExitStack() as stack:
        kubelet.one_per_resource = True
        timing = STUCK._replace(again_soon=0.001, newer_instance_timeout=1)
        every = [instance(kubelet.socket_dir, f"w{n}", timing=timing) for n in range(5)]
        runners = await asyncio.gather(*map(stack.enter_async_context, every))
        newest = max(runners, key=lambda runner: runner.settings.instance)
        others = [each for each in runners if each is not newest]
        await until(lambda: newest.is_ready and all(map(stands_by, others)))
        before = len(kubelet.requests)
        for runner in others:
            runner.stop()
        await until(lambda: not any(each.is_serving("widget") for each in others))
        assert newest.is_ready
        assert len(kubelet.requests) == before


async def test_a_stream_that_a_take_over_ends_is_left_to_the_newer(kubelet: FakeKubelet) -> None:
    """Our node, and kubelets before 1.24, hang up on the older one at once: it does not fight."""
    kubelet.one_per_resource = True
    timing = STUCK._replace(again_soon=0)
    async with (
        instance(kubelet.socket_dir, "old", timing=timing) as old,
        instance(kubelet.socket_dir, "new", timing=timing) as new,
    ):
        await until(lambda: stands_by(old) and new.is_ready)
        mine = [each for each in kubelet.requests if each.endpoint == socket_of(old).name]
        assert len(mine) <= 2, "the second one is how it leaves"


async def test_a_newer_instance_that_does_not_register_has_one_second(kubelet: FakeKubelet) -> None:
    """It has a second; then who lost the stream registers."""
    timing = STUCK._replace(again_soon=0.01, newer_instance_timeout=0.2)
    newer = instance_socket(kubelet.socket_dir, RESOURCE, instance_of(2**50)).name
    async with instance(kubelet.socket_dir, "old", timing=timing) as old:
        await kubelet.wait_for(RESOURCE, healthy("old"))
        async with registrar(kubelet.socket_dir, register=False, name=newer):
            await until(lambda: old_follows(old))
            await kubelet.cancel_streams()
            await kubelet.wait_for(RESOURCE, healthy("old"))
            assert [each.endpoint for each in kubelet.requests] == [socket_of(old).name] * 2


def old_follows(runner: PluginRunner) -> bool:
    registrar = runner._running["widget"].served.registrar
    return registrar is not None and registrar.other_instances.has_newer


async def test_another_plugin_with_the_resource_is_logged_as_a_warning(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """Two plugins with one resource are a mistake; two instances of one plugin are an upgrade."""
    caplog.set_level(logging.INFO)

    def warnings() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno > logging.INFO]

    async with instance(kubelet.socket_dir, "old") as old:
        await kubelet.wait_for(RESOURCE, healthy("old"))
        async with instance(kubelet.socket_dir, "new"):
            await until(lambda: stands_by(old))
            assert warnings() == []
        await until(lambda: old.is_ready)
        async with instance(kubelet.socket_dir, "new", socket_name=lambda _: "rival.sock"):
            await until(lambda: len(warnings()) == 2)
            assert "taking over from the instance at example.com-widget." in warnings()[0]
            assert "two plugins serve this resource, stop one of them" in warnings()[1]


async def test_an_upgrade_that_never_ends_is_logged(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """After a minute it is no upgrade any more, here after a moment."""
    timing = STUCK._replace(waiting_reminder=0.05)
    async with (
        instance(kubelet.socket_dir, "old", timing=timing),
        instance(kubelet.socket_dir, "new"),
    ):
        await kubelet.wait_for(RESOURCE, healthy("new"))
        await until(lambda: "two plugins serve this resource, stop one of them" in caplog.text)


async def test_both_instances_see_a_restart_of_the_kubelet(kubelet: FakeKubelet) -> None:
    """Both sockets are removed and bound again; at the end the newer instance has the resource."""
    timing = QUICK._replace(newer_instance_timeout=0.2)
    async with (
        instance(kubelet.socket_dir, "old", timing=timing) as old,
        instance(kubelet.socket_dir, "new", timing=timing) as new,
    ):
        kubelet.clean_up = "by name"
        for _ in range(5):
            await until(lambda: stands_by(old) and new.is_ready)
            await kubelet.restart()
            await kubelet.wait_for(RESOURCE, healthy("new"))
        await until(lambda: stands_by(old) and new.is_ready)


@pytest.mark.parametrize("clean_up", ["by name", "by socket"])
async def test_a_kubelet_that_opens_a_late_stream_to_the_older_instance(
    kubelet: FakeKubelet, clean_up: CleanUp
) -> None:
    """The kubelet goes on with an old Register call: the newer instance takes over again."""
    kubelet.clean_up = clean_up
    kubelet.goes_on = True
    kubelet.register_gate = gate = asyncio.Event()
    async with instance(kubelet.socket_dir, "old") as old:
        await kubelet.wait_requests(1)
        kubelet.register_gate = None
        async with instance(kubelet.socket_dir, "new") as new:
            await kubelet.wait_for(RESOURCE, healthy("new"))
            await until(lambda: stands_by(old) and new.is_ready)
            gate.set()
            await until(lambda: old.servers["widget"].counts["lists_sent"])
            await until(lambda: not old.servers["widget"].streams and new.is_ready)
            await kubelet.wait_for(RESOURCE, healthy("new"))
            assert kubelet.disconnected == []


# ---------------------------------------------------------------- what lies in the directory


def dead(path: Path, age: float = 3600) -> Path:
    leave_dead_socket(path)
    made = path.stat().st_mtime - age
    os.utime(path, (made, made))
    return path


@pytest.fixture
def stranger() -> Callable[[str], str]:
    """Return the name of another instance of the plugin, by stem."""
    return lambda stem: str(
        InstanceSocket.parse(
            instance_socket(Path("/d"), RESOURCE, instance_of(hash(stem) % 1000), stem).name
        )
    )


async def test_sockets_of_killed_instances_are_removed(
    short_dir: Path, kubelet: FakeKubelet, stranger: Callable[[str], str]
) -> None:
    """Older or of an earlier boot; nothing else, and nothing that may be about to listen."""
    gone = [
        dead(short_dir / stranger("a")),
        dead(instance_socket(short_dir, RESOURCE, instance_of(2**50))),
    ]
    target = short_dir / "target"
    target.touch()
    link, fifo, directory, file = (
        short_dir / stranger(name) for name in ("link", "fifo", "directory", "file")
    )
    link.symlink_to(target)
    os.mkfifo(fifo)
    directory.mkdir()
    file.touch()
    stay = [
        *(target, link, fifo, directory, file),
        dead(short_dir / stranger("young"), age=-5),
        dead(instance_socket(short_dir, "example.com/gadget", instance_of(5))),
        dead(short_dir / "example.com-widget.sock"),
        dead(short_dir / "nvidia-gpu.sock"),
    ]
    async with instance(short_dir, "w1") as runner:
        await kubelet.wait_for(RESOURCE, healthy("w1"))
        await until(lambda: runner.is_ready and not any(path.exists() for path in gone))
        assert all(os.path.lexists(path) for path in stay)


async def test_a_socket_that_never_answers_delays_the_start_only_shortly(
    kubelet: FakeKubelet,
) -> None:
    """Older or newer: nobody waits for a socket that never answers, and it is not removed."""
    timing = QUICK._replace(instance_deadline=0.1, newer_instance_timeout=0.1)
    paths = [instance_socket(kubelet.socket_dir, RESOURCE, instance_of(n)) for n in (1, 2**50)]
    with socket.socket(socket.AF_UNIX) as older, socket.socket(socket.AF_UNIX) as newer:
        for each, path in zip((older, newer), paths, strict=True):
            each.bind(str(path))
            each.listen()
            os.utime(path, (0, 0))
        async with instance(kubelet.socket_dir, "w1", timing=timing):
            await kubelet.wait_for(RESOURCE, healthy("w1"))
    assert all(path.is_socket() for path in paths)


# ---------------------------------------------------------------- who may ask what


@contextlib.asynccontextmanager
async def asking(path: Path) -> AsyncIterator[JsonClient]:
    async with await GrpcChannel.dial(path) as channel:
        yield JsonClient(channel, SERVICE)


@pytest.mark.parametrize("method", ["Greet", "Leave"])
async def test_only_a_newer_instance_can_ask_to_leave(
    short_dir: Path, kubelet: FakeKubelet, method: str
) -> None:
    """It must have the same resource, and a socket in the same directory that answers."""
    async with instance(short_dir, "w1") as runner:
        await kubelet.wait_for(RESOURCE, healthy("w1"))
        newer = dead(instance_socket(short_dir, RESOURCE, instance_of(2**50)))
        older = dead(instance_socket(short_dir, RESOURCE, instance_of(1)))
        other = dead(instance_socket(short_dir, "example.com/gadget", instance_of(2**50)))
        requests: list[tuple[dict[str, object], StatusCode]] = [
            ({}, StatusCode.NOT_FOUND),
            ({"resource": "example.com/gadget", "socket": other.name}, StatusCode.NOT_FOUND),
            ({"resource": RESOURCE}, StatusCode.INVALID_ARGUMENT),
            ({"resource": RESOURCE, "socket": 5}, StatusCode.INVALID_ARGUMENT),
            ({"resource": RESOURCE, "socket": "a\0b"}, StatusCode.INVALID_ARGUMENT),
            ({"resource": RESOURCE, "socket": older.name}, StatusCode.INVALID_ARGUMENT),
            ({"resource": RESOURCE, "socket": other.name}, StatusCode.INVALID_ARGUMENT),
            ({"resource": RESOURCE, "socket": f"../{newer.name}"}, StatusCode.INVALID_ARGUMENT),
            ({"resource": RESOURCE, "socket": socket_of(runner).name}, StatusCode.INVALID_ARGUMENT),
        ]
        async with asking(socket_of(runner)) as client:
            for request, code in requests:
                with pytest.raises(RpcError) as caught:
                    await client.call(method, request, timeout=5)
                assert caught.value.code is code
            if method == "Leave":
                with pytest.raises(RpcError, match="no plugin serves at"):
                    await client.call(
                        method, {"resource": RESOURCE, "socket": newer.name}, timeout=5
                    )
        assert runner.is_ready
        assert len(kubelet.requests) == 1


async def test_a_newer_instance_that_hangs_loses_the_resource(
    kubelet: FakeKubelet, tmp_path: Path
) -> None:
    """It answers no ping: who stands by registers again, however open the connection is."""
    (tmp_path / "new").touch()
    timing = STUCK._replace(instance_ping=0.5, newer_instance_timeout=0.2)
    async with (
        instance(kubelet.socket_dir, "old", timing=timing) as old,
        plugin_process(kubelet.socket_dir, tmp_path) as new,
    ):
        await kubelet.wait_for(RESOURCE, healthy("new"), timeout=30)
        await until(lambda: stands_by(old))
        new.process.send_signal(signal.SIGSTOP)
        await kubelet.wait_for(RESOURCE, healthy("old"), timeout=30)


@contextlib.asynccontextmanager
async def pretending(path: Path, **state: object) -> AsyncIterator[None]:
    """Serve empty answers to all that an instance asks, and a state, as a neighbour may."""

    async def empty(_request: dict[str, object]) -> dict[str, object]:
        return {}

    async def states(_request: dict[str, object]) -> AsyncGenerator[dict[str, object], None]:
        yield state
        await asyncio.Event().wait()

    unary = dict.fromkeys(("Greet", "Leave", "Relieve"), empty)
    server = GrpcServer(json_methods(SERVICE, unary, {"Watch": states}), name="pretends")
    await server.start(path)
    try:
        yield
    finally:
        await server.stop()


async def test_a_newer_instance_that_no_kubelet_has_registered_loses_the_resource(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks us to leave and lives on: we register again, and leave no second time."""
    timing = STUCK._replace(take_over_timeout=0.3, newer_instance_timeout=0.1)
    newer = instance_socket(kubelet.socket_dir, RESOURCE, instance_of(2**50))
    async with instance(kubelet.socket_dir, "old", timing=timing) as old:
        await kubelet.wait_for(RESOURCE, healthy("old"))
        async with pretending(newer), asking(socket_of(old)) as client:
            request = {"resource": RESOURCE, "socket": newer.name}
            await client.call("Leave", request, timeout=30)
            await until(lambda: stands_by(old) or "registering again" in caplog.text)
            await until(lambda: old.is_ready)
            assert "took over, but no kubelet has registered it" in caplog.text
            with pytest.raises(RpcError, match="no kubelet had") as caught:
                await client.call("Leave", request, timeout=30)
            assert caught.value.code is StatusCode.FAILED_PRECONDITION
            assert old.is_ready
            await kubelet.wait_for(RESOURCE, healthy("old"))


DOUBTING = STUCK._replace(stand_by_limit=0.3, newer_instance_timeout=0.1)


async def test_whoever_only_says_that_a_kubelet_has_it_loses_the_resource(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """No checkpoint lists the resource: we register again, and the next pretender must prove it."""
    async with instance(kubelet.socket_dir, "old", timing=DOUBTING) as old:
        await kubelet.wait_for(RESOURCE, healthy("old"))
        for number in (2**50, 2**51):
            newer = instance_socket(kubelet.socket_dir, RESOURCE, instance_of(number))
            async with pretending(newer, registered=True), asking(socket_of(old)) as client:
                request = {"resource": RESOURCE, "socket": newer.name}
                if number == 2**50:
                    await client.call("Leave", request, timeout=30)
                    await until(lambda: "registering again" in caplog.text and old.is_ready)
                with pytest.raises(RpcError, match="no kubelet had") as caught:
                    await client.call("Leave", request, timeout=30)
                assert caught.value.code is StatusCode.FAILED_PRECONDITION
                assert old.is_ready
        await kubelet.wait_for(RESOURCE, healthy("old"))


async def test_the_checkpoint_of_the_kubelet_speaks_for_a_newer_instance(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it lists devices of the resource, the older instance stands by without end."""
    checkpoint = kubelet.socket_dir / "kubelet_internal_checkpoint"
    content = '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"%s":%s}},"Checksum":1}'
    newer = instance_socket(kubelet.socket_dir, RESOURCE, instance_of(2**50))
    looks = []

    def counted(*arguments: Any) -> bool:
        looks.append(kubelet_lists(*arguments))
        return looks[-1]

    monkeypatch.setattr(newer_instance, "kubelet_lists", counted)
    async with instance(kubelet.socket_dir, "old", timing=DOUBTING) as old:
        await kubelet.wait_for(RESOURCE, healthy("old"))
        checkpoint.write_text(content % (RESOURCE, '["new"]'))
        async with pretending(newer, registered=True), asking(socket_of(old)) as client:
            request = {"resource": RESOURCE, "socket": newer.name}
            await client.call("Leave", request, timeout=30)
            await until(lambda: len(looks) > 2)
            assert stands_by(old)
            checkpoint.write_text(content % (RESOURCE, "[]"))
            await until(lambda: old.is_ready)
            assert looks[:3] == [True] * 3


async def test_a_newer_instance_proves_itself_by_its_registration(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """Doubted, it loses its stream, registers again, and the kubelet then ends ours."""
    async with instance(kubelet.socket_dir, "old", timing=DOUBTING) as old:
        kubelet.one_per_resource = True
        await kubelet.wait_for(RESOURCE, healthy("old"))
        timing = STUCK._replace(again_soon=0.01)
        async with instance(kubelet.socket_dir, "new", timing=timing) as new:
            await until(lambda: "registering again" in caplog.text)
            await until(lambda: new.is_ready and stands_by(old))
            await kubelet.wait_for(RESOURCE, healthy("new"))


async def test_an_instance_that_stands_by_is_not_ready(kubelet: FakeKubelet) -> None:
    """Its devices are not given away from here."""
    async with (
        instance(kubelet.socket_dir, "old") as old,
        instance(kubelet.socket_dir, "new") as new,
    ):
        await kubelet.wait_for(RESOURCE, healthy("new"))
        await until(lambda: stands_by(old) and new.is_ready)
        assert not old.is_ready
        assert kd.Health.HEALTHY in {each.health for each in old.servers["widget"].devices.values()}
