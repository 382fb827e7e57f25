"""Records refused claims, counts failures, and measures the kubelet's calls. asyncio.

The refused claims are also in a file beside the checkpoint, so that `kubedevices explain` can show
the reason without the driver.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kubedevices.host.state_file import StateFile
from kubedevices.kubelet_api.dra import ClaimAnswer, DeviceHealth, DraService
from kubedevices.plugin import hook_threads
from kubedevices.values.allocation import ClaimReference

FILE_NAME = "refused.json"
_LIMIT = 100
"""Largest number of claims in the file, the latest. The kubelet repeats its calls, so claims that
it still wants are among the latest."""

_SIZE_LIMIT = 2**20
_VERSION = 1
_log = logging.getLogger(__name__)


class UnpreparedClaim(NamedTuple):
    """A claim that could not be prepared, the reason, and the time in seconds since 1970."""

    claim: ClaimReference
    reason: str
    at: float


class ClaimLog:
    """Passes the kubelet's calls to `service`, and writes refused claims to `file`."""

    def __init__(self, service: DraService, file: Path) -> None:
        self._service, self._file = service, _state_file(file)
        self._writing = asyncio.Lock()
        self._written: Mapping[str, str] = {}
        self.refused: dict[str, UnpreparedClaim] = {}
        """The claims that the kubelet wants and that could not be prepared, by UID."""

        self.failures: Counter[str] = Counter()
        """The number of claims that could not be prepared or unprepared, by call."""

        self.observe: Callable[[str, float], None] = lambda _call, _seconds: None
        """Called after each call with its name, `prepare` or `unprepare`, and its seconds."""

    async def begin(self) -> None:
        """Remove the file of an earlier process: the kubelet repeats its calls."""
        await hook_threads.call(_write, self._file, ())

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        """Pass the call on, and record the refused claims."""
        began = time.monotonic()
        answers = await self._service.prepare(claims)
        self.observe("prepare", time.monotonic() - began)
        before = dict(self.refused)
        for claim in claims:
            self.refused.pop(claim.uid, None)
            if isinstance(answer := answers[claim.uid], str):
                self.failures["prepare"] += 1
                self.refused[claim.uid] = UnpreparedClaim(claim, answer, time.time())
        await self._note(before)
        return answers

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        """Pass the call on, and forget the refusals of these claims: no pod wants them any more."""
        began = time.monotonic()
        answers = await self._service.unprepare(claims)
        self.observe("unprepare", time.monotonic() - began)
        self.failures["unprepare"] += sum(map(bool, answers.values()))
        before = dict(self.refused)
        for claim in claims:
            self.refused.pop(claim.uid, None)
        await self._note(before)
        return answers

    async def watch_health(self) -> AsyncIterator[Iterable[DeviceHealth]]:
        """Pass the call on."""
        async for devices in self._service.watch_health():
            yield devices

    async def _note(self, before: Mapping[str, UnpreparedClaim]) -> None:
        """Write the file if the refused claims or their reasons differ from `before`."""
        # A dict keeps the order of insertion, so the oldest claims are removed.
        for uid in [*self.refused][:-_LIMIT]:
            del self.refused[uid]
        if _reasons(before) == _reasons(self.refused):
            return
        async with self._writing:
            # Calls that waited for a write share the next write.
            if _reasons(self.refused) != self._written:
                written = _reasons(self.refused)
                await hook_threads.call(_write, self._file, tuple(self.refused.values()))
                self._written = written


def read_refusals(file: Path) -> list[UnpreparedClaim]:
    """Return the refused claims in `file`; empty if the file is missing or damaged."""
    return _state_file(file).read_or(_refusals, [], level=logging.DEBUG)


def _state_file(file: Path) -> StateFile:
    return StateFile.at(file, limit=_SIZE_LIMIT, version=_VERSION)


def _refusals(document: Any) -> list[UnpreparedClaim]:
    # Before versions the file was the list.
    found = document["claims"] if isinstance(document, dict) else document
    return [
        UnpreparedClaim(ClaimReference(**each["claim"]), str(each["reason"]), float(each["at"]))
        for each in found
    ]


def _write(file: StateFile, refused: tuple[UnpreparedClaim, ...]) -> None:
    if not refused:
        with contextlib.suppress(OSError):
            file.remove()
        return
    content = [each._asdict() | {"claim": each.claim._asdict()} for each in refused]
    try:
        file.write({"claims": content})
    except OSError as error:  # the kubelet's answer has the reason; the file is only for people
        _log.debug("cannot write %s: %s", file.path, error.strerror)


def _reasons(refused: Mapping[str, UnpreparedClaim]) -> dict[str, str]:
    return {uid: each.reason for uid, each in refused.items()}
