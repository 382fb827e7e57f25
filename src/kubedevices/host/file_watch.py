"""Tells when files appear, disappear, are replaced or rewritten. Not for recursive trees.

File events (inotify) are the fast signal. In addition a timer checks every watched path, because
events may be unavailable (limits, some file systems, replaced bind mounts), and because the
directory may not exist yet. A consumer learns that something may have changed; it must check the
files itself. The registrar watches its own socket and kubelet.sock.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from kubedevices.host import inotify

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0
"""Seconds between two checks by the timer."""


INSTANCES_LIMIT = 32
"""inotify instances of this process. Linux gives all processes of a user 128 by default."""


class _Signature(NamedTuple):
    """Numbers that differ between two states of a file; an inode number alone may be reused."""

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


class _WatchedPath(NamedTuple):
    """The inotify watch of a directory or file, and its identity when the watch was added."""

    watch: int
    mask: int
    identity: tuple[int, int] | None


class Subscription:
    """The paths and the event of one consumer; `FileWatch.subscribe` creates it."""

    def __init__(self, paths: tuple[Path, ...], event: asyncio.Event) -> None:
        self.paths = paths
        self._signatures = {path: _Signature.of(path) for path in paths}
        self._event = event

    async def changed(self) -> None:
        """Wait for a change; return at once if one happened since the last call."""
        await self._event.wait()
        self._event.clear()

    @property
    def has_news(self) -> bool:
        """Whether `changed()` would return at once."""
        return self._event.is_set()

    def look(self) -> None:
        """Compare each path with its last state; for `FileWatch`, and after an own change."""
        for path, before in self._signatures.items():
            now = _Signature.of(path)
            if now != before:
                self._signatures[path] = now
                self._event.set()

    def take_event(self, path: Path) -> None:
        """Record an event of `path`: it counts even if the file looks unchanged now."""
        if path in self._signatures:
            self._event.set()


class FileWatch:
    """One inotify instance and one timer for any number of subscriptions.

    `interval` is the number of seconds between two checks by the timer. `use_events=False` disables
    inotify. With `names_only`, events report only names that appear or disappear, not writes to a
    file or changes behind a link. Then frequent changes of another file in the directory, such as
    the kubelet's checkpoint, wake us only while a watched name is missing: while all files exist,
    we watch the files instead of the names in the directory. Call `start` and `close` on the event
    loop that reads the subscriptions. Above `INSTANCES_LIMIT` instances only the timer works.
    """

    with_events: ClassVar[set["FileWatch"]] = set()

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
        self._watched: dict[Path, _WatchedPath] = {}
        self._names: dict[int, set[bytes]] = {}  # watch → names in the directory that we wait for
        self._subscriptions: set[Subscription] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failure = ""

    @property
    def has_events(self) -> bool:
        """Whether file events are available; without them only the timer checks the paths."""
        return self._inotify is not None

    def start(self) -> None:
        """Start the events and the timer; `subscribe` adds paths."""
        self._open_events()
        self._schedule()

    def close(self) -> None:
        """Stop; subscriptions get no more events."""
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
        """Watch `paths` while the context lasts; no change from now on is lost.

        `event` is set at each change; a consumer that waits for other things too passes its own.
        """
        # Read the signatures first, then add the watches: `_update_watches` compares once more, so
        # a change between the two is found.
        subscription = Subscription(paths, event or asyncio.Event())
        self._subscriptions.add(subscription)
        try:
            self._update_watches()
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            self._update_watches()

    # ------------------------------------------------------------ the timer

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._poll)

    def _poll(self) -> None:
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
        if not self._wants_events or len(self.with_events) >= INSTANCES_LIMIT:
            return
        try:
            self._inotify = inotify.Inotify()
        except OSError as error:
            self._log_problem(f"file events are not available ({error})")
            return
        self.with_events.add(self)
        asyncio.get_running_loop().add_reader(self._inotify.fd, self._read_events)

    def _close_events(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fd)
            self._inotify.close()
            self._inotify = None
            self.with_events.discard(self)
        self._watched.clear()
        self._names.clear()

    def _log_problem(self, problem: str) -> None:
        """Log a new problem once, and its end (an empty `problem`) once."""
        if problem and problem != self._failure:
            logger.warning("%s: checking every %g s instead", problem, self._interval)
        elif self._failure and not problem:
            logger.info("file events work again")
        self._failure = problem

    def _read_events(self) -> None:
        assert self._inotify is not None
        has_news = not self._names_only
        try:
            for watch, mask, name in self._inotify.read():
                if mask & inotify.IGNORED:
                    self._forget(watch)  # the directory was deleted; a new one may exist already
                # When the kernel's queue overflows, an event without a name comes: it counts as
                # news, and `_look` below finds the changes of the lost events.
                if name and name not in self._names.get(watch, ()):
                    continue  # another file in the directory
                has_news = True
                self._take_event(watch, name)
        except OSError as error:
            self._log_problem(f"file events failed ({error})")
            self._close_events()
            return
        if has_news:
            self._update_watches()  # a directory may have appeared, disappeared or been replaced
            self._look()

    def _take_event(self, watch: int, name: bytes) -> None:
        for path, known in self._watched.items():
            if known.watch == watch:
                for subscription in self._subscriptions:
                    subscription.take_event(path / os.fsdecode(name))

    # ------------------------------------------------------------ which directories and files

    def _update_watches(self) -> None:
        """Add and remove inotify watches for the subscriptions and the existing directories."""
        if self._inotify is None:
            return
        wanted: dict[Path, set[bytes]] = {}
        for subscription in self._subscriptions:
            for path in subscription.paths:
                directory = _nearest_existing(path.parent)
                name = path.relative_to(directory).parts[0]
                wanted.setdefault(directory, set()).add(os.fsencode(name))
        # If the directory of a path is missing, `wanted` has the nearest ancestor that exists.
        before, kept, self._names = dict(self._watched), set[Path](), {}
        for directory, names in wanted.items():
            mask, held = inotify.OF_CONTENTS, set[Path]()
            if self._names_only:
                # Watch the files first: if one disappears after that, its own watch reports it.
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
            self._look()  # a change may have happened before a watch was added

    def _watch_file(self, path: Path) -> bool:
        return not os.path.isdir(path) and self._watch(path, inotify.OF_A_FILE)  # noqa: PTH112 - never raises

    def _watch(self, path: Path, mask: int) -> bool:
        """Watch `path`; return whether that worked. Log why an existing directory fails."""
        assert self._inotify is not None
        identity, known = _identity(path), self._watched.get(path)
        if known is not None and known[1:] == (mask, identity):
            return True
        is_file = mask == inotify.OF_A_FILE
        try:
            watch = self._inotify.add(path, mask)
        except OSError as error:
            if identity is not None and not is_file:  # else the directory just disappeared
                self._log_problem(f"cannot watch {path} ({error.strerror})")
            return False
        # inotify returns the same number for the same inode: another number means another file.
        if known is not None and known.watch != watch:
            self._unwatch(path)
        self._watched[path] = _WatchedPath(watch, mask, identity)
        if not is_file:
            self._log_problem("")
        return True

    def _unwatch(self, path: Path) -> None:
        assert self._inotify is not None
        watch = self._watched.pop(path).watch
        if all(each.watch != watch for each in self._watched.values()):
            with contextlib.suppress(OSError):  # the kernel removed the watch of a deleted file
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
    """Return `path`, or the nearest ancestor that exists: `path` will appear below it."""
    while _identity(path) is None and path != path.parent:
        path = path.parent
    return path
