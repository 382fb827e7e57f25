"""Tells when files appear, vanish, are replaced or rewritten. Not for recursive trees.

File events (inotify) are the fast signal. Behind them stands a slow look at every watched path,
because events may not be available (limits, odd file systems, swapped bind mounts) and because
the directory itself may not be there yet. A consumer gets a reason to look, never a verdict: it
compares for itself what it cares about. The registrar watches its own socket and kubelet.sock.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from kubedevices.host import inotify

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0
"""Seconds between two looks that happen without any event."""


class _Signature(NamedTuple):
    """The numbers that tell two states of a file apart: the inode alone may be reused at once."""

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


class _Watched(NamedTuple):
    """A directory or file under watch, and its identity when the watch was added."""

    watch: int
    mask: int
    identity: tuple[int, int] | None


class Subscription:
    """The paths of one consumer, and its event; made by `FileWatch.subscribe`."""

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

    `interval` is the time between two slow looks. `use_events=False` leaves only these. With
    `names_only` events tell of names that come and go, not of what is written to a file or happens
    behind a link. Then a neighbour that is replaced all the time, as a kubelet's checkpoint, costs
    nothing while all the names are there: a file under watch tells itself when it loses its name.
    Start and close it on the loop that reads the subscriptions.
    """

    def __init__(
        self,
        *,
        interval: float = LOOK_INTERVAL,
        use_events: bool = True,
        names_only: bool = False,
    ) -> None:
        self._interval = interval
        self._wants_events, self._names_only = use_events, names_only
        self._inotify: inotify.Inotify | None = None
        self._watched: dict[Path, _Watched] = {}
        self._names: dict[int, set[bytes]] = {}  # by watch, those that somebody waits for
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
        # The signatures are taken first, the watches added after that: `_update_watches` looks once
        # more.
        subscription = Subscription(paths, event or asyncio.Event())
        self._subscriptions.add(subscription)
        try:
            self._update_watches()
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            self._update_watches()

    # ------------------------------------------------------------ slow looks

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look_slowly)

    def _look_slowly(self) -> None:
        self._schedule()
        if self._inotify is None:
            self._open_events()
        self._update_watches()
        self._look()

    def _look(self) -> None:
        for subscription in self._subscriptions:
            subscription.look()

    # ------------------------------------------------------------ events

    def _open_events(self) -> None:
        if not self._wants_events:
            return
        try:
            self._inotify = inotify.Inotify()
        except OSError as error:
            self._tell(f"file events are not available ({error})")
            return
        asyncio.get_running_loop().add_reader(self._inotify.fd, self._read_events)

    def _close_events(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None
        self._watched.clear()
        self._names.clear()

    def _tell(self, problem: str) -> None:
        """Log a new problem once, and once that it is over (an empty `problem`)."""
        if problem and problem != self._failure:
            logger.warning("%s: looking every %g s instead", problem, self._interval)
        elif self._failure and not problem:
            logger.info("file events work again")
        self._failure = problem

    def _read_events(self) -> None:
        assert self._inotify is not None
        has_news = not self._names_only
        try:
            for watch, mask, name in self._inotify.read():
                if mask & inotify.IGNORED:
                    self._forget(watch)  # the directory is gone; one like it may be there again
                # When the kernel's queue overflows, an event without a name comes: it counts as
                # news, and the look below finds what was lost.
                if name and name not in self._names.get(watch, ()):
                    continue  # a neighbour
                has_news = True
                self._take_event(watch, name)
        except OSError as error:
            self._tell(f"file events failed ({error})")
            self._close_events()
            return
        if has_news:
            self._update_watches()  # one of them may have come, gone or been replaced
            self._look()

    def _take_event(self, watch: int, name: bytes) -> None:
        for path, known in self._watched.items():
            if known.watch == watch:
                for subscription in self._subscriptions:
                    subscription.take_event(path / os.fsdecode(name))

    # ------------------------------------------------------------ which directories and files

    def _update_watches(self) -> None:
        """Bring the inotify watches in line with the subscriptions and with what exists."""
        if self._inotify is None:
            return
        wanted: dict[Path, set[bytes]] = {}
        for subscription in self._subscriptions:
            for path in subscription.paths:
                directory = _nearest_existing(path.parent)
                name = path.relative_to(directory).parts[0]
                wanted.setdefault(directory, set()).add(os.fsencode(name))
        # A path whose directory is missing is watched at the nearest ancestor that exists.
        before, kept, self._names = dict(self._watched), set[Path](), {}
        for directory, names in wanted.items():
            mask, held = inotify.OF_CONTENTS, set[Path]()
            if self._names_only:
                # Files first: one that goes after that will say so itself.
                files = {directory / os.fsdecode(name) for name in names}
                held = {path for path in files - wanted.keys() if self._watch_file(path)}
                mask = inotify.OF_ITSELF if held == files else inotify.OF_NAMES
            kept |= held
            if self._watch(directory, mask):
                kept.add(directory)
                # Two paths may lead to one directory.
                self._names.setdefault(self._watched[directory].watch, set()).update(names)
        for path in self._watched.keys() - kept:
            self._unwatch(path)
        if self._watched != before:
            self._look()  # something may have happened before a watch was added

    def _watch_file(self, path: Path) -> bool:
        return not os.path.isdir(path) and self._watch(path, inotify.OF_A_FILE)  # noqa: PTH112 - never raises

    def _watch(self, path: Path, mask: int) -> bool:
        """Say whether `path` is under watch now; log why a directory that is there is not."""
        assert self._inotify is not None
        identity, known = _identity(path), self._watched.get(path)
        if known is not None and known[1:] == (mask, identity):
            return True
        is_file = mask == inotify.OF_A_FILE
        try:
            watch = self._inotify.add(path, mask)
        except OSError as error:
            if identity is not None and not is_file:  # not only a directory that vanished meanwhile
                self._tell(f"cannot watch {path} ({error.strerror})")
            return False
        # inotify gives the same number for the same inode, so only another file has another watch.
        if known is not None and known.watch != watch:
            self._unwatch(path)
        self._watched[path] = _Watched(watch, mask, identity)
        if not is_file:
            self._tell("")
        return True

    def _unwatch(self, path: Path) -> None:
        assert self._inotify is not None
        watch = self._watched.pop(path).watch
        if all(each.watch != watch for each in self._watched.values()):
            with contextlib.suppress(OSError):  # the kernel drops the watch of what was deleted
                self._inotify.remove(watch)

    def _forget(self, watch: int) -> None:
        for path, known in list(self._watched.items()):
            if known.watch == watch:
                del self._watched[path]


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
