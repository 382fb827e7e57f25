"""Tells when files appear, vanish, are replaced or rewritten. Not for recursive trees.

File events (inotify) are the fast signal. Behind them stands a slow look at every watched path,
because events may not be available (limits, odd file systems, swapped bind mounts) and because
the directory itself may not be there yet. A consumer gets a reason to look, never a verdict: it
compares for itself what it cares about. The registrar watches its own socket and kubelet.sock.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from asyncinotify import Inotify, Watch

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0
"""Seconds between two looks that happen without any event."""


class _Signature(NamedTuple):
    """What tells one state of a file from another; a file system may reuse an inode at once."""

    device: int
    inode: int
    changed_ns: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, path: Path) -> "_Signature | None":
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)


class _Directory(NamedTuple):
    """A directory under watch, and which one it was when the watch was added."""

    watch: "Watch"
    identity: tuple[int, int] | None


class Subscription:
    """What one consumer wants to hear of; made by `FileWatch.subscribe`."""

    def __init__(self, paths: tuple[Path, ...], event: asyncio.Event) -> None:
        self.paths = paths
        self._signatures = {path: _Signature.of(path) for path in paths}
        self._event = event

    async def changed(self) -> None:
        """Return once something happened since the last call; at once if it already did."""
        await self._event.wait()
        self._event.clear()

    @property
    def has_news(self) -> bool:
        """Whether `changed()` would return at once."""
        return self._event.is_set()

    def look(self) -> None:
        """Compare every path with its last state; called by the watch, and by who made a file."""
        for path, before in self._signatures.items():
            now = _Signature.of(path)
            if now != before:
                self._signatures[path] = now
                self._event.set()

    def take_event(self, path: Path) -> None:
        """Note an event that names `path`: it counts even when the file looks the same by now."""
        if path in self._signatures:
            self._event.set()


class FileWatch:
    """One per process or directory; any number of subscriptions share its events and its timer.

    `interval` is the time between two slow looks. `use_events=False` leaves only these. Start and
    close it on the loop that reads the subscriptions.
    """

    def __init__(self, *, interval: float = LOOK_INTERVAL, use_events: bool = True) -> None:
        self._interval = interval
        self._wants_events = use_events
        self._inotify: Inotify | None = None
        self._directories: dict[Path, _Directory] = {}
        self._subscriptions: set[Subscription] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failure = ""

    @property
    def has_events(self) -> bool:
        """Whether file events are available; without them only the slow looks work."""
        return self._inotify is not None

    def start(self) -> None:
        """Begin to watch; paths come with `subscribe`."""
        self._open_events()
        self._schedule()

    def close(self) -> None:
        """Stop watching; subscriptions hear nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._close_events()
        self._subscriptions.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def subscribe(self, *paths: Path, event: asyncio.Event | None = None) -> Iterator[Subscription]:
        """Watch `paths` while the context lasts; each change from now on is heard of.

        `event` is set at each change; a consumer gives its own one to wait for other things too.
        """
        subscription = Subscription(paths, event or asyncio.Event())
        self._subscriptions.add(subscription)
        try:
            self._watch_directories()
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            self._watch_directories()

    # ------------------------------------------------------------ slow looks

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look_slowly)

    def _look_slowly(self) -> None:
        self._schedule()
        if self._inotify is None:
            self._open_events()
        self._watch_directories()
        self._look()

    def _look(self) -> None:
        for subscription in self._subscriptions:
            subscription.look()

    # ------------------------------------------------------------ events

    def _open_events(self) -> None:
        if not self._wants_events:
            return
        try:
            # Imported here: it loads ctypes, and a platform without inotify must still work.
            from asyncinotify import Inotify  # noqa: PLC0415

            self._inotify = Inotify(sync_timeout=0)
        except (OSError, RuntimeError, ImportError, AttributeError) as error:
            self._tell(f"file events are not available ({error})")
            return
        asyncio.get_running_loop().add_reader(self._inotify.fd, self._read_events)

    def _close_events(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None
        self._directories.clear()

    def _tell(self, problem: str) -> None:
        """Log a new problem once, and once that it is over (an empty `problem`)."""
        if problem and problem != self._failure:
            logger.warning("%s: looking every %g s instead", problem, self._interval)
        elif self._failure and not problem:
            logger.info("file events work again")
        self._failure = problem

    def _read_events(self) -> None:
        from asyncinotify import Mask  # noqa: PLC0415

        assert self._inotify is not None
        try:
            events = list(self._inotify)
        except OSError as error:
            self._tell(f"file events failed ({error})")
            self._close_events()
            return
        for event in events:
            if event.watch is not None and Mask.IGNORED in event.mask:
                self._forget(event.watch)  # the directory is gone; one like it may be there again
            if event.name is not None and (path := event.path) is not None:
                for subscription in self._subscriptions:
                    subscription.take_event(path)
        self._watch_directories()  # one of them may have come, gone or been replaced
        self._look()

    # ------------------------------------------------------------ which directories

    def _watch_directories(self) -> None:
        """Bring the inotify watches in line with the subscriptions and with what exists."""
        if self._inotify is None:
            return
        wanted = {
            _nearest_existing(path.parent)
            for subscription in self._subscriptions
            for path in subscription.paths
        }
        for path, directory in list(self._directories.items()):
            if path not in wanted or directory.identity != _identity(path):
                self._remove(path)
        added = [path for path in wanted if path not in self._directories and self._add(path)]
        if added:
            self._look()  # something may have happened before the watch was added

    def _add(self, path: Path) -> bool:
        from asyncinotify import Mask  # noqa: PLC0415

        assert self._inotify is not None
        mask = (
            Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.CLOSE_WRITE
            | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
        )  # fmt: skip
        identity = _identity(path)
        try:
            watch = self._inotify.add_watch(path, mask)
        except OSError as error:
            if identity is not None:  # not only a directory that vanished meanwhile
                self._tell(f"cannot watch {path} ({error.strerror})")
            return False
        self._directories[path] = _Directory(watch, identity)
        self._tell("")
        return True

    def _remove(self, path: Path) -> None:
        assert self._inotify is not None
        directory = self._directories.pop(path)
        with contextlib.suppress(OSError):  # the kernel drops the watch of a deleted directory
            self._inotify.rm_watch(directory.watch)

    def _forget(self, watch: "Watch") -> None:
        for path, directory in list(self._directories.items()):
            if directory.watch is watch:
                del self._directories[path]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _nearest_existing(path: Path) -> Path:
    """Return `path`, or the closest ancestor that exists: there it will begin to appear."""
    while _identity(path) is None and path != path.parent:
        path = path.parent
    return path
