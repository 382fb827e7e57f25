"""Looking at a real directory with real sockets: who listens, who is connected, what is left."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kubedevices.explain.on_node import look_directory, look_socket_owners
from kubedevices.explain.on_node.facts import MISSING, NO_PERMISSION, NO_SOCKET, NOBODY, Socket
from kubedevices.explain.on_node.look_directory import look_at_directory
from kubedevices.host import listing
from tests.host_needs import require


@pytest.fixture
def open_sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listen(path: Path, stack: ExitStack) -> socket.socket:
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(str(path))
    listener.listen()
    return listener


def connect(path: Path, stack: ExitStack) -> socket.socket:
    client = stack.enter_context(socket.socket(socket.AF_UNIX))
    client.connect(str(path))
    return client


@pytest.fixture
def kubelet(short_dir: Path, open_sockets: ExitStack) -> socket.socket:
    """Be the kubelet of the directory: who is connected is seen where its sockets are."""
    return listen(short_dir / "kubelet.sock", open_sockets)


def the_plugin(directory: Path) -> Socket:
    (plugin,) = look_at_directory(directory).plugins
    return plugin


@pytest.mark.usefixtures("kubelet")
def test_a_listener_is_found_with_its_connections(short_dir: Path, open_sockets: ExitStack) -> None:
    """Which process accepts, and how many others than us are connected."""
    path = short_dir / "w.sock"
    listener = listen(path, open_sockets)
    alone = the_plugin(short_dir)
    assert alone.listener is not None
    assert (alone.refusal, alone.listener.pid, alone.connections) == ("", os.getpid(), 0)
    assert alone.since == path.stat().st_mtime
    connect(path, open_sockets)
    assert the_plugin(short_dir).connections == 0  # in the queue, as our own look is
    for _ in range(3):  # both looks, which have left, and the one that stays
        open_sockets.enter_context(listener.accept()[0])
    assert the_plugin(short_dir).connections == 3  # those that left are not closed here


@pytest.mark.usefixtures("kubelet")
def test_our_own_connection_is_not_counted(short_dir: Path, open_sockets: ExitStack) -> None:
    """A plugin closes what its peer closed, so the next look counts from nothing again."""
    listener = listen(short_dir / "w.sock", open_sockets)
    the_plugin(short_dir)
    listener.accept()[0].close()
    assert the_plugin(short_dir).connections == 0


@pytest.mark.usefixtures("kubelet")
def test_a_renamed_socket_has_its_connections(short_dir: Path, open_sockets: ExitStack) -> None:
    """It has its old path in the tables, on both ends; every other socket here has its file."""
    listener = listen(short_dir / ".w.new", open_sockets)
    (short_dir / ".w.new").rename(short_dir / "w.sock")
    connect(short_dir / "w.sock", open_sockets)
    open_sockets.enter_context(listener.accept()[0])
    assert the_plugin(short_dir).connections == 1


def test_connections_are_unknown_without_a_kubelet(
    short_dir: Path, open_sockets: ExitStack
) -> None:
    """The table where its connections stand is not known: that is no sign that there are none."""
    listen(short_dir / "w.sock", open_sockets)
    assert the_plugin(short_dir).connections is None


@pytest.mark.parametrize("kind", [MISSING, NO_SOCKET, NOBODY])
def test_paths_that_refuse_a_connection(
    short_dir: Path, open_sockets: ExitStack, kind: str
) -> None:
    """Nothing there, a file that is not a socket, a socket that its process left behind."""
    path = short_dir / "kubelet.sock"
    if kind == NO_SOCKET:
        path.touch()
    if kind == NOBODY:
        listen(path, open_sockets).close()
    seen = look_at_directory(short_dir).kubelet
    assert seen is not None
    assert seen.refusal == kind


def test_kubelet_and_plugin_sockets_are_distinguished(
    short_dir: Path, open_sockets: ExitStack
) -> None:
    """Files and directories in it are no plugins."""
    listen(short_dir / "kubelet.sock", open_sockets)
    listen(short_dir / "b.sock", open_sockets)
    listen(short_dir / "a.sock", open_sockets).close()
    (short_dir / "kubelet_internal_checkpoint").touch()
    (short_dir / "sub").mkdir()
    seen = look_at_directory(short_dir)
    assert seen.kubelet is not None
    assert (seen.refusal, seen.kubelet.refusal, seen.lost) == ("", "", ())
    assert [(each.path.name, each.refusal) for each in seen.plugins] == [
        ("a.sock", NOBODY),
        ("b.sock", ""),
    ]


def test_a_deleted_socket_is_found_with_its_owner(short_dir: Path, open_sockets: ExitStack) -> None:
    """Its process listens on, and nobody can reach it."""
    listen(short_dir / "w.sock", open_sockets)
    assert look_at_directory(short_dir).lost == ()
    (short_dir / "w.sock").unlink()
    (deleted,) = look_at_directory(short_dir).lost
    assert deleted.path == short_dir / "w.sock"
    assert deleted.listener is not None
    assert deleted.listener.pid == os.getpid()


def test_a_renamed_socket_is_not_a_deleted_socket(short_dir: Path, open_sockets: ExitStack) -> None:
    """The kernel remembers the path that it was bound to, as of `kubelet.sock` here."""
    listen(short_dir / ".new", open_sockets)
    (short_dir / ".new").rename(short_dir / "kubelet.sock")
    seen = look_at_directory(short_dir)
    assert seen.kubelet is not None
    assert (seen.kubelet.refusal, seen.lost) == ("", ())
    listen(short_dir / "w.sock", open_sockets)
    (short_dir / "w.sock").unlink()
    assert [each.path.name for each in look_at_directory(short_dir).lost] == ["w.sock"]


@pytest.mark.parametrize("may_connect", [True, False])
def test_without_root_a_renamed_socket_is_not_reported_as_lost(
    short_dir: Path, open_sockets: ExitStack, monkeypatch: pytest.MonkeyPatch, may_connect: bool
) -> None:
    """Whoever may not see owners may not be able to connect either."""
    monkeypatch.setattr(look_socket_owners, "_inodes", lambda process, proc_root: None)
    if not may_connect:
        monkeypatch.setattr(look_directory, "_connect", lambda probe, path: NO_PERMISSION)
    listen(short_dir / ".new", open_sockets)
    (short_dir / ".new").rename(short_dir / "kubelet.sock")
    assert look_at_directory(short_dir).lost == ()
    listen(short_dir / "w.sock", open_sockets)
    (short_dir / "w.sock").unlink()
    assert [each.path.name for each in look_at_directory(short_dir).lost] == ["w.sock"]


def test_paths_that_are_not_a_directory(short_dir: Path) -> None:
    """Missing, a file, or not for us."""
    assert look_at_directory(short_dir / "nothing").refusal == MISSING
    (short_dir / "file").touch()
    assert look_at_directory(short_dir / "file").refusal == "it is not a directory"
    (short_dir / "loop").symlink_to("loop")
    assert look_at_directory(short_dir / "loop").refusal == "Too many levels of symbolic links"


def test_a_directory_we_may_not_look_into(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said as what it is; root may look everywhere, so the refusal is made."""

    def refuse(_: Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(listing, "names", refuse)
    assert look_at_directory(short_dir).refusal == NO_PERMISSION


def test_links_and_other_places(short_dir: Path, open_sockets: ExitStack) -> None:
    """Where a link leads, and which other directories are served; the same one is no other."""
    real, other, empty = (short_dir / name for name in ("real", "other", "empty"))
    for place in (real, other, empty):
        place.mkdir()
    (short_dir / "link").symlink_to(real)
    listen(real / "kubelet.sock", open_sockets)
    listen(other / "kubelet.sock", open_sockets)
    seen = look_at_directory(short_dir / "link", elsewhere=[real, other, empty])
    assert seen.link_to == real
    assert seen.elsewhere == (other,)


# ---------------------------------------------------------------- namespaces of their own

PLUGIN = """\
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
accepted = []
while line := sys.stdin.readline():
    if line == "accept\\n":
        accepted.append(listener.accept())
    else:
        os.unlink(sys.argv[1])
    print("done", flush=True)
"""


class Apart:
    """A plugin whose namespaces are not ours, as in a pod; `path` is that of its socket there."""

    def __init__(self, stack: ExitStack, path: Path, unshared: str, prepare: str = "true") -> None:
        require("mount")
        script = f'{prepare} && exec "$@"'
        plugin = [sys.executable, "-c", PLUGIN, str(path)]
        self._process = stack.enter_context(
            subprocess.Popen(
                ["unshare", *unshared.split(), "sh", "-ec", script, "sh", *plugin],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self._process.kill)
        assert self._told() == "listens"

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._told() == "done"

    def _told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.mark.usefixtures("kubelet")
def test_a_plugin_in_a_network_namespace_of_its_own_is_connected(
    short_dir: Path, open_sockets: ExitStack
) -> None:
    """The end that it accepted stands in the table of the kubelet, as every pod's does."""
    plugin = Apart(open_sockets, short_dir / "w.sock", "--net")
    seen = the_plugin(short_dir)
    assert seen.listener is not None
    assert (seen.listener.pid, seen.connections) == (plugin.pid, 0)
    plugin.do("accept")  # our look
    connect(short_dir / "w.sock", open_sockets)
    plugin.do("accept")
    assert the_plugin(short_dir).connections == 2


@pytest.mark.usefixtures("kubelet")
def test_a_plugin_that_mounts_the_directory_elsewhere(
    short_dir: Path, open_sockets: ExitStack
) -> None:
    """Its path is another one; the directory is the same, so a deleted socket is seen as well."""
    mount = f"mkdir {short_dir}/m && mount --bind {short_dir} {short_dir}/m"
    plugin = Apart(open_sockets, short_dir / "m" / "w.sock", "--mount --net", mount)
    seen = look_at_directory(short_dir)
    assert [each.connections for each in seen.plugins] == [0]
    assert seen.lost == ()
    plugin.do("accept")  # our look
    plugin.do("unlink")
    (lost,) = look_at_directory(short_dir).lost
    assert lost.listener is not None
    assert (lost.path, lost.listener.pid) == (short_dir / "w.sock", plugin.pid)
    assert (lost.connections, lost.is_apart) == (1, False)


@pytest.mark.parametrize("is_node", [False, True])
@pytest.mark.usefixtures("kubelet")
def test_a_directory_of_its_own_under_the_same_path(
    short_dir: Path, open_sockets: ExitStack, is_node: bool
) -> None:
    """An emptyDir in place of the hostPath; where a kubelet serves in it, it is another node."""
    prepare = f"mount -t tmpfs tmpfs {short_dir}" + is_node * f" && touch {short_dir}/kubelet.sock"
    plugin = Apart(open_sockets, short_dir / "w.sock", "--mount --net", prepare)
    lost = look_at_directory(short_dir).lost
    if is_node:
        assert lost == ()
        return
    (found,) = lost
    assert found.listener is not None
    assert (found.path, found.listener.pid) == (short_dir / "w.sock", plugin.pid)
    assert found.is_apart
