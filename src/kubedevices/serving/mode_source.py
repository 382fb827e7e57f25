"""Reads the mode of the node from a file or a node label, and follows changes. asyncio."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from kubedevices.dra.pauses import at_random
from kubedevices.errors import (
    ApiRefused,
    ApiUnreachable,
    CannotRead,
    KubedevicesError,
    OtherVersion,
    UsageError,
    os_errors_as,
)
from kubedevices.host import deadlines, untrusted_files
from kubedevices.host.file_watch import FileWatch
from kubedevices.host.state_file import StateFile
from kubedevices.plugin import hook_threads
from kubedevices.serving.modes_of_devices import Mode, parse_mode

LABEL_INTERVAL = 10.0
"""Seconds until the next read of the node's label, after a watch of the node has failed."""

_FIRST_READ_LIMIT = 5.0
"""Seconds that the API server has for the first answer. Not longer: pods may wait for devices."""

_REREAD_PAUSE = 1.0
"""Seconds until the node is read again after a watch that cannot go on."""

_SIZE_LIMIT = 4096
_VERSION = 1
_log = logging.getLogger(__name__)


class ModeSource:
    """The source of the mode; `mode` is the last mode that was read. Here it never changes."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode

    async def begin(self) -> None:
        """Read the mode for the first time. Raises `KubedevicesError`."""

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Follow the mode; call `changed` after each change."""
        del changed
        await asyncio.Event().wait()
        raise AssertionError("unreachable: nobody sets the event")


class ModeFile(ModeSource):
    """The mode is the text of `file`. While the file does not exist, the mode does not change.

    A ConfigMap changes its files by a symbolic link above them; this is noticed too.
    """

    def __init__(self, file: Path, mode: Mode) -> None:
        super().__init__(mode)
        self.file, self._problem = file, ""

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
        with os_errors_as(CannotRead, self.file):
            try:
                data = untrusted_files.read_bytes(self.file, limit=_SIZE_LIMIT, follow_links=True)
            except FileNotFoundError:
                return self.mode
        text = data.decode(errors="replace").strip()
        return parse_mode(text, f"{self.file}: the mode") if text else self.mode


class NodeSource(Protocol):
    """The source of node objects: the API server."""

    async def get_node(self, name: str) -> dict[str, Any]:
        """Return a Node; raises `ApiRefused` or `ApiUnreachable`."""

    def watch_node(self, name: str, version: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield events of a Node; raises `ApiRefused` or `ApiUnreachable`."""


class NodeLabel(ModeSource):
    """The mode is the value of a node label. Without the label the mode does not change.

    The file `memory` has the last mode. It counts if the API server does not answer when the
    process starts.
    """

    def __init__(self, api: NodeSource, node: str, label: str, mode: Mode, memory: Path) -> None:
        super().__init__(mode)
        self._api, self._node, self._label = api, node, label
        self._memory = StateFile.at(memory, limit=_SIZE_LIMIT, version=_VERSION)
        # The last error of a call and of the label, so that the same error is logged once.
        self._problems: dict[str, str] = {}
        # The mode in the file `memory`, once this process has written it.
        self._stored: Mode | None = None

    async def begin(self) -> None:
        """Read the label. Raises `UsageError` for a value that is no mode."""
        try:
            async with deadlines.timeout(_FIRST_READ_LIMIT):
                await self._take(await self._api.get_node(self._node))
        except (ApiRefused, ApiUnreachable, TimeoutError) as error:
            remembered = await hook_threads.call(self._remembered)
            _log.warning(
                "cannot read the label %s of the node %s yet, so the last known mode counts: %s",
                self._label, self._node, str(error) or "no answer",
            )  # fmt: skip
            self.mode = remembered or self.mode

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Follow the label. A failed call and a value that is no mode are only logged.

        Without the right to watch nodes, the label is read at intervals.
        """
        while True:
            try:
                await self._follow(changed)
                self._problems.pop("call", None)
            except (ApiRefused, ApiUnreachable) as error:
                self._log("call", error)
                await asyncio.sleep(at_random(LABEL_INTERVAL))

    async def _follow(self, changed: Callable[[], None]) -> None:
        """Read the node, and follow it until the server ends the watch."""
        node = await self._api.get_node(self._node)
        await self._apply(node, changed)
        version = str(node["metadata"].get("resourceVersion", ""))
        async with contextlib.aclosing(self._api.watch_node(self._node, version)) as events:
            async for event in events:
                if event.get("type") != "MODIFIED":
                    # The version is too old, or the node was deleted and created again.
                    await asyncio.sleep(_REREAD_PAUSE)
                    return
                self._problems.pop("call", None)
                await self._apply(event["object"], changed)

    async def _apply(self, node: dict[str, Any], changed: Callable[[], None]) -> None:
        before = self.mode
        try:
            await self._take(node)
            self._problems.pop("label", None)
        except UsageError as error:
            self._log("label", error)
        if self.mode != before:
            _log.info("the mode of this node is now %s, from its label", self.mode)
            changed()

    def _log(self, of: str, error: KubedevicesError) -> None:
        if str(error) != self._problems.get(of):
            _log.error("%s; the mode stays %s", error, self.mode)
        self._problems[of] = str(error)

    async def _take(self, node: dict[str, Any]) -> None:
        """Take the mode from the label; raises `UsageError`."""
        text = (node["metadata"].get("labels") or {}).get(self._label, "")
        if text:
            self.mode = parse_mode(text, f"the label {self._label} of the node {self._node}")
            if self.mode != self._stored:
                await hook_threads.call(self._remember)
                self._stored = self.mode

    def _remember(self) -> None:
        if self._remembered() == self.mode:
            return
        try:
            self._memory.write({"mode": self.mode})
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._memory.path, error.strerror)

    def _remembered(self) -> Mode | None:
        try:
            return self._memory.read(lambda found: self._mode_in(str(found["mode"])))
        except FileNotFoundError:
            return None
        except OtherVersion as error:
            _log.warning("%s; the mode in it does not count", error)
            return None
        except CannotRead:
            # Before versions the file was the word.
            try:
                return self._mode_in(self._memory.read_bytes().decode(errors="replace"))
            except (OSError, UsageError):
                return None

    def _mode_in(self, text: str) -> Mode:
        return parse_mode(text, str(self._memory.path))
