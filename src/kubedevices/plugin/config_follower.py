"""Reads a configuration again when its file changes, or when it is told to.

A file in a ConfigMap's volume changes by a swap of a symbolic link above it, an editor's by a new
file of the same name: both are noticed. What cannot be used changes nothing but the log.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from kubedevices.config.yaml_source import SourceProblems
from kubedevices.errors import CannotRead, ConfigError, KubedevicesError
from kubedevices.host.file_watch import FileWatch
from kubedevices.plugin import hook_threads
from kubedevices.words import counted

SETTLE = 0.1
"""Seconds to let a change come to its end: who writes a file may do so in several steps."""

_log = logging.getLogger(__name__)


class HasResources(Protocol):
    """What the log counts."""

    @property
    def resources(self) -> Collection[Any]:
        """A rule per resource."""


Config = TypeVar("Config", bound=HasResources)


class ConfigFollower(Generic[Config]):
    """Gives every new configuration that `load` makes of `file`, and where its keys stand, to
    `apply`, which may refuse it with a `KubedevicesError`.

    `is_in_force` is False while the file says something that could not be used.
    """

    apply: Callable[[Config, SourceProblems], None]

    def __init__(self, file: Path, load: Callable[[Path], tuple[Config, SourceProblems]]) -> None:
        self.reloads = self.failed_reloads = 0
        self.is_in_force = True
        self.read_at = time.time()
        self._file, self._load = file, load
        self._content = _content_of(file)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._is_asked = False

    def request(self) -> None:
        """Read the file again even if it looks the same. From any thread or signal handler."""
        self._is_asked = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to do
                self._loop.call_soon_threadsafe(self._changed.set)

    async def run(self) -> NoReturn:
        """Follow the file until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._changed.set()  # it may have changed between its first reading and now
        with FileWatch() as watch, watch.subscribe(self._file, event=self._changed):
            while True:
                await self._changed.wait()
                # Before the event is cleared: further steps of the same change are part of one
                # look.
                await asyncio.sleep(SETTLE)
                self._changed.clear()
                await self._look()

    async def _look(self) -> None:
        # Before the reading: a request that comes during it causes another look.
        is_asked, self._is_asked = self._is_asked, False
        content = await hook_threads.call(_content_of, self._file)
        # File events tell of more than changes of the content.
        if content == self._content and not is_asked:
            return
        self._content = content
        try:
            config, report = await hook_threads.call(self._read)
            self.apply(config, report)
        except KubedevicesError as error:
            self.failed_reloads += 1
            self.is_in_force = False
            for problem in self._problems(error):
                _log.error("%s", problem)  # a message for the operator
            _log.error("the configuration before stays in force")
            return
        for warning in report.warnings:
            _log.warning("%s", warning)
        self.reloads += 1
        self.is_in_force = True
        self.read_at = time.time()
        _log.info("%s: read again, %s", self._file, counted(len(config.resources), "resource"))

    def _read(self) -> tuple[Config, SourceProblems]:
        return self._load(self._file)

    def _problems(self, error: KubedevicesError) -> Iterable[object]:
        """Return every message of `error`, each with the name of the file."""
        if isinstance(error, ConfigError):
            return error.problems
        return [error if isinstance(error, CannotRead) else f"{self._file}: {error}"]


def _content_of(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
