"""Reads a configuration again when its file changes, or when `request` is called.

The kubelet changes a file of a ConfigMap volume by replacing a symbolic link above it; an editor
replaces the file itself. Both changes are noticed. A wrong file is logged and changes nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from kubedevices.config.yaml_source import SourceProblems
from kubedevices.errors import CannotRead, ConfigError, KubedevicesError
from kubedevices.errors.words import counted
from kubedevices.host.file_watch import FileWatch
from kubedevices.plugin import hook_threads
from kubedevices.plugin.stoppable import call_on

SETTLE = 0.1
"""Seconds between a file event and the reading: a program may write the file in several steps."""

_log = logging.getLogger(__name__)


class HasResources(Protocol):
    """A configuration; the log says how many resources it has."""

    @property
    def resources(self) -> Collection[Any]:
        """A rule per resource."""


Config = TypeVar("Config", bound=HasResources)


class ConfigFollower(Generic[Config]):
    """Calls `apply` with each new configuration of `file`, and with the places of its keys.

    `load` reads the file. `apply` may refuse a configuration with a `KubedevicesError`.
    `is_in_force` is False while the content of the file is not used because it is wrong.
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
        """Read the file again even if it is unchanged. From any thread or signal handler."""
        self._is_asked = True
        call_on(self._loop, self._changed.set)

    async def run(self) -> NoReturn:
        """Follow the file until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._changed.set()  # the file may have changed since its first reading
        with FileWatch() as watch, watch.subscribe(self._file, event=self._changed):
            while True:
                await self._changed.wait()
                # Before the event is cleared: all steps of one change need only one look.
                await asyncio.sleep(SETTLE)
                self._changed.clear()
                await self._look()

    async def _look(self) -> None:
        # Before the reading: a request that comes meanwhile causes another look.
        is_asked, self._is_asked = self._is_asked, False
        content = await hook_threads.call(_content_of, self._file)
        # A file event does not mean that the content changed.
        if content == self._content and not is_asked:
            return
        self._content = content
        try:
            config, report = await hook_threads.call(self._load, self._file)
            self.apply(config, report)
        except KubedevicesError as error:
            self.failed_reloads += 1
            self.is_in_force = False
            for problem in self._problems(error):
                _log.error("%s", problem)  # no traceback: a message for the operator
            _log.error("the configuration before stays in force")
            return
        self.reloads += 1
        self.is_in_force = True
        self.read_at = time.time()
        _log.info("%s: read again, %s", self._file, counted(len(config.resources), "resource"))

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
