"""The mode of the node, and what tells that it changed: a file. asyncio."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol

from kubedevices.errors import CannotRead, UsageError
from kubedevices.host import untrusted_files
from kubedevices.host.file_watch import FileWatch
from kubedevices.plugin import hook_threads
from kubedevices.two_apis.modes_of_devices import Mode, mode_named

_SIZE_LIMIT = 4096
_log = logging.getLogger(__name__)


class ModeSource(Protocol):
    """Where the mode comes from; `mode` is the mode that was found last."""

    mode: Mode

    async def begin(self) -> None:
        """Find the mode for the first time. Raises `KubedevicesError`."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the mode; call `changed` when it is another."""


class FixedMode:
    """A mode that was chosen at the start."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode

    async def begin(self) -> None:
        """Do nothing."""

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Do nothing."""
        del changed
        await asyncio.Event().wait()
        raise AssertionError("unreachable: nobody sets it")


class ModeFile:
    """The mode that the text of `file` names; while there is no file, the mode stays as it is.

    The file of a ConfigMap changes by a link above it, which is noticed too.
    """

    def __init__(self, file: Path, mode: Mode) -> None:
        self.file, self.mode = file, mode
        self._problem = ""

    async def begin(self) -> None:
        """Read the file. Raises `CannotRead`, and `UsageError` for another text."""
        self.mode = await hook_threads.call(self._read)

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Follow the file; what cannot be used changes nothing but the log."""
        with FileWatch() as watch, watch.subscribe(self.file) as files:
            while True:
                before = self.mode
                try:
                    self.mode = await hook_threads.call(self._read)
                    self._problem = ""
                except (CannotRead, UsageError) as error:
                    if str(error) != self._problem:
                        _log.error("%s; the mode stays %s", error, before)
                    self._problem = str(error)
                if self.mode != before:
                    _log.info("the mode of this node is %s now: %s says so", self.mode, self.file)
                    changed()
                await files.changed()

    def _read(self) -> Mode:
        try:
            data = untrusted_files.read_bytes(self.file, limit=_SIZE_LIMIT, follow_links=True)
        except FileNotFoundError:
            return self.mode
        except OSError as error:
            raise CannotRead(str(self.file), error.strerror or str(error)) from error
        text = data.decode(errors="replace").strip()
        return mode_named(text, f"{self.file}: the mode") if text else self.mode
