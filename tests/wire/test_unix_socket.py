"""Socket files: whose they are, what may be removed, how they appear."""

import errno
import os
import resource
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import CannotAsk, DialError, SocketInUse, SocketPathTooLong
from kubedevices.host.inotify import Inotify
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from kubedevices.wire.unix_socket import BACKLOG, FileIdentity, listen, unlink_own
from tests.host_needs import needs, require
from tests.planted import PLANTS, Outside, clear, plant
from tests.socket_metadata import METADATA_CHANGES

IN_CREATE = 0x100


def bound(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Return a socket bound at `path` that does not listen."""
    endpoint = socket.socket(socket.AF_UNIX, kind)
    endpoint.bind(str(path))
    return endpoint


def test_listens(short_dir: Path) -> None:
    """The file is there, with the identity told, and accepts."""
    path = short_dir / "s.sock"
    listener = listen(path, mode=0o600)
    with listener.socket, socket.socket(socket.AF_UNIX) as client:
        assert listener.identity == FileIdentity.of(path)
        client.connect(str(path))


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666, 0o777])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_mode(short_dir: Path, mode: int, umask: int) -> None:
    """The file has the mode asked for, whatever the umask says."""
    path = short_dir / "s.sock"
    before = os.umask(umask)
    try:
        with listen(path, mode=mode).socket:
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_never_more_rights_than_asked_for(short_dir: Path) -> None:
    """Between bind and listen the file never has another mode: nobody slips in."""
    path = short_dir / "s.sock"
    seen = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                seen.add(stat.S_IMODE(path.lstat().st_mode))
            except OSError:
                continue

    before = os.umask(0)
    watcher = threading.Thread(target=look, name="watcher")
    watcher.start()
    try:
        for _ in range(200):
            listen(path, mode=0o600).socket.close()
            path.unlink()
    finally:
        done.set()
        watcher.join()
        os.umask(before)
    assert seen <= {0o600}


def test_rename(short_dir: Path) -> None:
    """With `by_rename` the final name appears listening; the first name is gone."""
    path = short_dir / "s.sock"
    refused = []
    done = threading.Event()

    def dial() -> None:
        while not done.is_set():
            with socket.socket(socket.AF_UNIX) as client:
                client.setblocking(False)
                if client.connect_ex(str(path)) == errno.ECONNREFUSED:
                    refused.append(path)

    listeners = []
    watcher = threading.Thread(target=dial, name="watcher")
    watcher.start()
    try:
        for _ in range(30):
            listener = listen(path, mode=0o600, by_rename=True)
            assert list(short_dir.iterdir()) == [path]
            assert listener.identity == FileIdentity.of(path)
            listeners.append(listener.socket)
            path.unlink()
    finally:
        done.set()
        watcher.join()
        for each in listeners:
            each.close()
    assert not refused


def test_watchers_see_a_new_file_created(short_dir: Path) -> None:
    """As of a bind: some plugins watch for kubelet.sock to be created, and for nothing else."""
    watch = Inotify()
    watch.add(short_dir, IN_CREATE)
    listener = listen(short_dir / "s.sock", mode=0o600, by_rename=True)
    assert b"s.sock" in {event.name for event in watch.read()}
    assert [path.name for path in short_dir.iterdir()] == ["s.sock"]
    listener.socket.close()
    watch.close()


def test_rename_replaces_a_stale_file_without_a_gap(short_dir: Path) -> None:
    """The path of a stale socket never is without a file while it is replaced."""
    path = short_dir / "s.sock"
    bound(path).close()
    missing = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if not path.exists():
                missing.append(path)

    watcher = threading.Thread(target=look, name="watcher")
    watcher.start()
    try:
        for _ in range(50):
            listen(path, mode=0o600, by_rename=True).socket.close()
    finally:
        done.set()
        watcher.join()
    assert not missing


@pytest.mark.parametrize("by_rename", [False, True])
def test_stale_file_is_replaced(short_dir: Path, by_rename: bool) -> None:
    """A socket file that refuses connections is from a dead process."""
    bound(short_dir / "s.sock").close()
    before = FileIdentity.of(short_dir / "s.sock")
    listener = listen(short_dir / "s.sock", mode=0o600, by_rename=by_rename)
    with listener.socket:
        assert listener.identity != before


def test_live_socket_is_in_use(short_dir: Path) -> None:
    """A process that accepts connections keeps its path."""
    path = short_dir / "s.sock"
    with listen(path, mode=0o600).socket:
        before = FileIdentity.of(path)
        with pytest.raises(SocketInUse, match="already in use"):
            listen(path, mode=0o600)
        with pytest.raises(SocketInUse):
            listen(path, mode=0o600, by_rename=True)
        assert FileIdentity.of(path) == before
        assert list(short_dir.iterdir()) == [path]


def test_busy_socket_is_in_use(short_dir: Path) -> None:
    """A full queue means a living server too, and the check takes no time."""
    path = short_dir / "s.sock"
    clients = []
    with listen(path, mode=0o600).socket:
        for _ in range(BACKLOG + 1):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            client.connect_ex(str(path))
            clients.append(client)
        with pytest.raises(SocketInUse):
            listen(path, mode=0o600)
        for client in clients:
            client.close()


def test_datagram_socket_is_in_use(short_dir: Path) -> None:
    """A datagram socket of another process is not removed."""
    path = short_dir / "s.sock"
    with bound(path, socket.SOCK_DGRAM), pytest.raises(SocketInUse):
        listen(path, mode=0o600)


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link"])
def test_other_files_are_left_alone(short_dir: Path, kind: str) -> None:
    """A file that is not a socket stays, and listening fails."""
    path = short_dir / "s.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    with pytest.raises(CannotAsk, match="not a socket is in the way"):
        listen(path, mode=0o600)
    assert path.is_symlink() or path.exists()


def test_missing_directory(short_dir: Path) -> None:
    """The message names the path and the reason."""
    path = short_dir / "missing" / "s.sock"
    with pytest.raises(CannotAsk, match=rf"cannot listen on {path}: No such file"):
        listen(path, mode=0o600)


@needs("user")
def test_no_permission(short_dir: Path) -> None:
    """A directory we may not write to is `CannotAsk` as well."""
    short_dir.chmod(0o500)
    try:
        with pytest.raises(CannotAsk, match="Permission denied"):
            listen(short_dir / "s.sock", mode=0o600)
    finally:
        short_dir.chmod(0o700)


def test_rename_into_nowhere_leaves_nothing(short_dir: Path) -> None:
    """When the rename fails, the first name is removed again."""
    with pytest.raises(CannotAsk):
        listen(short_dir / "missing" / "s.sock", mode=0o600, by_rename=True)
    assert list(short_dir.iterdir()) == []


@pytest.mark.parametrize("by_rename", [False, True])
def test_path_too_long(short_dir: Path, by_rename: bool) -> None:
    """A path of 108 bytes is refused with its length, before anything happens."""
    long = short_dir / ("x" * (107 - len(bytes(short_dir))))
    assert len(bytes(long)) == 108
    with pytest.raises(SocketPathTooLong, match="108 bytes"):
        listen(long, mode=0o600, by_rename=by_rename)
    assert list(short_dir.iterdir()) == []


@pytest.mark.parametrize("by_rename", [False, True])
def test_longest_path(short_dir: Path, by_rename: bool) -> None:
    """A path of 107 bytes is accepted."""
    path = short_dir / ("x" * (106 - len(bytes(short_dir))))
    assert len(bytes(path)) == 107
    listen(path, mode=0o600, by_rename=by_rename).socket.close()


def test_only_our_own_file_is_removed(short_dir: Path) -> None:
    """A file that replaced ours stays."""
    path = short_dir / "s.sock"
    with listen(path, mode=0o600).socket:
        own = FileIdentity.of(path)
        path.unlink()
        path.write_text("somebody else's")
        for identity in (own, None):
            assert not unlink_own(path, identity)
        assert path.exists()
        now = FileIdentity.of(path)
        assert unlink_own(path, now)
        assert not path.exists()
        assert not unlink_own(path, now)


# ---------------------------------------------------------------- which file it is


@pytest.fixture(params=["/tmp", "/dev/shm"])
def file_system(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Give a directory on a file system that reuses inode numbers, and on one that need not."""
    with tempfile.TemporaryDirectory(prefix="kd-", dir=request.param) as directory:
        yield Path(directory)


@pytest.mark.parametrize("change", METADATA_CHANGES.values(), ids=METADATA_CHANGES)
def test_a_file_with_new_metadata_is_the_same(
    file_system: Path, change: Callable[[Path], None]
) -> None:
    """Mode, owner, labels, times, links and a temporary removal of the name change no identity."""
    path = file_system / "s.sock"
    with listen(path, mode=0o600).socket:
        before, ctime = FileIdentity.of(path), path.stat().st_ctime_ns
        change(path)
        assert FileIdentity.of(path) == before
        assert path.stat().st_ctime_ns != ctime


@pytest.mark.parametrize("change", METADATA_CHANGES.values(), ids=METADATA_CHANGES)
def test_a_recreated_file_has_another_identity(
    file_system: Path, change: Callable[[Path], None]
) -> None:
    """Also on a file system that reuses the inode number at once."""
    path = file_system / "s.sock"
    for _ in range(20):
        bound(path).close()
        before = FileIdentity.of(path)
        path.unlink()
        bound(path).close()
        change(path)
        assert FileIdentity.of(path) != before
        path.unlink()


def test_an_identity_holds_one_descriptor(short_dir: Path) -> None:
    """However often the identity is used."""
    path = short_dir / "s.sock"
    bound(path).close()
    identities = [FileIdentity.of(path) for _ in range(3)]
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert len(set(identities)) == 1
    identities.clear()
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 3


def test_a_process_without_free_descriptors_still_identifies_files(short_dir: Path) -> None:
    """A server does not lose its socket because too many files are open."""
    path = short_dir / "s.sock"
    bound(path).close()
    own = FileIdentity.of(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # 0, 1 and 2 are taken
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(0)
        assert FileIdentity.of(path) == own
        assert FileIdentity.of(short_dir / "missing") is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---------------------------------------------------------------- a directory of strangers


@pytest.mark.parametrize("kind", [kind for kind in PLANTS if kind != "dead socket"])
@pytest.mark.parametrize("by_rename", [False, True])
def test_a_socket_replaced_right_after_bind(
    short_dir: Path, by_rename: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in its place does not get its mode and is not taken for our socket."""
    outside, path = Outside(short_dir / "outside"), short_dir / "d/s.sock"
    path.parent.mkdir()
    if kind == "device":
        require("mknod")  # a skip within `bind` would leave the socket open

    class Bound(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            plant(kind, Path(address), outside)

    monkeypatch.setattr(socket, "socket", Bound)
    before = os.umask(0o077)  # or there is no mode to give back
    try:
        with pytest.raises(CannotAsk, match="another file replaced the new socket file at once"):
            listen(path, mode=0o666, by_rename=by_rename)
    finally:
        os.umask(before)
    outside.assert_untouched()


@pytest.mark.parametrize("kind", [kind for kind in PLANTS if kind != "dead socket"])
async def test_a_dial_that_follows_no_links(short_dir: Path, kind: str) -> None:
    """Neither to another file nor, through a link, to a server elsewhere."""
    path = short_dir / "s.sock"
    plant(kind, path, Outside(short_dir / "outside"))
    with pytest.raises(DialError, match="it is not a socket"):
        await GrpcChannel.dial(path, timeout=5, follow_links=False)
    clear(path)
    server = GrpcServer({}, name="elsewhere")
    await server.start(short_dir / "elsewhere.sock")
    path.symlink_to("elsewhere.sock")
    with pytest.raises(DialError, match="it is not a socket"):
        await GrpcChannel.dial(path, timeout=5, follow_links=False)
    async with await GrpcChannel.dial(path, timeout=5):
        assert "connections=1" in repr(server)
    await server.stop()


async def test_a_socket_replaced_after_the_check(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection leads to the checked socket, not to the target of a new link."""
    path = short_dir / "s.sock"
    looked_at, elsewhere = GrpcServer({}, name="looked at"), GrpcServer({}, name="elsewhere")
    await looked_at.start(path)
    await elsewhere.start(short_dir / "elsewhere.sock")
    identity_of = FileIdentity.of

    def look_and_swap(of: Path) -> FileIdentity | None:
        found = identity_of(of)
        of.unlink()
        of.symlink_to("elsewhere.sock")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(FileIdentity, "of", look_and_swap)
        channel = await GrpcChannel.dial(path, timeout=5, follow_links=False)
    async with channel:
        assert "connections=1" in repr(looked_at)
        assert "connections=0" in repr(elsewhere)
    await elsewhere.stop()
    await looked_at.stop()
