"""Unix sockets as files: whose file is it, bind it, dial it. No protocol, no event loop.

`unix_grpc` calls this; so may whoever has to know whether a socket file is still the same one.
"""

import errno
import os
import socket
import stat
import time
from pathlib import Path
from typing import NamedTuple, Self

from kubedevices.errors import CannotAsk, KubedevicesError, SocketInUse
from kubedevices.socket_paths import check_socket_path

# Connections that the kernel queues before they are accepted.
BACKLOG = 128

# 28 bits of chance at least, in a name that is no longer than the one it stands for: a path that
# fits the 107 bytes of a socket address fits with it too.
_SHORTEST_NAME = 8


class FileIdentity:
    """Which file a path leads to, whatever becomes of its mode, owner, labels and times.

    The file is held by an O_PATH descriptor, which needs no right to it: a file system gives an
    inode number out again as soon as nobody holds the inode. So two are equal if and only if they
    are of the same file, for as long as both live.
    """

    __slots__ = ("_held", "_number", "_path", "is_socket")

    def __init__(self, path: Path, found: os.stat_result, held: int | None) -> None:
        self._path, self._held = path, held
        self._number = found.st_dev, found.st_ino
        self.is_socket = stat.S_ISSOCK(found.st_mode)

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Return the identity of what is at `path` (a link itself, not its target), if anything."""
        try:
            held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            return cls(path, os.fstat(held), held)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return None
        try:  # out of descriptors is no reason to give a socket up
            return cls(path, os.lstat(path), None)
        except OSError:
            return None

    @property
    def place(self) -> str:
        """A path to this very file, even if another file has its name by now; needs /proc."""
        place = f"/proc/self/fd/{self._held}"
        return place if os.path.lexists(place) else str(self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileIdentity) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return "<FileIdentity device={} inode={}>".format(*self._number)

    def release(self) -> None:
        """Hold the file no longer; from now on its number says nothing."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def __del__(self) -> None:
        self.release()


class Listener(NamedTuple):
    """A socket that listens and the file that leads to it."""

    socket: socket.socket
    identity: FileIdentity | None


def listen(path: Path, *, mode: int, by_rename: bool = False) -> Listener:
    """Bind and listen at `path`; with `by_rename` elsewhere first, so that it appears listening.

    Removes a socket file that nobody listens on. Raises `SocketPathTooLong`, `SocketInUse`, and
    `CannotAsk` for everything else that is in the way.
    """
    check_socket_path(path)
    if by_rename:
        _check_free(path)  # a rename replaces a stale file without a gap
    else:
        _remove_stale(path)
    first = unfinished_name(path) if by_rename else path
    # A short name such as `a` gets a longer one until the rename.
    check_socket_path(first)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    identity = None
    try:
        listener.setblocking(False)
        # The file is made with the mode of the socket, so nobody gets in before a chmod.
        os.fchmod(listener.fileno(), mode)
        listener.bind(str(first))
        # Of the file that bind just made; a stranger may have replaced it already, which
        # `_set_mode` checks.
        identity = FileIdentity.of(first)
        _set_mode(identity, mode)
        listener.listen(BACKLOG)
        if by_rename:
            give_name(first, path)
        return Listener(listener, identity)
    except OSError as error:
        listener.close()
        unlink_own(first, identity)
        if error.errno == errno.EADDRINUSE:
            raise SocketInUse(str(path)) from error
        raise CannotAsk(f"cannot listen on {path}: {error.strerror or error}") from error


def give_name(first: Path, path: Path) -> None:
    """Let the file `first` appear at `path`, as a bind does: file events tell of a new file.

    Where there is a stale file, or no file can have two names, it is replaced by a rename.
    """
    try:
        # A link fails where the name is taken, and file events call it "created". A rename is
        # "moved to", for which some plugins do not watch.
        path.hardlink_to(first)
    except OSError:
        first.rename(path)
    else:
        first.unlink()


def unfinished_name(path: Path) -> Path:
    """Return a name beside `path` that nobody can guess, for a file that is renamed later.

    A name that is known could be taken by anybody who may write to the directory.
    """
    length = max(len(path.name), _SHORTEST_NAME) - 1
    return path.with_name("." + os.urandom(length).hex()[:length])


def _set_mode(identity: FileIdentity | None, mode: int) -> None:
    """Give back what the umask took away; to our socket only, not to what may have its name now."""
    if identity is None:
        raise FileNotFoundError(errno.ENOENT, "it was removed at once")
    if not identity.is_socket:
        raise FileExistsError(errno.EEXIST, "something else took its name at once")
    place = Path(identity.place)
    if stat.S_IMODE(place.stat().st_mode) != mode:
        place.chmod(mode)


def unlink_own(path: Path, identity: FileIdentity | None) -> bool:
    """Remove the file at `path` if it is still `identity`; say whether it was."""
    if identity is None or FileIdentity.of(path) != identity:
        return False
    try:
        path.unlink()
    except OSError:
        return False
    return True


def unlink_if_dead(path: Path, *, min_age: float) -> bool:
    """Remove a socket that nobody listens on, if it was made `min_age` seconds ago or earlier.

    Between bind and listen a living one refuses too. Says whether it is gone.
    """
    try:
        dead = _check_free(path)
        # Wall clock, because a file's time is of the wall clock.
        if dead is None or time.time() - path.lstat().st_mtime < min_age:
            return False
    except (KubedevicesError, OSError):
        return False
    return unlink_own(path, dead)


def _remove_stale(path: Path) -> None:
    """Make room at `path`: unlink a socket that refuses, raise if a socket answers."""
    unlink_own(path, _check_free(path))


def _check_free(path: Path) -> FileIdentity | None:
    """Return what lies at `path` when it is nothing or stale; raise `CannotAsk` otherwise."""
    found = FileIdentity.of(path)
    if found is None:
        return None
    if not found.is_socket:
        raise CannotAsk(
            f"cannot listen on {path}: a file that is not a socket is in the way; remove it"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        refusal = probe.connect_ex(found.place)
    if refusal in (errno.ECONNREFUSED, errno.ENOENT):
        return found
    if refusal in (0, errno.EAGAIN, errno.EPROTOTYPE):
        # EAGAIN: it listens, and its queue is full. EPROTOTYPE: a datagram socket, in use.
        raise SocketInUse(str(path))
    raise CannotAsk(f"cannot listen on {path}: {os.strerror(refusal)}")
