"""Looking at a real directory with real sockets: who listens, who is connected, what is left."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kubedevices.explain import look_directory
from kubedevices.explain.facts import MISSING, NO_PERMISSION, NO_SOCKET, NOBODY
from kubedevices.explain.look_directory import look_at_directory, look_at_socket


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


def test_a_listener_is_found_with_its_connections(short_dir: Path, open_sockets: ExitStack) -> None:
    """Which process accepts, and how many others than us are connected."""
    path = short_dir / "w.sock"
    listener = listen(path, open_sockets)
    alone = look_at_socket(path)
    assert alone.listener is not None
    assert (alone.refusal, alone.listener.pid, alone.connections) == ("", os.getpid(), 0)
    assert alone.since == path.stat().st_mtime
    connect(path, open_sockets)
    for _ in range(2):  # our own look, which has left, and the one that stays
        open_sockets.enter_context(listener.accept()[0])
    assert look_at_socket(path).connections == 2  # the one that left is not noticed by the listener


def test_a_look_is_not_counted_once_the_listener_noticed_it(
    short_dir: Path, open_sockets: ExitStack
) -> None:
    """A plugin closes what its peer closed, so the next look counts from nothing again."""
    path = short_dir / "w.sock"
    listener = listen(path, open_sockets)
    look_at_socket(path)
    listener.accept()[0].close()
    assert look_at_socket(path).connections == 0


def test_a_socket_seen_under_another_path_is_found_by_name(
    short_dir: Path, open_sockets: ExitStack
) -> None:
    """As it is with a plugin in a container, which has the directory elsewhere."""
    name = f"{short_dir.name}.sock"  # by name alone: no other process may have one like it
    (short_dir / "inside").mkdir()
    listen(short_dir / "inside" / name, open_sockets)
    os.link(short_dir / "inside" / name, short_dir / name)
    assert look_at_socket(short_dir / name).connections == 0


@pytest.mark.parametrize("kind", [MISSING, NO_SOCKET, NOBODY])
def test_what_refuses(short_dir: Path, open_sockets: ExitStack, kind: str) -> None:
    """Nothing there, a file that is no socket, a socket that its process left behind."""
    path = short_dir / "w.sock"
    if kind == NO_SOCKET:
        path.touch()
    if kind == NOBODY:
        listen(path, open_sockets).close()
    assert look_at_socket(path).refusal == kind


def test_a_directory_tells_kubelet_and_plugins_apart(
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
    assert (seen.refusal, seen.kubelet.refusal, seen.deleted) == ("", "", ())
    assert [(each.path.name, each.refusal) for each in seen.plugins] == [
        ("a.sock", NOBODY),
        ("b.sock", ""),
    ]


def test_a_deleted_socket_is_found_with_its_owner(short_dir: Path, open_sockets: ExitStack) -> None:
    """Its process listens on, and nobody can reach it."""
    listen(short_dir / "w.sock", open_sockets)
    assert look_at_directory(short_dir).deleted == ()
    (short_dir / "w.sock").unlink()
    (deleted,) = look_at_directory(short_dir).deleted
    assert deleted.path == short_dir / "w.sock"
    assert deleted.listener is not None
    assert deleted.listener.pid == os.getpid()


def test_a_renamed_socket_is_not_a_deleted_one(short_dir: Path, open_sockets: ExitStack) -> None:
    """The kernel remembers the path that it was bound to, as of `kubelet.sock` here."""
    listen(short_dir / ".new", open_sockets)
    (short_dir / ".new").rename(short_dir / "kubelet.sock")
    seen = look_at_directory(short_dir)
    assert seen.kubelet is not None
    assert (seen.kubelet.refusal, seen.deleted) == ("", ())
    listen(short_dir / "w.sock", open_sockets)
    (short_dir / "w.sock").unlink()
    assert [each.path.name for each in look_at_directory(short_dir).deleted] == ["w.sock"]


@pytest.mark.parametrize("may_connect", [True, False])
def test_a_renamed_socket_is_none_without_root_either(
    short_dir: Path, open_sockets: ExitStack, monkeypatch: pytest.MonkeyPatch, may_connect: bool
) -> None:
    """Whoever may not see owners may not be able to connect either."""
    monkeypatch.setattr(look_directory, "owner_of", lambda inode, proc_root: None)
    if not may_connect:
        monkeypatch.setattr(look_directory, "_connect", lambda probe, path: NO_PERMISSION)
    listen(short_dir / ".new", open_sockets)
    (short_dir / ".new").rename(short_dir / "kubelet.sock")
    assert look_at_directory(short_dir).deleted == ()
    listen(short_dir / "w.sock", open_sockets)
    (short_dir / "w.sock").unlink()
    assert [each.path.name for each in look_at_directory(short_dir).deleted] == ["w.sock"]


def test_what_is_no_directory(short_dir: Path) -> None:
    """Missing, a file, or not for us."""
    assert look_at_directory(short_dir / "nothing").refusal == MISSING
    (short_dir / "file").touch()
    assert look_at_directory(short_dir / "file").refusal == "it is no directory"
    (short_dir / "loop").symlink_to("loop")
    assert look_at_directory(short_dir / "loop").refusal == "Too many levels of symbolic links"


def test_a_directory_we_may_not_look_into(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said as what it is; root may look everywhere, so the refusal is made."""

    def refuse(_: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
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
