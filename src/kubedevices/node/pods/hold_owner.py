"""The command for which the devices of a pod are held: one locked file per pod.

`kubedevices with` makes the file, and its command inherits the open file. The kernel releases the
lock when the last process that has the file open has ended, also after SIGKILL and in another PID
namespace. So a file without a lock belongs to a command that has ended without releasing the pod.
The functions block as long as the disk does.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from kubedevices.config.documents.json_text import read_json
from kubedevices.errors import CannotAsk, HoldInUse

OWNERS = "owners"
"""The directory of these files in a node's state directory."""

_LARGEST = 64 * 1024
_LONGEST = 1000  # characters of a command, enough to recognise it
_FLOCK = "hhqqi0q"  # struct flock: type, whence, start, length (0: the whole file), pid
_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HoldOwner(NamedTuple):
    """The command for which a pod holds devices; `pid` is the process of `kubedevices with`."""

    pid: int
    command: str
    is_running: bool


class OwnedHold:
    """The lock on the file of a pod, from `claim` to the end of the `with` block.

    `was_left_behind`: an earlier command of this pod has ended without releasing its devices. The
    command has to inherit `file`. Set `is_released` when the node has released the devices.
    """

    def __init__(self, directory: int, name: str, file: int) -> None:
        self._directory, self._name, self.file = directory, name, file
        self.was_left_behind = os.fstat(file).st_size > 0
        self.is_released = False

    @classmethod
    def claim(cls, state_dir: Path, pod_uid: str, command: str) -> Self:
        """Lock the file of the pod; raises `HoldInUse` while its command runs, and `CannotAsk`."""
        path = state_dir / OWNERS / _file_name(pod_uid)
        try:
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(mode=0o700)
            directory = os.open(path.parent, _DIRECTORY)
        except OSError as error:
            raise CannotAsk(f"cannot use {path.parent}: {error.strerror}") from error
        try:
            hold = cls(directory, path.name, _locked(directory, path.name, pod_uid))
        except OSError as error:
            os.close(directory)
            raise CannotAsk(f"cannot write {path}: {error.strerror}") from error
        except BaseException:
            os.close(directory)
            raise
        try:
            content = {"pod_uid": pod_uid, "pid": os.getpid(), "command": command[:_LONGEST]}
            os.ftruncate(hold.file, 0)
            os.pwrite(hold.file, json.dumps(content).encode(), 0)
        except OSError as error:
            hold.__exit__()
            raise CannotAsk(f"cannot write {path}: {error.strerror}") from error
        return hold

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_released:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._directory)
        os.close(self.file)
        os.close(self._directory)


def read_owners(state_dir: Path) -> Mapping[str, HoldOwner]:
    """Return the owners by pod uid. Files that cannot be read are skipped."""
    try:
        directory = os.open(state_dir / OWNERS, _DIRECTORY)
    except OSError:
        return {}
    try:
        return dict(_read_all(directory))
    finally:
        os.close(directory)


def _read_all(directory: int) -> Iterator[tuple[str, HoldOwner]]:
    for name in os.listdir(directory):
        try:
            file = _open(directory, name, _FILE)
        except OSError:
            continue  # removed meanwhile, or not our file
        try:
            content = _content(file)
            if content is not None:
                yield content[0], HoldOwner(*content[1:], is_running=_is_locked(file))
        finally:
            os.close(file)


def _content(file: int) -> tuple[str, int, str] | None:
    """Return pod uid, PID and command; None if the file is not ours or not written yet."""
    try:
        content = read_json(os.pread(file, _LARGEST, 0), limit=_LARGEST)
        return str(content["pod_uid"]), int(content["pid"]), str(content["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _locked(directory: int, name: str, pod_uid: str) -> int:
    """Open and lock the file `name`; raises `HoldInUse` if another process has the lock."""
    while True:
        file = _open(directory, name, _FILE | os.O_CREAT)
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _lock_of_all())
            if _is_still(directory, name, file):
                return file
        except OSError as error:
            _, pid, command = _content(file) or (pod_uid, 0, "")
            os.close(file)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise HoldInUse(pod_uid, pid, command) from None
            raise
        os.close(file)  # its owner has removed it after we opened it and before we locked it


def _is_still(directory: int, name: str, file: int) -> bool:
    try:
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(file))


def _open(directory: int, name: str, flags: int) -> int:
    file = os.open(name, flags, 0o600, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def _lock_of_all() -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _is_locked(file: int) -> bool:
    """Whether the file is locked. Does not lock the file, so no `claim` fails because of us."""
    answer: bytes = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _lock_of_all())
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _file_name(pod_uid: str) -> str:
    """Return a file name of a fixed length: a uid may have any characters, and 250 of them."""
    import hashlib  # noqa: PLC0415 - loads OpenSSL, which a node does not need otherwise

    return hashlib.sha256(pod_uid.encode()).hexdigest()[:32]
