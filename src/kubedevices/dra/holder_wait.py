"""Lets a claim wait for another claim that has its device: `HolderWait`. asyncio.

After a forced deletion the kubelet prepares the claim of the next pod before it unprepares the
claim of the deleted pod. To refuse the next claim at once would cost its pod a minute.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence

from kubedevices.dra.claim_work import ClaimWork
from kubedevices.dra.claims import Result, holders_of
from kubedevices.dra.preparation import Preparation
from kubedevices.errors import DeviceStillHeld
from kubedevices.host import deadlines
from kubedevices.values.allocation import ClaimReference

HOLDER_LIMIT = 20.0
"""Seconds from the kubelet's call that a claim waits for another claim that has its device."""

_log = logging.getLogger(__name__)


class PrepareCall:
    """A call of the kubelet to prepare a claim; `is_over` if the claim was unprepared meanwhile."""

    def __init__(self, claim: ClaimReference, until: float) -> None:
        self.claim, self.until, self.is_over = claim, until, False


class HolderWait:
    """The calls of the kubelet to prepare claims that have not ended, and their waits."""

    def __init__(self, work: ClaimWork, preparation: Preparation) -> None:
        self._work, self._preparation = work, preparation
        self.on_conflict: Callable[[], None] = lambda: None
        """Called when a claim begins to wait for a device that another claim has."""

        self._is_ending = False
        self._calls: set[PrepareCall] = set()

    def end(self) -> None:
        """End all waits, and those that would begin later."""
        self._is_ending = True
        self._work.wake()

    def end_calls(self, claims: Collection[ClaimReference]) -> None:
        """End the waits of these claims, because the kubelet unprepares them."""
        for call in self._calls:
            call.is_over = call.is_over or call.claim in claims
        self._work.wake()

    @contextlib.contextmanager
    def call(self, claim: ClaimReference) -> Iterator[PrepareCall]:
        """Know a call of the kubelet until it ends; its `HOLDER_LIMIT` begins now."""
        call = PrepareCall(claim, asyncio.get_running_loop().time() + HOLDER_LIMIT)
        self._calls.add(call)
        try:
            yield call
        finally:
            self._calls.discard(call)

    async def wait(
        self, call: PrepareCall, results: Sequence[Result], error: DeviceStillHeld
    ) -> None:
        """Wait until no other claim has a device of `results`. Raises `error` after the limit."""
        if not self._is_ending:
            _log.info("%s: waiting for its end", error)
            self.on_conflict()
        while holders_of(results, self._preparation.holders(call.claim.uid)):
            if self._is_ending or call.is_over:
                raise error
            if not await deadlines.until(call.until, self._work.changed.wait()):
                raise error
