"""Directories of a node: who may use them, and what a predecessor left behind."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk, DirectoryInUse, SocketInUse
from kubedevices.node.arrival.plugin_directory import (
    StateLock,
    accepts_connections,
    clean_plugin_directory,
    make_directory,
    prepare_plugin_directory,
)


@contextmanager
def listening(path: Path, backlog: int = 5) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(backlog)
        yield


def dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def fill(directory: Path) -> None:
    """Put one of everything into `directory`."""
    dead_socket(directory / "dead.sock")
    dead_socket(directory / ".kubelet.new")
    (directory / "kubelet_internal_checkpoint").write_text("{}")
    (directory / "kubelet_internal_checkpoint.corrupt-1").write_text("{")
    (directory / "DEPRECATION").write_text("old")
    (directory / "folder").mkdir()
    dead_socket(directory / "folder" / "inner.sock")
    (directory / "dangling").symlink_to("nowhere")
    (directory / "circle").symlink_to("circle")
    (directory / "link.sock").symlink_to("folder/inner.sock")


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


KEPT = {
    "kubelet_internal_checkpoint",
    "kubelet_internal_checkpoint.corrupt-1",
    "folder",
    "folder/inner.sock",
}


def test_only_sockets_are_cleaned_away(short_dir: Path) -> None:
    """Sockets and links to sockets go; files, folders, their content and dead links stay."""
    fill(short_dir)
    prepare_plugin_directory(short_dir / "kubelet.sock")
    assert names(short_dir) == KEPT | {"DEPRECATION", "dangling", "circle"}


def test_everything_but_the_checkpoint_goes_where_that_is_asked_for(short_dir: Path) -> None:
    """A kubelet before 1.33 deletes every file but its checkpoint, and every link."""
    fill(short_dir)
    clean_plugin_directory(short_dir, every_file=True)
    assert names(short_dir) == KEPT


def test_a_file_that_vanishes_while_cleaning_is_no_problem(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin may remove its socket in the same moment."""
    dead_socket(short_dir / "a.sock")
    unlink = Path.unlink

    def late(self: Path) -> None:
        unlink(self)
        unlink(self)

    monkeypatch.setattr(Path, "unlink", late)
    clean_plugin_directory(short_dir)
    assert not names(short_dir)


def test_a_file_that_cannot_be_deleted_is_named_and_the_rest_is_cleaned(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One immutable file does not keep the others."""
    dead_socket(short_dir / "a.sock")
    dead_socket(short_dir / "b.sock")
    unlink = Path.unlink

    def refuse(self: Path) -> None:
        if self.name == "a.sock":
            raise PermissionError(1, "Operation not permitted")
        unlink(self)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CannotAsk, match=r"cannot clean .*: a\.sock: Operation not permitted"):
        clean_plugin_directory(short_dir)
    assert names(short_dir) == {"a.sock"}


def test_a_served_directory_is_left_alone(short_dir: Path) -> None:
    """Where somebody accepts on kubelet.sock nothing is deleted, and the error says what to do."""
    dead_socket(short_dir / "plugin.sock")
    with (
        listening(short_dir / "kubelet.sock"),
        pytest.raises(
            SocketInUse, match=r"kubelet\.sock is already in use .* --socket-dir"
        ) as error,
    ):
        prepare_plugin_directory(short_dir / "kubelet.sock")
    assert error.value.exit_code == 3
    assert names(short_dir) == {"plugin.sock", "kubelet.sock"}


def test_a_listener_with_a_full_backlog_counts_as_alive(short_dir: Path) -> None:
    """A kubelet too busy to accept is still a kubelet."""
    path = short_dir / "kubelet.sock"
    with listening(path, backlog=0), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(path))
        assert accepts_connections(path)


def test_a_socket_without_listener_is_not_alive(short_dir: Path) -> None:
    """A kubelet leaves kubelet.sock behind when it ends."""
    dead_socket(short_dir / "kubelet.sock")
    assert not accepts_connections(short_dir / "kubelet.sock")
    assert not accepts_connections(short_dir / "missing.sock")


def test_the_plugin_directory_is_for_its_owner_and_group(short_dir: Path) -> None:
    """It is created with its parents and mode 0750; one that exists keeps its mode."""
    directory = short_dir / "a" / "b"
    prepare_plugin_directory(directory / "kubelet.sock")
    assert directory.stat().st_mode & 0o777 == 0o750
    directory.chmod(0o755)
    prepare_plugin_directory(directory / "kubelet.sock")
    assert directory.stat().st_mode & 0o777 == 0o755


def test_a_file_in_the_place_of_the_directory_is_named(short_dir: Path) -> None:
    """The message says which path is not a directory."""
    (short_dir / "file").touch()
    with pytest.raises(CannotAsk, match=r"/file is not a directory"):
        make_directory(short_dir / "file", 0o750)
    with pytest.raises(CannotAsk, match=r"cannot create .*/file/deeper"):
        make_directory(short_dir / "file" / "deeper", 0o750)


def test_a_second_process_does_not_get_the_state_directory(short_dir: Path) -> None:
    """The lock names the process that holds it, and ends with that process."""
    code = (
        "import sys; from pathlib import Path; "
        "from kubedevices.node.arrival.plugin_directory import StateLock; "
        "lock = StateLock(Path(sys.argv[1])); lock.acquire(); print('held', flush=True); "
        "sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(short_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DirectoryInUse, match=rf"process {other.pid}\) .* --state-dir") as error:
            StateLock(short_dir).acquire()
        assert error.value.exit_code == 3
        other.kill()
    lock = StateLock(short_dir)
    lock.acquire()
    assert (short_dir / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    lock.release()


def test_a_lock_that_cannot_be_opened_is_a_clear_error(short_dir: Path) -> None:
    """A state directory that is missing is said so."""
    with pytest.raises(CannotAsk, match=r"cannot open .*/lock: No such file"):
        StateLock(short_dir / "missing").acquire()


def test_a_file_system_without_locks_is_a_clear_error(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state directory may lie on a network share; nothing stays open."""

    def refuse(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(CannotAsk, match=r"cannot lock .*/lock: No locks available"):
        StateLock(short_dir).acquire()
    assert len([*Path("/proc/self/fd").iterdir()]) <= before
