"""The mode of the node, and what tells that it changed: a file, or a label. asyncio."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from kubedevices.errors import ApiRefused, ApiUnreachable, CannotRead, UsageError
from kubedevices.host import untrusted_files
from kubedevices.host.file_watch import FileWatch
from kubedevices.plugin import hook_threads
from kubedevices.two_apis.modes_of_devices import Mode, mode_named

LABEL_INTERVAL = 10.0
"""Seconds between two looks at the labels of the node."""

_FIRST_LOOK = 5.0
"""Seconds that the API server has for the first answer: pods may wait for our devices."""

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
                # After the reading: a change between `begin` and the start of the watch is found in
                # the first round.
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


class NodeSource(Protocol):
    """Where the node is read."""

    async def get_node(self, name: str) -> dict[str, Any]:
        """Return a Node; raises `ApiRefused` or `ApiUnreachable`."""


class NodeLabel:
    """The mode that a label of the node names; without the label the mode stays as it is.

    The mode of last time is in the file `memory`: it counts where the API server does not answer
    when the process starts.
    """

    def __init__(self, api: NodeSource, node: str, label: str, mode: Mode, memory: Path) -> None:
        self.mode = mode
        self._api, self._node, self._label, self._memory = api, node, label, memory
        self._problem = ""

    async def begin(self) -> None:
        """Ask for the node. Raises `UsageError` for another value of the label."""
        try:
            async with asyncio.timeout(_FIRST_LOOK):
                await self._look()
        except (ApiRefused, ApiUnreachable, TimeoutError) as error:
            remembered = await hook_threads.call(self._recall)
            _log.warning(
                "the label %s of the node %s is not known yet, the mode of last time counts: %s",
                self._label, self._node, str(error) or "no answer",
            )  # fmt: skip
            self.mode = remembered or self.mode

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Follow the label; what cannot be used changes nothing but the log."""
        while True:
            await asyncio.sleep(LABEL_INTERVAL)
            before = self.mode
            try:
                await self._look()
                self._problem = ""
            except (ApiRefused, ApiUnreachable, UsageError) as error:
                if str(error) != self._problem:
                    _log.error("%s; the mode stays %s", error, before)
                self._problem = str(error)
            if self.mode != before:
                _log.info("the mode of this node is %s now: its label says so", self.mode)
                changed()

    async def _look(self) -> None:
        node = await self._api.get_node(self._node)
        text = (node["metadata"].get("labels") or {}).get(self._label, "")
        if text:
            self.mode = mode_named(text, f"the label {self._label} of the node {self._node}")
            await hook_threads.call(self._remember)

    def _remember(self) -> None:
        if self._recall() == self.mode:
            return
        try:
            self._memory.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            untrusted_files.replace(self._memory, self.mode.encode())
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._memory, error.strerror)

    def _recall(self) -> Mode | None:
        try:
            data = untrusted_files.read_bytes(self._memory, limit=_SIZE_LIMIT)
            return mode_named(data.decode(errors="replace"), str(self._memory))
        except (OSError, UsageError):
            return None
