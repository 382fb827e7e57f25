"""Lists directories that strangers fill: with a limit, and without following links.

Another pod may put 200,000 files, or a chain of directories that is longer than any path, into the
plugin directory, the plugin registry or a CDI directory. No other module lists a directory that
others can write.
"""

import errno
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

SCAN_LIMIT = 100_000
"""Most names of a directory that are looked at."""

MATCH_LIMIT = 10_000
"""Most names that are returned."""

FOLDER_LIMIT = 1000
"""Most directories that `below` remembers at a time."""

_NOT_ABOUT_THIS_FOLDER = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)

_log = logging.getLogger(__name__)
_warned: set[str] = set()


def names(
    directory: Path | int,
    matches: Callable[[str], object] = bool,
    *,
    scan: int = SCAN_LIMIT,
    limit: int = MATCH_LIMIT,
    of: Path | None = None,
) -> list[str]:
    """Return the names in `directory` that match, sorted; at most `limit` of the first `scan`.

    More names are left out, with one warning per directory. `of` is the path of a `directory` that
    is an open descriptor. Raises `OSError`.
    """
    with os.scandir(directory) as entries:
        found = (entry.name for entry in itertools.islice(entries, scan) if matches(entry.name))
        chosen = list(itertools.islice(found, limit + 1))
        is_cut = len(chosen) > limit or next(entries, None) is not None
    path = str(of or directory)
    if is_cut and path not in _warned and len(_warned) < FOLDER_LIMIT:
        _warned.add(path)
        _log.warning("%s has too many files: some of them are not looked at", path)
    return sorted(chosen[:limit])


def below(
    directory: Path, depth: int, *, enters: Callable[[str], object] = bool
) -> Iterator["os.DirEntry[str]"]:
    """Yield the entries of `directory` and of its directories, at most `depth` levels deep.

    A directory below that cannot be read is skipped. `enters` says by the name which directories
    are entered. Links are not followed. Raises `OSError` if `directory` cannot be read, or if
    the reason is not this folder, for example too many open files.
    """
    folders: deque[tuple[str, int]] = deque([(os.fspath(directory), 1)])
    is_first = True
    while folders:
        folder, level = folders.popleft()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    yield entry
                    may_enter = level < depth and len(folders) < FOLDER_LIMIT
                    if may_enter and enters(entry.name) and entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, level + 1))
        except OSError as error:
            if is_first or error.errno in _NOT_ABOUT_THIS_FOLDER:
                raise
        is_first = False
