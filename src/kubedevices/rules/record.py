"""Writes down what a node and a plugin send to each other, and changes nothing: `Recorded`."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from kubedevices.kubelet_api import message_json
from kubedevices.kubelet_api.convert import OPTIONS
from kubedevices.kubelet_api.message_json import Json
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
from kubedevices.rules.middleware import Middleware, OwnedRelay
from kubedevices.rules.presence import presence_of
from kubedevices.rules.record_file import RecordFile, RecordRule
from kubedevices.rules.record_format import (
    ALLOCATE,
    PRE_START,
    PREFER,
    call_parts,
    error_json,
    request_json,
    response_json,
)
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device_tree import DeviceTree

Answer = TypeVar("Answer")

_MOST_PENDING = 1000
"""Most requests that wait for the framework's answer. No call reports the answers that fail."""

_log = logging.getLogger(__name__)


class Recorded(Middleware):
    """Records lists, calls and answers in `file`, for `kubedevices replay`; changes nothing.

    `file` and `files - 1` older files beside it (`FILE.1` …) have about `max_size` bytes each.
    With `redact_env` the values of environment variables are not written. A full or slow disk
    delays no call: instead lines are lost, which the log, the metrics and the record say. Event:
    `record_lines_lost`. Raises `UsageError`.
    """

    def __init__(
        self,
        scanner: Scanner,
        domain: str,
        file: Path | str,
        *,
        max_size: int = RecordRule.max_size,
        files: int = RecordRule.files,
        redact_env: bool = False,
    ) -> None:
        super().__init__(scanner)
        path = str(Path(file).absolute())
        rule = RecordRule(file=path, max_size=max_size, files=files, redact_env=redact_env)
        self.domain, self.redact_env = domain, redact_env
        self.file = RecordFile(rule, on_lost=self._lose)
        self.numbers = itertools.count(1)
        """Numbers that request and answer of one call have in common."""
        self._types: set[str] = set()
        self._presence = presence_of(scanner)

    def line(self) -> str:
        """Return the file of the record."""
        redacted = ", without the values of env" if self.redact_env else ""
        return f"records what passes in {self.file.path}{redacted}"

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Pass every list to the record; its thread writes to the disk."""
        del now
        # The tree keeps the last list of a plugin that has left: the record has what is sent.
        is_away = self._presence is not None and self._presence.is_away
        sent = DeviceTree() if is_away else tree
        # No list says that a resource is withdrawn, so write a line for it.
        gone = self._types.difference(sent)
        for name in gone:
            self.file.add_list(f"{self.domain}/{name}", None)
        self._types = set(sent)
        for name in sent:
            self.file.add_list(f"{self.domain}/{name}", sent.sent(name) or sent.devices(name))
        return tree

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> "RecordingRelay":
        """Record the options of the type, and return the relay that records its calls."""
        options = message_json.to_json(OPTIONS, OPTIONS.to_wire(inner.options))
        self.file.add_options(f"{self.domain}/{inner_type}", options)
        return RecordingRelay(self, inner, device_type, inner_type)

    async def scan(self, notifier: Notifier) -> None:
        """Write until the scan ends, and then the waiting lines, for two seconds at most."""
        self.file.start()
        try:
            await super().scan(notifier)
        finally:
            await hook_threads.call(self.file.close)

    def note(
        self, resource: str, call: str, number: int, speaker: str, make: Callable[[], Json]
    ) -> None:
        """Write a request or an answer; a line that cannot be written is counted as lost."""
        try:
            now = self.file.now()
            self.file.add(call_parts(now, resource, call, speaker=speaker, id=number, **make()))
        except Exception:  # a wrong value of the author must not fail the call
            _log.debug("a line of the record cannot be written", exc_info=True)
            self._lose(1)

    def _lose(self, lines: int) -> None:
        self.count("record_lines_lost", times=lines)


class RecordingRelay(OwnedRelay[Recorded]):
    """Records the calls of one device type."""

    adds = frozenset({Allocator, PostAllocator})

    def __init__(self, owner: Recorded, inner: Hooks, device_type: str, inner_type: str) -> None:
        super().__init__(owner, inner, device_type, inner_type)
        self._resource = f"{owner.domain}/{inner_type}"
        # Requests that the framework answers; `post_allocate` gets the answer and the same request.
        self._pending: deque[tuple[AllocateRequest, int]] = deque(maxlen=_MOST_PENDING)

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Record request and answer; `post_allocate` gets an answer of the framework."""
        number = self._ask(ALLOCATE, request)
        answer = await self._hear(ALLOCATE, number, self.inner.allocate(request))
        if isinstance(answer, UseDefault):
            self._pending.append((request, number))
        else:
            self._answer(ALLOCATE, number, answer)
        return answer

    async def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Record the framework's answer after the inner type has edited it."""
        found = next((each for each in self._pending if each[0] == request), None)
        if found is None:
            number = self._ask(ALLOCATE, request)
        else:
            self._pending.remove(found)
            number = found[1]
        await self._hear(ALLOCATE, number, self.inner.post_allocate(response, request))
        self._answer(ALLOCATE, number, response)

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Record request and answer."""
        number = self._ask(PREFER, request)
        asking = self.inner.get_preferred_allocation(request)
        answer = await self._hear(PREFER, number, asking)
        self._answer(PREFER, number, answer)
        return answer

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Record request and answer."""
        number = self._ask(PRE_START, request)
        answer = await self._hear(PRE_START, number, self.inner.pre_start_container(request))
        self._answer(PRE_START, number, answer)
        return answer

    def _ask(self, call: str, request: Any) -> int:
        number = next(self.owner.numbers)
        self._note(call, number, lambda: {"message": request_json(call, request)}, "kubelet")
        return number

    async def _hear(self, call: str, number: int, asking: Awaitable[Answer]) -> Answer:
        try:
            return await asking
        except asyncio.CancelledError:
            # The caller hung up, so the answer is unknown. That is no error of the plugin.
            self._note(call, number, lambda: {"hungUp": True}, "kubelet")
            raise
        except Exception as error:
            details = error_json(error)
            self._note(call, number, lambda: {"error": details})
            raise

    def _answer(self, call: str, number: int, response: Any) -> None:
        redact = self.owner.redact_env
        self._note(
            call, number, lambda: {"message": response_json(call, response, redact_env=redact)}
        )

    def _note(
        self, call: str, number: int, make: Callable[[], Json], speaker: str = "plugin"
    ) -> None:
        self.owner.note(self._resource, call, number, speaker, make)
