"""The directories of a node: permissions, locks, and files of an earlier process."""

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
from tests.planted import PLANTS, Outside, plant


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
    """Create one file of each kind in `directory`."""
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


def test_only_sockets_are_deleted(short_dir: Path) -> None:
    """Sockets and links to sockets are deleted.

    Files, folders, their content and dangling links stay.
    """
    fill(short_dir)
    prepare_plugin_directory(short_dir / "kubelet.sock")
    assert names(short_dir) == KEPT | {"DEPRECATION", "dangling", "circle"}


def test_with_every_file_only_the_checkpoint_and_folders_stay(short_dir: Path) -> None:
    """A kubelet before 1.33 deletes every file except its checkpoint, and every link."""
    fill(short_dir)
    clean_plugin_directory(short_dir, every_file=True)
    assert names(short_dir) == KEPT


def test_a_file_that_vanishes_during_the_cleanup_is_no_error(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin may remove its socket at the same time."""
    dead_socket(short_dir / "a.sock")
    unlink = Path.unlink

    def late(self: Path) -> None:
        unlink(self)
        unlink(self)

    monkeypatch.setattr(Path, "unlink", late)
    clean_plugin_directory(short_dir)
    assert not names(short_dir)


def test_a_file_that_cannot_be_deleted_is_named_and_the_rest_is_deleted(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One immutable file does not prevent the deletion of others."""
    dead_socket(short_dir / "a.sock")
    dead_socket(short_dir / "b.sock")
    unlink = os.unlink

    def refuse(name: str, **directory: int) -> None:
        if name == "a.sock":
            raise PermissionError(1, "Operation not permitted")
        unlink(name, **directory)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(CannotAsk, match=r"cannot clean .*: a\.sock: Operation not permitted"):
        clean_plugin_directory(short_dir)
    assert names(short_dir) == {"a.sock"}


def test_a_directory_with_a_running_kubelet_is_not_changed(short_dir: Path) -> None:
    """If a process accepts on kubelet.sock, nothing is deleted, and the error has advice."""
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


def test_a_listener_with_a_full_backlog_counts_as_running(short_dir: Path) -> None:
    """A kubelet that is too busy to accept is still running."""
    path = short_dir / "kubelet.sock"
    with listening(path, backlog=0), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(path))
        assert accepts_connections(path)


def test_a_socket_without_a_listener_does_not_count_as_running(short_dir: Path) -> None:
    """A kubelet leaves kubelet.sock behind when it ends."""
    dead_socket(short_dir / "kubelet.sock")
    assert not accepts_connections(short_dir / "kubelet.sock")
    assert not accepts_connections(short_dir / "missing.sock")


def test_the_plugin_directory_is_created_with_mode_0750(short_dir: Path) -> None:
    """Its parents are created too. A directory that exists keeps its mode."""
    directory = short_dir / "a" / "b"
    prepare_plugin_directory(directory / "kubelet.sock")
    assert directory.stat().st_mode & 0o777 == 0o750
    directory.chmod(0o755)
    prepare_plugin_directory(directory / "kubelet.sock")
    assert directory.stat().st_mode & 0o777 == 0o755


def test_a_file_instead_of_the_plugin_directory_is_an_error(short_dir: Path) -> None:
    """The message names the path that is not a directory."""
    (short_dir / "file").touch()
    with pytest.raises(CannotAsk, match=r"/file is not a directory"):
        make_directory(short_dir / "file", 0o750)
    with pytest.raises(CannotAsk, match=r"cannot create .*/file/deeper"):
        make_directory(short_dir / "file" / "deeper", 0o750)


def test_the_state_directory_is_locked_for_one_process(short_dir: Path) -> None:
    """The error names the process that holds the lock. The lock ends with that process."""
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
        with pytest.raises(DirectoryInUse, match=rf"process {other.pid} \(.* --state-dir") as error:
            StateLock(short_dir).acquire()
        assert error.value.exit_code == 3
        other.kill()
    lock = StateLock(short_dir)
    lock.acquire()
    lock.release()
    lock.release()


@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_lock_file_leads_nowhere(short_dir: Path, kind: str) -> None:
    """Nothing outside is written, and the lock is held on a file of ours."""
    outside, state = Outside(short_dir / "outside"), short_dir / "state"
    state.mkdir(mode=0o700)
    plant(kind, state / "lock", outside)
    lock = StateLock(state)
    lock.acquire()
    with pytest.raises(DirectoryInUse):
        StateLock(state).acquire()
    assert (state / "lock").is_file()
    assert not (state / "lock").is_symlink()
    lock.release()
    outside.assert_untouched()


def test_a_state_directory_that_others_may_write_to_is_refused(short_dir: Path) -> None:
    """Nothing is created there."""
    (short_dir / "state").mkdir()
    (short_dir / "state").chmod(0o777)
    with pytest.raises(CannotAsk, match="chmod go-w"):
        StateLock(short_dir / "state").acquire()
    assert not names(short_dir / "state")


def test_a_lock_file_that_cannot_be_opened_is_a_clear_error(short_dir: Path) -> None:
    """The message says that the state directory is missing."""
    with pytest.raises(CannotAsk, match=r"cannot open .*/lock: No such file"):
        StateLock(short_dir / "missing").acquire()


def test_a_file_system_without_locks_is_a_clear_error(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state directory may be on a network share. No file stays open."""

    def refuse(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(CannotAsk, match=r"cannot lock .*/lock: No locks available"):
        StateLock(short_dir).acquire()
    assert len([*Path("/proc/self/fd").iterdir()]) <= before
