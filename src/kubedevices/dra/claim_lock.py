"""Lets one process at a time prepare or unprepare a claim. asyncio.

During an update of a driver two processes run and use the same checkpoint. Each locks a file beside
the checkpoint (flock) while it works on a claim. The kernel releases the lock of a killed process.
"""

import asyncio
import errno
import fcntl
import os
from pathlib import Path

from kubedevices.errors import PreparedUnwritable

LOCK_LIMIT = 40.0
"""Seconds to wait for the other process. The kubelet waits 45 s for an answer."""

_FIRST_PAUSE, _LAST_PAUSE = 0.002, 0.05
"""Seconds between two attempts; the pause doubles from the first to the last."""


class ClaimLock:
    """The lock on the file at `path`, as an asynchronous context. Raises `PreparedUnwritable`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Calls within this process wait for `_inner`, in order and without polling. The file is for
        # other processes.
        self._inner = asyncio.Lock()
        self._file: int | None = None

    async def __aenter__(self) -> None:
        """Wait for the lock, at most `LOCK_LIMIT` seconds for another process."""
        await self._inner.acquire()
        try:
            await self._take()
        except BaseException:
            self._inner.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        """Release the lock for the next call."""
        self.release()

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._inner.release()

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + LOCK_LIMIT, _FIRST_PAUSE
        while True:
            try:
                self._file = _try_lock(self._path)  # creates the file at first, then no disk access
            except OSError as error:
                raise PreparedUnwritable(str(self._path), error.strerror or str(error)) from error
            if self._file is not None:
                return
            if loop.time() > until:
                problem = f"another instance of the driver has held the lock for {LOCK_LIMIT:g} s"
                raise PreparedUnwritable(str(self._path), problem)
            # Poll: a blocking flock would need a thread, and a thread cannot be cancelled.
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)


def _try_lock(path: Path) -> int | None:
    """Return the locked file, None while another process holds the lock; raises `OSError`."""
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, how, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody may have removed or replaced the file meanwhile. Only a lock on the file at
        # `path` counts.
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - the same call as for the file
        mine = os.fstat(file)
        if (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass  # another process holds the lock, or somebody removed the file
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):  # a file system without locks
            return file
        os.close(file)
        raise
    os.close(file)
    return None
