"""Prepares the directories of a node at its start: creates, locks and cleans them.

The registration server binds `kubelet.sock` afterwards. No file is deleted before it is sure that
no other kubelet or node serves the directory.
"""

import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
from pathlib import Path

from kubedevices.errors import CannotAsk, DirectoryInUse, SocketInUse
from kubedevices.host.listing import SCAN_LIMIT, names
from kubedevices.host.untrusted_files import remove_leftovers
from kubedevices.socket_paths import CHECKPOINT_NAME
from kubedevices.wire.unix_grpc import FileIdentity

logger = logging.getLogger(__name__)

LOCK_NAME = "lock"


def prepare_plugin_directory(socket_path: Path) -> None:
    """Create the directory of `socket_path`, or clean it; raises `CannotAsk`.

    Raises `SocketInUse` and changes nothing if a process listens on `socket_path`.
    """
    claim_plugin_directory(socket_path)
    clean_plugin_directory(socket_path.parent)


def claim_plugin_directory(
    socket_path: Path, *, server: str = "another node", option: str = "--socket-dir"
) -> None:
    """Create the directory of `socket_path`; raises `CannotAsk`, `SocketInUse` if it is served.

    For the error, `server` is another possible server besides a kubelet, `option` the option that
    names the directory.
    """
    make_directory(socket_path.parent, 0o750)
    if accepts_connections(socket_path):
        text = f"a kubelet or {server} serves this directory; stop it, or choose another {option}"
        raise SocketInUse(str(socket_path), text)


def make_directory(directory: Path, mode: int) -> None:
    """Create `directory` and its parents; an existing directory keeps its mode."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        try:
            directory.mkdir(mode)
        except FileExistsError:
            if not directory.is_dir():
                raise CannotAsk(f"{directory} is not a directory") from None
    except OSError as error:
        raise CannotAsk(f"cannot create {directory}: {error.strerror}") from error


def accepts_connections(path: Path) -> bool:
    """Whether a process listens on the Unix socket `path`. Does not wait."""
    found = FileIdentity.of(path)
    if found is None or not found.is_socket:
        return False  # a link to a socket in another directory does not count
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            # Through the inspected file: the name may lead to another file by now.
            probe.connect(found.fd_path)
        except BlockingIOError:
            return True  # a listener, with a full backlog
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise CannotAsk(f"cannot connect to {path}: {error.strerror}") from error
            return False
    return True


def clean_plugin_directory(directory: Path, *, every_file: bool = False) -> None:
    """Delete the sockets in `directory`. Plugins watch the directory, and register again.

    With `every_file`, all other files except the kubelet's checkpoint are deleted too, as by
    kubelets before 1.33. Folders stay. Raises `CannotAsk` at the end if a file could not be
    deleted.
    """
    problems = []
    remove_leftovers(directory, CHECKPOINT_NAME)
    try:
        entries = [directory / name for name in names(directory, limit=SCAN_LIMIT)]
    except OSError as error:
        raise CannotAsk(f"cannot read {directory}: {error.strerror}") from error
    for entry in entries:
        # The checkpoint, and damaged checkpoints, which have longer names.
        if entry.name.startswith(CHECKPOINT_NAME):
            continue
        try:
            if _is_left_over(entry, every_file=every_file):
                entry.unlink()
        except FileNotFoundError:
            continue  # its owner has deleted it
        except OSError as error:
            problems.append(f"{entry.name}: {error.strerror}")
    if problems:
        raise CannotAsk(f"cannot clean {directory}: {'; '.join(problems)}")


def _is_left_over(entry: Path, *, every_file: bool) -> bool:
    if every_file:
        return not stat.S_ISDIR(entry.lstat().st_mode)
    try:
        # Through links, as kubelets from 1.33 do: a link to a socket is deleted too.
        return stat.S_ISSOCK(entry.stat().st_mode)
    except OSError:
        return False  # a link to no file or to itself is not a socket


class StateLock:
    """A lock that keeps a second process out of a state directory. It ends with the process.

    Different programs can share a directory: each has a lock of another `name`.
    """

    def __init__(self, state_dir: Path, name: str = LOCK_NAME, *, program: str = "node") -> None:
        self._path, self._program = state_dir / name, program
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock; raises `DirectoryInUse` if another process has it."""
        try:
            # Without O_TRUNC: until we have the lock, the file names the process that has it.
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotAsk(f"cannot open {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip()
            os.close(file)
            raise DirectoryInUse(str(self._path.parent), holder, self._program) from None
        except OSError as error:
            os.close(file)
            raise CannotAsk(f"cannot lock {self._path}: {error.strerror}") from error
        with contextlib.suppress(OSError):  # a full disk: the lock is held even without the text
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
