"""Unix sockets as files: whose file is it, bind it, dial it. No protocol, no event loop.

`unix_grpc` calls this; so may whoever has to know whether a socket file is still the same one.
"""

import errno
import os
import socket
import stat
from pathlib import Path
from typing import NamedTuple, Self

from kubedevices.errors import CannotAsk, SocketInUse
from kubedevices.socket_paths import check_socket_path

BACKLOG = 128


class FileIdentity:
    """Which file a path leads to, whatever becomes of its mode, owner, labels and times.

    The file is held by an O_PATH descriptor, which needs no right to it: a file system gives an
    inode number out again as soon as nobody holds the inode. So two are equal if and only if they
    are of the same file, for as long as both live.
    """

    __slots__ = ("_held", "_number")

    def __init__(self, number: tuple[int, int], held: int | None) -> None:
        self._number, self._held = number, held

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Return the identity of what is at `path` (a link itself, not its target), if anything."""
        try:
            held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return None
            return cls._unheld(path)  # out of descriptors is no reason to give a socket up
        found = os.fstat(held)
        return cls((found.st_dev, found.st_ino), held)

    @classmethod
    def _unheld(cls, path: Path) -> Self | None:
        try:
            found = os.lstat(path)
        except OSError:
            return None
        return cls((found.st_dev, found.st_ino), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileIdentity) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return "<FileIdentity device={} inode={}>".format(*self._number)

    def __del__(self) -> None:
        if self._held is not None:
            os.close(self._held)


class Listener(NamedTuple):
    """A socket that listens and the file that leads to it."""

    socket: socket.socket
    identity: FileIdentity | None


def listen(path: Path, *, mode: int, rename_from: Path | None = None) -> Listener:
    """Bind and listen at `path`; with `rename_from` there first, so that `path` appears listening.

    Removes a socket file that nobody listens on. Raises `SocketPathTooLong`, `SocketInUse`, and
    `CannotAsk` for everything else that is in the way.
    """
    first = path if rename_from is None else rename_from
    check_socket_path(path)
    check_socket_path(first)
    _check_free(path)  # a rename replaces a stale file without a gap
    _remove_stale(first)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = False
    try:
        listener.setblocking(False)
        # The file is made with the mode of the socket, so nobody gets in before a chmod.
        os.fchmod(listener.fileno(), mode)
        listener.bind(str(first))
        bound = True
        if stat.S_IMODE(first.lstat().st_mode) != mode:
            first.chmod(mode)  # the umask took something away
        listener.listen(BACKLOG)
        if rename_from is not None:
            rename_from.rename(path)
        return Listener(listener, FileIdentity.of(path))
    except OSError as error:
        listener.close()
        if bound:
            first.unlink(missing_ok=True)
        if error.errno == errno.EADDRINUSE:
            raise SocketInUse(str(path)) from error
        raise CannotAsk(f"cannot listen on {path}: {error.strerror or error}") from error


def unlink_own(path: Path, identity: FileIdentity | None) -> bool:
    """Remove the file at `path` if it is still `identity`; say whether it was."""
    if identity is None or FileIdentity.of(path) != identity:
        return False
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _remove_stale(path: Path) -> None:
    """Make room at `path`: unlink a socket that refuses, raise for one that answers."""
    unlink_own(path, _check_free(path))


def _check_free(path: Path) -> FileIdentity | None:
    """Return what lies at `path` when it is nothing or stale; raise `CannotAsk` otherwise."""
    found = FileIdentity.of(path)
    if found is None:
        return None
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return None  # gone this very moment
    if not is_socket:
        raise CannotAsk(f"cannot listen on {path}: a file that is no socket is in the way")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        refusal = probe.connect_ex(str(path))
    if refusal in (errno.ECONNREFUSED, errno.ENOENT):
        return found
    if refusal in (0, errno.EAGAIN, errno.EPROTOTYPE):
        # EAGAIN: it listens, and its queue is full. EPROTOTYPE: a datagram socket, in use.
        raise SocketInUse(str(path))
    raise CannotAsk(f"cannot listen on {path}: {os.strerror(refusal)}")
