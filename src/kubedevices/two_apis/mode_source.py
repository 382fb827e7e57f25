"""Reads the mode of the node from a file or a node label, and follows changes. asyncio."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from kubedevices import deadlines
from kubedevices.errors import ApiRefused, ApiUnreachable, CannotRead, UsageError
from kubedevices.host import untrusted_files
from kubedevices.host.file_watch import FileWatch
from kubedevices.host.state_file import StateFile
from kubedevices.plugin import hook_threads
from kubedevices.two_apis.modes_of_devices import Mode, parse_mode

LABEL_INTERVAL = 10.0
"""Seconds between two reads of the node's label."""

_FIRST_READ_LIMIT = 5.0
"""Seconds that the API server has for the first answer. Not longer: pods may wait for devices."""

_SIZE_LIMIT = 4096
_log = logging.getLogger(__name__)


class ModeSource(Protocol):
    """The source of the mode; `mode` is the last mode that was read."""

    mode: Mode

    async def begin(self) -> None:
        """Read the mode for the first time. Raises `KubedevicesError`."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the mode; call `changed` after each change."""


class FixedMode:
    """A mode that never changes."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode

    async def begin(self) -> None:
        """Do nothing."""

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Do nothing."""
        del changed
        await asyncio.Event().wait()
        raise AssertionError("unreachable: nobody sets the event")


class ModeFile:
    """The mode is the text of `file`. While the file does not exist, the mode does not change.

    A ConfigMap changes its files by a symbolic link above them; this is noticed too.
    """

    def __init__(self, file: Path, mode: Mode) -> None:
        self.file, self.mode = file, mode
        self._problem = ""

    async def begin(self) -> None:
        """Read the file. Raises `CannotRead`, and `UsageError` for a text that is no mode."""
        self.mode = await hook_threads.call(self._read)

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Follow the file. A file that is unreadable or has no valid mode is only logged."""
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
                    _log.info("the mode of this node is now %s, from %s", self.mode, self.file)
                    changed()
                # Wait after the read, not before: so the first round finds a change between `begin`
                # and the start of the watch.
                await files.changed()

    def _read(self) -> Mode:
        try:
            data = untrusted_files.read_bytes(self.file, limit=_SIZE_LIMIT, follow_links=True)
        except FileNotFoundError:
            return self.mode
        except OSError as error:
            raise CannotRead(str(self.file), error.strerror or str(error)) from error
        text = data.decode(errors="replace").strip()
        return parse_mode(text, f"{self.file}: the mode") if text else self.mode


class NodeSource(Protocol):
    """The source of node objects: the API server."""

    async def get_node(self, name: str) -> dict[str, Any]:
        """Return a Node; raises `ApiRefused` or `ApiUnreachable`."""


class NodeLabel:
    """The mode is the value of a node label. Without the label the mode does not change.

    The file `memory` has the last mode. It counts if the API server does not answer when the
    process starts.
    """

    def __init__(self, api: NodeSource, node: str, label: str, mode: Mode, memory: Path) -> None:
        self.mode = mode
        self._api, self._node, self._label = api, node, label
        self._memory = StateFile.at(memory, limit=_SIZE_LIMIT)
        self._problem = ""

    async def begin(self) -> None:
        """Read the label. Raises `UsageError` for a value that is no mode."""
        try:
            async with deadlines.timeout(_FIRST_READ_LIMIT):
                await self._read()
        except (ApiRefused, ApiUnreachable, TimeoutError) as error:
            remembered = await hook_threads.call(self._remembered)
            _log.warning(
                "cannot read the label %s of the node %s yet, so the last known mode counts: %s",
                self._label, self._node, str(error) or "no answer",
            )  # fmt: skip
            self.mode = remembered or self.mode

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Follow the label. A failed read and a value that is no mode are only logged."""
        while True:
            await asyncio.sleep(LABEL_INTERVAL)
            before = self.mode
            try:
                await self._read()
                self._problem = ""
            except (ApiRefused, ApiUnreachable, UsageError) as error:
                if str(error) != self._problem:
                    _log.error("%s; the mode stays %s", error, before)
                self._problem = str(error)
            if self.mode != before:
                _log.info("the mode of this node is now %s, from its label", self.mode)
                changed()

    async def _read(self) -> None:
        node = await self._api.get_node(self._node)
        text = (node["metadata"].get("labels") or {}).get(self._label, "")
        if text:
            self.mode = parse_mode(text, f"the label {self._label} of the node {self._node}")
            await hook_threads.call(self._remember)

    def _remember(self) -> None:
        if self._remembered() == self.mode:
            return
        try:
            self._memory.store(self.mode.encode())
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._memory.path, error.strerror)

    def _remembered(self) -> Mode | None:
        try:
            text = self._memory.read_bytes().decode(errors="replace")
            return parse_mode(text, str(self._memory.path))
        except (OSError, UsageError):
            return None
