"""Unix sockets as files: identify, bind, rename, remove. No protocol, no event loop.

For `grpc_server` and `grpc_channel`, and for other modules that must know whether a path still
leads to the same socket file.
"""

import errno
import logging
import os
import socket
import stat
import struct
import time
from pathlib import Path
from typing import NamedTuple, Self

from kubedevices.errors import CannotAsk, KubedevicesError, SocketInUse
from kubedevices.values.socket_paths import check_socket_path

_log = logging.getLogger(__name__)

# Connections that the kernel queues before we accept them.
BACKLOG = 128

# Length of a temporary name: 7 hex digits, 28 random bits. A longer name gets a temporary name of
# the same length: if a path fits into the 107 bytes of a socket address, its temporary path fits.
_SHORTEST_NAME = 8

_CREDENTIALS = "iII"  # struct ucred: pid, uid, gid


class FileIdentity:
    """Identifies the file at a path, independent of its mode, owner, labels and times.

    The object holds an O_PATH descriptor, which needs no permission on the file. Without it the
    file system could give the inode number of a removed file to a new file. So two identities are
    equal if and only if they are of the same file, as long as both objects exist.
    """

    __slots__ = ("_held", "_number", "_path", "is_socket")

    def __init__(self, path: Path, found: os.stat_result, held: int | None) -> None:
        self._path, self._held = path, held
        self._number = found.st_dev, found.st_ino
        self.is_socket = stat.S_ISSOCK(found.st_mode)

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Return the identity of the file at `path` (of a link, not its target), None if none."""
        try:
            held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            return cls(path, os.fstat(held), held)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return None
        # No descriptor is free: the inode number alone is less certain, but enough to go on.
        try:
            return cls(path, os.lstat(path), None)
        except OSError:
            return None

    @property
    def fd_path(self) -> str:
        """A path to this file, even if another file now has its name; without /proc its old path.

        A `/proc/self/fd` path of an O_PATH descriptor leads to the inode, not to the name.
        """
        place = f"/proc/self/fd/{self._held}"
        return place if os.path.lexists(place) else str(self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileIdentity) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return "<FileIdentity device={} inode={}>".format(*self._number)

    def release(self) -> None:
        """Close the descriptor; after that another file may get the same inode number."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def __del__(self) -> None:
        self.release()


def peer_uid(endpoint: socket.socket) -> int:
    """Return the user of the process that listened or connected at the other end (SO_PEERCRED)."""
    size = struct.calcsize(_CREDENTIALS)
    found = endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    uid: int = struct.unpack(_CREDENTIALS, found)[1]
    return uid


class Listener(NamedTuple):
    """A listening socket and the identity of its file."""

    socket: socket.socket
    identity: FileIdentity | None


def listen(path: Path, *, mode: int, by_rename: bool = False) -> Listener:
    """Bind and listen at `path`; with `by_rename` the file appears only when the socket listens.

    Removes a socket file that no process listens on. With `by_rename` any other file there is
    renamed: its name is known to all, so strangers can create the file. Without, it is an error.
    Raises `SocketPathTooLong`, `SocketInUse`, and `CannotAsk` for any other obstacle.
    """
    check_socket_path(path)
    if by_rename:
        # `move_into_place` replaces a stale socket, without a gap.
        _check_free(path, refuses_foreign=False)
    else:
        unlink_own(path, _check_free(path))
    first = temporary_name(path) if by_rename else path
    # The temporary name of a short name such as `a` is longer.
    check_socket_path(first)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    identity = None
    try:
        listener.setblocking(False)
        # bind creates the file with the mode of the socket: no other user can connect before a
        # chmod.
        os.fchmod(listener.fileno(), mode)
        listener.bind(str(first))
        # Another process may have replaced the file since bind: `_set_mode` checks this.
        identity = FileIdentity.of(first)
        _set_mode(identity, mode)
        listener.listen(BACKLOG)
        if by_rename:
            _move_foreign(path)
            move_into_place(first, path)
        return Listener(listener, identity)
    except OSError as error:
        listener.close()
        unlink_own(first, identity)
        if error.errno == errno.EADDRINUSE:
            raise SocketInUse(str(path)) from error
        raise CannotAsk(f"cannot listen on {path}: {error.strerror or error}") from error


def move_into_place(first: Path, path: Path) -> None:
    """Give the file `first` the name `path`, with the same inotify event as bind: IN_CREATE.

    Renames if `path` exists, or if the file system does not allow two names for a file.
    """
    try:
        # A new hard link causes IN_CREATE. A rename causes IN_MOVED_TO, which some plugins do not
        # watch. A hard link fails if the name exists.
        path.hardlink_to(first)
    except OSError:
        first.rename(path)
    else:
        first.unlink()


def temporary_name(path: Path) -> Path:
    """Return a random path in the directory of `path`, for a file that is renamed later.

    Any user who may write to the directory could create a file with a predictable name.
    """
    length = max(len(path.name), _SHORTEST_NAME) - 1
    return path.with_name("." + os.urandom(length).hex()[:length])


def _set_mode(identity: FileIdentity | None, mode: int) -> None:
    """Set the mode bits that the umask removed, on our socket and not on a file with its name."""
    if identity is None:
        raise FileNotFoundError(errno.ENOENT, "the new socket file was removed at once")
    if not identity.is_socket:
        raise FileExistsError(errno.EEXIST, "another file replaced the new socket file at once")
    place = Path(identity.fd_path)
    if stat.S_IMODE(place.stat().st_mode) != mode:
        place.chmod(mode)


def unlink_own(path: Path, identity: FileIdentity | None) -> bool:
    """Remove the file at `path` if it is still `identity`; return whether it was removed."""
    if identity is None or FileIdentity.of(path) != identity:
        return False
    try:
        path.unlink()
    except OSError:
        return False
    return True


def unlink_if_dead(path: Path, *, min_age: float) -> bool:
    """Remove a socket that no process listens on and that is at least `min_age` seconds old.

    A younger socket may be between bind and listen, when it refuses connections too. Returns
    whether the socket was removed.
    """
    try:
        dead = _check_free(path)
        # The wall clock, because times of files come from it.
        if dead is None or time.time() - path.lstat().st_mtime < min_age:
            return False
    except (KubedevicesError, OSError):
        return False
    return unlink_own(path, dead)


def _move_foreign(path: Path) -> None:
    """Rename the file at `path` if it is no socket: a link, a directory, a pipe, a plain file."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            return
        kept = path.rename(f"{path}.foreign-{os.urandom(4).hex()}")
    except FileNotFoundError:
        return
    _log.warning("%s was not a socket: it is kept as %s", path, kept.name)


def _check_free(path: Path, *, refuses_foreign: bool = True) -> FileIdentity | None:
    """Return a stale socket at `path`, None for no file.

    Raises `SocketInUse` for a socket in use, `CannotAsk` for any other file, if that is refused.
    """
    found = FileIdentity.of(path)
    if found is None or not (found.is_socket or refuses_foreign):
        return None
    if not found.is_socket:
        raise CannotAsk(
            f"cannot listen on {path}: a file that is not a socket is in the way; remove it"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        refusal = probe.connect_ex(found.fd_path)
    if refusal in (errno.ECONNREFUSED, errno.ENOENT):
        return found
    if refusal in (0, errno.EAGAIN, errno.EPROTOTYPE):
        # EAGAIN: the socket listens and its queue is full. EPROTOTYPE: a datagram socket, in use.
        raise SocketInUse(str(path))
    raise CannotAsk(f"cannot listen on {path}: {os.strerror(refusal)}")
