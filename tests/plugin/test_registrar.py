"""One server gets on its socket and gets registered."""

import asyncio
import contextlib
import itertools
import logging
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.errors import (
    CannotAsk,
    DialError,
    RegistrationRefused,
    RpcError,
    SocketInUse,
    StatusCode,
)
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.plugin.timing import Timing
from kubedevices.values.allocation import PluginOptions, RegisterRequest
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.fake_kubelet import FakeKubelet, leave_dead_socket
from tests.registrar_rig import NAME, registrar
from tests.waiting import until
from tests.widgets import QUICK, RESOURCE, healthy

# ---------------------------------------------------------------- the first registration


async def test_the_registrar_serves_first_and_then_registers(kubelet: FakeKubelet) -> None:
    """Register names the socket, version and options; when the kubelet dials back we answer."""
    async with registrar(kubelet.socket_dir) as rig:
        connected = await kubelet.wait_for(RESOURCE, healthy("w1"))
        assert kubelet.requests == [RegisterRequest("v1beta1", NAME, RESOURCE, PluginOptions())]
        assert connected.options == kubelet.requests[0].options
        await until(lambda: rig.registrar.is_registered)
        assert oct(rig.socket.stat().st_mode & 0o777) == "0o600"
        assert repr(rig.registrar) == f"<Registrar {RESOURCE} at {rig.socket}, registered>"
    assert not rig.socket.exists()


async def test_the_registrar_waits_for_an_absent_kubelet(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without kubelet.sock it serves and waits, says so once, and registers at once."""
    async with registrar(short_dir) as rig:
        await until(lambda: rig.registrar.is_serving)
        await until(lambda: "waiting for the kubelet" in caplog.text)
        kubelet = FakeKubelet(short_dir)
        for _ in range(3):  # other files come and go
            (short_dir / "other").touch()
            (short_dir / "other").unlink()
            await asyncio.sleep(0.02)
        assert caplog.text.count("waiting for the kubelet") == 1
        async with kubelet:
            await kubelet.wait_for(RESOURCE, 1)


async def test_waiting_is_repeated_in_the_log_ever_more_rarely(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reminder comes after a minute, then two, then four: here a thousand times faster."""
    timing = QUICK._replace(waiting_reminder=0.06, waiting_reminder_last=3600)
    loop = asyncio.get_running_loop()
    async with registrar(short_dir, timing=timing):
        started = loop.time()
        await until(lambda: caplog.text.count("waiting for the kubelet") == 4)
        assert loop.time() - started >= 0.06 + 0.12 + 0.24


async def test_waiting_for_the_next_kubelet_is_logged_at_once_again(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was said before a success hushes nothing; a restart is no reason to warn."""
    caplog.set_level(logging.INFO)
    async with registrar(short_dir):
        for count in range(1, 4):
            await until(lambda n=count: caplog.text.count("waiting for the kubelet") == n)  # type: ignore[misc]
            async with FakeKubelet(short_dir) as kubelet:
                await kubelet.wait_for(RESOURCE, 1)
        warned = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert len(warned) == 1, "at the start, when a kubelet may be nowhere"


async def test_the_registrar_waits_for_a_missing_directory(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a host without kubelet the directory is missing: it waits, and says so once."""
    directory = short_dir / "kubelet" / "device-plugins"
    async with registrar(directory, timing=QUICK._replace(look_interval=60)) as rig:
        await until(lambda: f"waiting for {directory}, which does not exist" in caplog.text)
        directory.mkdir(parents=True)
        await until(lambda: rig.registrar.is_serving)
        async with FakeKubelet(directory) as kubelet:
            await kubelet.wait_for(RESOURCE, 1)


async def test_the_directory_vanishes_when_we_bind(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory removed between the look and the bind is waited for, not an error."""
    directory = short_dir / "device-plugins"
    directory.mkdir()
    start = GrpcServer.start

    async def remove_and_start(server: GrpcServer, path: Path) -> None:
        monkeypatch.undo()
        directory.rmdir()
        await start(server, path)

    monkeypatch.setattr(GrpcServer, "start", remove_and_start)
    async with registrar(directory) as rig:
        await until(lambda: not directory.exists())
        directory.mkdir()
        await until(lambda: rig.registrar.is_serving)


async def test_a_bind_that_fails_again_and_again_is_tried_with_growing_pauses(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that the directory is gone; the pauses grow."""
    attempts = []

    async def fail(_server: GrpcServer, path: Path) -> None:
        attempts.append(path)
        raise CannotAsk("no such directory") from FileNotFoundError(path)

    monkeypatch.setattr(GrpcServer, "start", fail)
    async with registrar(short_dir):
        await until(lambda: len(attempts) >= 3)
        await asyncio.sleep(0.1)
        assert len(attempts) < 10


@pytest.mark.parametrize("register", [True, False])
async def test_a_deleted_directory_that_a_mount_still_shows(
    short_dir: Path, register: bool
) -> None:
    """A container goes on seeing the old directory: only a new start shows it the new one."""
    (short_dir / "old").mkdir()
    mount = os.open(short_dir / "old", os.O_RDONLY)  # holds the directory as a mount would
    try:
        async with registrar(Path(f"/proc/self/fd/{mount}"), register=register) as rig:
            await until(lambda: rig.registrar.is_serving)
            shutil.rmtree(short_dir / "old")
            with pytest.raises(CannotAsk, match=f"fd/{mount} was deleted"):
                await rig.ended()
    finally:
        os.close(mount)


async def test_a_path_that_is_no_directory_is_an_error(short_dir: Path) -> None:
    """A file where the directory should be, or no directory when only serving, is an error."""
    (short_dir / "file").touch()
    async with registrar(short_dir / "file") as rig:
        with pytest.raises(CannotAsk, match="file is not a directory"):
            await rig.ended()
    async with registrar(short_dir / "missing", register=False) as rig:
        with pytest.raises(CannotAsk, match="missing: it does not exist"):
            await rig.ended()


async def test_the_directory_may_vanish_and_come_back(short_dir: Path) -> None:
    """When the whole plugin directory is replaced, it binds and registers in the new one."""
    directory = short_dir / "device-plugins"
    directory.mkdir()
    kubelet = FakeKubelet(directory)
    async with kubelet, registrar(directory):
        await kubelet.wait_for(RESOURCE, 1)
        shutil.rmtree(directory)
        await kubelet.stop()
        directory.mkdir()
        await kubelet.start()
        await kubelet.wait_for(RESOURCE, 1)


async def test_serving_alone_registers_nowhere(kubelet: FakeKubelet) -> None:
    """Without registration the service answers, and a lost socket is bound again."""
    async with registrar(kubelet.socket_dir, register=False) as rig:
        for _ in range(2):
            await until(lambda: rig.registrar.is_serving)
            async with await GrpcChannel.dial(rig.socket) as channel:
                client = DevicePluginClient(channel)
                assert await client.get_device_plugin_options(timeout=5) == PluginOptions()
            rig.socket.unlink()
        await until(lambda: rig.registrar.is_serving)
        assert not rig.registrar.is_registered
        assert kubelet.requests == []


# ---------------------------------------------------------------- what is in the way


async def test_a_stale_socket_is_replaced(kubelet: FakeKubelet) -> None:
    """A socket file left behind by a killed process is no obstacle."""
    leave_dead_socket(kubelet.socket_dir / NAME)
    async with registrar(kubelet.socket_dir):
        await kubelet.wait_for(RESOURCE, 1)


async def test_a_live_socket_is_left_alone(short_dir: Path, kubelet: FakeKubelet) -> None:
    """A second instance ends with an error; the first one is served and registered on."""
    async with registrar(short_dir):
        await kubelet.wait_for(RESOURCE, 1)
        async with registrar(short_dir) as second:
            with pytest.raises(SocketInUse, match=f"Socket {short_dir / NAME} is already in use"):
                await second.ended()
        assert (short_dir / NAME).is_socket()
        assert len(kubelet.requests) == 1
        assert kubelet.devices(RESOURCE) == healthy("w1")


async def test_a_file_in_the_way_is_not_removed(short_dir: Path) -> None:
    """Something that is not a socket is somebody's file: an error, and the file stays."""
    (short_dir / NAME).write_text("precious")
    async with registrar(short_dir) as rig:
        with pytest.raises(CannotAsk, match="not a socket"):
            await rig.ended()
    assert (short_dir / NAME).read_text() == "precious"


async def test_missing_permission_is_an_error_that_says_so(
    short_dir: Path, kubelet: FakeKubelet
) -> None:
    """Waiting repairs no permission: for kubelet.sock, for our socket, for the directory."""
    kubelet.socket.chmod(0)
    with without_privileges(short_dir, 0o777):
        async with registrar(short_dir) as rig:
            with pytest.raises(DialError, match=r"kubelet.sock: permission denied") as caught:
                await rig.ended()
            assert caught.value.exit_code == 3
    with without_privileges(short_dir, 0o555):
        async with registrar(short_dir) as rig:
            with pytest.raises(CannotAsk, match=f"{NAME}: Permission denied"):
                await rig.ended()
    with without_privileges(short_dir, 0):
        async with registrar(short_dir / "below") as rig:
            with pytest.raises(CannotAsk, match=r"cannot look at .*/below: Permission denied"):
                await rig.ended()


@contextlib.contextmanager
def without_privileges(directory: Path, mode: int) -> Iterator[None]:
    """Give `directory` this mode, and be somebody to whom modes mean something."""
    me = os.geteuid()
    directory.chmod(mode)
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)
        directory.chmod(0o755)


# ---------------------------------------------------------------- how Register may go


@pytest.mark.parametrize(
    "text",
    [
        'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v2"]',
        'the ResourceName "example.com/widget" is invalid',
    ],
)
async def test_a_refusal_is_final(kubelet: FakeKubelet, text: str) -> None:
    """Any status that is not about reaching the kubelet ends it, with the kubelet's text."""
    kubelet.refuse_with = RpcError(StatusCode.UNKNOWN, text)
    async with registrar(kubelet.socket_dir) as rig:
        with pytest.raises(RegistrationRefused) as caught:
            await rig.ended()
    assert caught.value.message == text
    assert text in str(caught.value)
    assert caught.value.exit_code == 1
    assert len(kubelet.requests) == 1
    assert not rig.socket.exists()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (StatusCode.UNAVAILABLE, "starting"),
        (StatusCode.DEADLINE_EXCEEDED, "starting"),
        (StatusCode.CANCELLED, "starting"),
        (StatusCode.RESOURCE_EXHAUSTED, "400 plugins are connected already"),
        (StatusCode.UNKNOWN, "failed to dial device plugin: context deadline exceeded"),
        (StatusCode.UNKNOWN, "failed to get device plugin options: rpc error: code = Canceled"),
    ],
)
async def test_a_passing_failure_is_tried_again_with_growing_pauses(
    kubelet: FakeKubelet, code: StatusCode, text: str
) -> None:
    """UNAVAILABLE and its like are retried, each time later, until the kubelet is ready."""
    kubelet.refuse_with = RpcError(code, text)
    async with registrar(kubelet.socket_dir) as rig:
        await kubelet.wait_requests(5)
        kubelet.refuse_with = None
        await kubelet.wait_for(RESOURCE, 1)
        times = kubelet.request_times
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert pauses[0] >= QUICK.first_retry
        assert pauses[2] >= 4 * QUICK.first_retry
        assert rig.server.counts["failed_registrations"] >= 4


async def test_a_new_kubelet_socket_ends_the_pause(kubelet: FakeKubelet) -> None:
    """During a long pause a change of kubelet.sock is answered at once."""
    timing = QUICK._replace(first_retry=60, last_retry=60)
    kubelet.refuse_with = RpcError(StatusCode.UNAVAILABLE, "starting")
    async with registrar(kubelet.socket_dir, timing=timing) as rig:
        await until(lambda: rig.server.counts["failed_registrations"] == 1)
        kubelet.refuse_with = None
        await kubelet.replace_socket()
        await kubelet.wait_for(RESOURCE, 1)


async def test_a_socket_that_is_bound_but_does_not_listen_yet_costs_milliseconds(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kubelet binds kubelet.sock before it listens; who dials in between just dials again."""
    timing = QUICK._replace(first_retry=60, last_retry=60)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as late:
        late.setblocking(False)
        late.bind(str(short_dir / "kubelet.sock"))
        async with registrar(short_dir, timing=timing) as rig:
            await until(lambda: rig.server.counts["kubelet_away"] >= 3)
            late.listen()
            listening_since = loop.time()
            accepted, _ = await loop.sock_accept(late)
            accepted.close()
            assert loop.time() - listening_since < 10  # milliseconds, or else 60 s
    assert "waiting" not in caplog.text


async def test_a_dead_kubelet_socket_is_waited_for(short_dir: Path) -> None:
    """kubelet leaves its socket behind when it stops: refused connections are tried again."""
    leave_dead_socket(short_dir / "kubelet.sock")
    async with registrar(short_dir) as rig:
        await until(lambda: rig.server.counts["kubelet_away"] > 3)
        async with FakeKubelet(short_dir) as kubelet:
            await kubelet.wait_for(RESOURCE, 1)
            assert rig.server.counts["failed_registrations"] == 0


async def test_a_kubelet_that_takes_long_is_waited_for(kubelet: FakeKubelet) -> None:
    """A Register that is answered late is one registration, not several."""
    kubelet.register_gate = asyncio.Event()
    async with registrar(kubelet.socket_dir, timing=QUICK._replace(register_deadline=30)) as rig:
        await kubelet.wait_requests(1)
        await asyncio.sleep(20 * QUICK.first_retry)
        assert not rig.registrar.is_registered
        kubelet.register_gate.set()
        await kubelet.wait_for(RESOURCE, 1)
        assert len(kubelet.requests) == 1
    assert Timing().register_deadline >= 30


async def test_a_call_given_up_may_still_register_us(kubelet: FakeKubelet) -> None:
    """When a stream opens after the deadline, that is the registration: no second Register."""
    timing = QUICK._replace(register_deadline=0.1, first_retry=60, last_retry=60)
    kubelet.goes_on = True
    kubelet.register_gate = asyncio.Event()
    async with registrar(kubelet.socket_dir, timing=timing) as rig:
        await until(lambda: rig.server.counts["failed_registrations"] == 1)
        kubelet.register_gate.set()
        await until(lambda: rig.registrar.is_registered)
        await kubelet.wait_for(RESOURCE, 1)
        assert len(kubelet.requests) == 1


async def test_a_kubelet_that_hangs_is_tried_again(short_dir: Path) -> None:
    """A kubelet.sock that accepts and never says a word ends with the dial deadline."""
    timing = QUICK._replace(dial_deadline=0.05)
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(short_dir / "kubelet.sock"))
        hanging.listen()
        async with registrar(short_dir, timing=timing) as rig:
            await until(lambda: rig.server.counts["failed_registrations"] >= 2)
            async with FakeKubelet(short_dir) as kubelet:
                await kubelet.wait_for(RESOURCE, 1)


async def test_stopping_during_register_leaves_nothing_behind(kubelet: FakeKubelet) -> None:
    """However long the kubelet takes for Register, a stop ends the call and every task of ours."""
    kubelet.register_gate = asyncio.Event()
    before = asyncio.all_tasks()
    timing = QUICK._replace(look_interval=60)
    async with registrar(kubelet.socket_dir, timing=timing, use_events=False):
        await kubelet.wait_requests(1)
    ours = {task.get_name() for task in asyncio.all_tasks() - before}
    assert {name for name in ours if "fake kubelet" not in name} == set()


async def test_a_lack_of_file_descriptors_passes(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dial that this host cannot make now is tried again like any other."""

    async def fail(*_: object, **__: object) -> GrpcChannel:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("kubedevices.plugin.register_call.GrpcChannel.dial", fail)
    async with registrar(kubelet.socket_dir) as rig:
        await until(lambda: rig.server.counts["failed_registrations"] >= 3)
        monkeypatch.undo()
        await kubelet.wait_for(RESOURCE, 1)


async def test_a_peer_that_is_no_grpc_server_is_tried_again(short_dir: Path) -> None:
    """A server at kubelet.sock that is not gRPC counts as an absent kubelet."""

    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(nonsense, short_dir / "kubelet.sock")
    async with server, registrar(short_dir) as rig:
        await until(lambda: rig.server.counts["failed_registrations"] >= 3)
        assert rig.registrar.is_serving
