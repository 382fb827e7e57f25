"""Lets one process at a time prepare or unprepare a claim. asyncio.

During an update of a driver two processes run and use the same checkpoint. Each locks a file beside
the checkpoint (flock) while it works on a claim. The kernel releases the lock of a killed process.
"""

import asyncio
import errno
import fcntl
import logging
import os
from pathlib import Path

from kubedevices.errors import PreparedUnwritable, os_errors_as
from kubedevices.host.lock_holder import holder_of
from kubedevices.host.shared_directory import SharedDirectory

_log = logging.getLogger(__name__)

LOCK_LIMIT = 40.0
"""Seconds to wait for the other process. The kubelet waits 45 s for an answer."""

_TELL_AFTER = 1.0
"""Seconds after which the log names the other process; it needs milliseconds for a claim."""

_FIRST_PAUSE, _LAST_PAUSE = 0.002, 0.05
"""Seconds between two attempts; the pause doubles from the first to the last."""


class ClaimLock:
    """The lock on the file at `path`, as an asynchronous context. Raises `PreparedUnwritable`."""

    def __init__(self, path: Path) -> None:
        self._path, self._directory = path, SharedDirectory.at(path.parent)
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
        began, pause, is_told = loop.time(), _FIRST_PAUSE, False
        while True:
            with os_errors_as(PreparedUnwritable, self._path):
                self._file = self._try_lock()  # creates the file at first, then no disk access
            if self._file is not None:
                return
            if loop.time() > began + LOCK_LIMIT:
                text = f"{self._holder()} has held the lock for {LOCK_LIMIT:g} s: end this process"
                raise PreparedUnwritable(str(self._path), text)
            if not is_told and loop.time() > began + _TELL_AFTER:
                is_told = True
                _log.warning("waiting for the lock %s: %s holds it", self._path, self._holder())
            # Poll: a blocking flock would need a thread, and a thread cannot be cancelled.
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    def _try_lock(self) -> int | None:
        """Return the locked file, None while another process holds the lock; raises `OSError`."""
        self._directory.create()
        file = self._directory.open_lock(self._path.name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody may have removed or replaced the file meanwhile. Only a lock on the file at
            # `path` counts.
            with self._directory.opened() as place:
                found = os.stat(self._path.name, dir_fd=place, follow_symlinks=False)
            if os.path.samestat(found, os.fstat(file)):
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

    def _holder(self) -> str:
        """Return the process that holds the lock, as text."""
        try:
            file = self._directory.open_lock(self._path.name)
        except OSError:
            return "another process"
        try:
            return holder_of(file)
        finally:
            os.close(file)
