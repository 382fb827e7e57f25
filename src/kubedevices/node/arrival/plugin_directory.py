"""Prepares the directories of a node at its start: creates, locks and cleans them.

The registration server binds `kubelet.sock` afterwards. No file is deleted before it is sure that
no other kubelet or node serves the directory.
"""

import errno
import fcntl
import logging
import os
import re
import socket
import stat
from pathlib import Path

from kubedevices.errors import CannotAsk, DirectoryInUse, SocketInUse
from kubedevices.host.listing import SCAN_LIMIT, names
from kubedevices.host.lock_holder import holder_of
from kubedevices.host.private_directory import check_private
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.values.socket_paths import CHECKPOINT_NAME
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
    shared = SharedDirectory(directory)
    try:
        shared.remove_leftovers(re.compile(re.escape(CHECKPOINT_NAME)))
        with shared.opened() as place:
            for name in names(place, limit=SCAN_LIMIT, of=directory):
                # The checkpoint, and damaged checkpoints, which have longer names.
                if name.startswith(CHECKPOINT_NAME):
                    continue
                try:
                    if _is_left_over(place, name, every_file=every_file):
                        os.unlink(name, dir_fd=place)
                except FileNotFoundError:
                    continue  # its owner has deleted it
                except OSError as error:
                    problems.append(f"{name}: {error.strerror}")
    except OSError as error:
        raise CannotAsk(f"cannot read {directory}: {error.strerror}") from error
    if problems:
        raise CannotAsk(f"cannot clean {directory}: {'; '.join(problems)}")


def _is_left_over(place: int, name: str, *, every_file: bool) -> bool:
    if every_file:
        return not stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
    try:
        # Through links, as kubelets from 1.33 do: a link to a socket is deleted too.
        return stat.S_ISSOCK(os.stat(name, dir_fd=place).st_mode)
    except OSError:
        return False  # a link to no file or to itself is not a socket


class StateLock:
    """A lock that keeps a second process out of a state directory. It ends with the process.

    Different programs can share a directory: each has a lock of another `name`.
    """

    def __init__(self, state_dir: Path, name: str = LOCK_NAME, *, program: str = "node") -> None:
        self._state_dir, self._name, self._program = state_dir, name, program
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock; raises `DirectoryInUse` if another process has it.

        Raises `CannotAsk` if other users may change the directory.
        """
        check_private(self._state_dir)
        path = self._state_dir / self._name
        try:
            file = SharedDirectory(self._state_dir).open_lock(self._name)
        except OSError as error:
            raise CannotAsk(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = holder_of(file)
            os.close(file)
            raise DirectoryInUse(str(self._state_dir), holder, self._program) from None
        except OSError as error:
            os.close(file)
            raise CannotAsk(f"cannot lock {path}: {error.strerror}") from error
        self._file = file

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
