"""`Recorded`: writes down what a node and a plugin say to each other; changes nothing."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from kubedevices.allocation import (
    AllocateRequest,
    AllocateResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.device_tree import DeviceTree
from kubedevices.kubelet_api import message_json
from kubedevices.kubelet_api.convert import OPTIONS
from kubedevices.kubelet_api.message_json import Json
from kubedevices.middleware.middleware import Middleware, Relay
from kubedevices.middleware.record_file import MIB, RecordFile
from kubedevices.middleware.record_format import (
    ALLOCATE,
    PRE_START,
    PREFER,
    error_json,
    request_json,
    response_json,
    said,
)
from kubedevices.plugin import hook_threads
from kubedevices.plugin.capabilities import (
    AllocateAnswer,
    Allocator,
    PostAllocator,
    UseDefault,
)
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner

Answer = TypeVar("Answer")

_MOST_LEFT_TO_US = 1000
"""Requests that wait for the framework's answer; of those that fail nobody tells us."""

_log = logging.getLogger(__name__)


class Recorded(Middleware):
    """Records lists, calls and answers in `file`, for `kubedevices replay`; changes nothing.

    `file` and `files - 1` older files beside it (`FILE.1` …) have about `max_size` bytes each.
    `redact_env` keeps the values of environment variables out. A full or slow disk delays nobody:
    lines are lost then, which the log, the metrics and the record say. Raises `UsageError`.
    """

    def __init__(
        self,
        scanner: Scanner,
        domain: str,
        file: Path | str,
        *,
        max_size: int = 10 * MIB,
        files: int = 5,
        redact_env: bool = False,
    ) -> None:
        super().__init__(scanner)
        self.domain, self.redact_env = domain, redact_env
        self.file = RecordFile(
            Path(file), max_size=max_size, files=files, redact_env=redact_env, on_lost=self._lose
        )
        self.numbers = itertools.count(1)
        """By these, request and answer of one call belong together."""
        self._types: set[str] = set()

    def line(self) -> str:
        """Return where the record is."""
        redacted = ", without the values of env" if self.redact_env else ""
        return f"records what passes in {self.file.path}{redacted}"

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Note every list; a disk is not touched here."""
        del now
        # A resource that is withdrawn sends no list: the record has to say it.
        gone = self._types.difference(tree)
        for name in gone:
            self.file.add_list(f"{self.domain}/{name}", None)
        self._types = set(tree)
        for name in tree:
            self.file.add_list(f"{self.domain}/{name}", tree.sent(name) or tree.devices(name))
        return tree

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> "RecordingRelay":
        """Note what the type offers, and return what notes its calls."""
        options = message_json.to_json(OPTIONS, OPTIONS.to_wire(inner.options))
        self.file.add_options(f"{self.domain}/{inner_type}", options)
        return RecordingRelay(self, inner, device_type, inner_type)

    async def scan(self, notifier: Notifier) -> None:
        """Write until the scan ends; then what is left, for two seconds at most."""
        self.file.start()
        try:
            await super().scan(notifier)
        finally:
            await hook_threads.call(self.file.close)

    def note(
        self, resource: str, call: str, number: int, speaker: str, make: Callable[[], Json]
    ) -> None:
        """Write a request or an answer; what cannot be written is lost, and nothing else."""
        try:
            now = self.file.now()
            self.file.add(said(now, resource, call, speaker=speaker, id=number, **make()))
        except Exception:  # of a value of the author's, whose call goes on
            _log.debug("a line of the record cannot be written", exc_info=True)
            self._lose(1)

    def _lose(self, lines: int) -> None:
        self.count("record_lines_lost", times=lines)


class RecordingRelay(Relay):
    """Notes the calls of one device type."""

    adds = frozenset({Allocator, PostAllocator})

    def __init__(self, record: Recorded, inner: Hooks, device_type: str, inner_type: str) -> None:
        super().__init__(inner, device_type, inner_type)
        self._record, self._resource = record, f"{record.domain}/{inner_type}"
        # Requests whose answer the framework makes: it comes by `post_allocate`, with the same
        # request.
        self._left_to_us: deque[tuple[AllocateRequest, int]] = deque(maxlen=_MOST_LEFT_TO_US)

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Note request and answer; the framework's answer comes by `post_allocate`."""
        number = self._ask(ALLOCATE, request)
        answer = await self._hear(ALLOCATE, number, self.inner.allocate(request))
        if isinstance(answer, UseDefault):
            self._left_to_us.append((request, number))
        else:
            self._answer(ALLOCATE, number, answer)
        return answer

    async def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Note the framework's answer as the inner type edits it."""
        found = next((each for each in self._left_to_us if each[0] == request), None)
        if found is None:
            number = self._ask(ALLOCATE, request)
        else:
            self._left_to_us.remove(found)
            number = found[1]
        await self._hear(ALLOCATE, number, self.inner.post_allocate(response, request))
        self._answer(ALLOCATE, number, response)

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Note request and answer."""
        number = self._ask(PREFER, request)
        asking = self.inner.get_preferred_allocation(request)
        answer = await self._hear(PREFER, number, asking)
        self._answer(PREFER, number, answer)
        return answer

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Note request and answer."""
        number = self._ask(PRE_START, request)
        answer = await self._hear(PRE_START, number, self.inner.pre_start_container(request))
        self._answer(PRE_START, number, answer)
        return answer

    def _ask(self, call: str, request: Any) -> int:
        number = next(self._record.numbers)
        self._note(call, number, lambda: {"message": request_json(call, request)}, "kubelet")
        return number

    async def _hear(self, call: str, number: int, asking: Awaitable[Answer]) -> Answer:
        try:
            return await asking
        except asyncio.CancelledError:
            # What the plugin would have answered is unknown, which is not the same as an error.
            self._note(call, number, lambda: {"hungUp": True}, "kubelet")
            raise
        except Exception as error:
            told = error_json(error)
            self._note(call, number, lambda: {"error": told})
            raise

    def _answer(self, call: str, number: int, response: Any) -> None:
        redact = self._record.redact_env
        self._note(
            call, number, lambda: {"message": response_json(call, response, redact_env=redact)}
        )

    def _note(
        self, call: str, number: int, make: Callable[[], Json], speaker: str = "plugin"
    ) -> None:
        self._record.note(self._resource, call, number, speaker, make)
