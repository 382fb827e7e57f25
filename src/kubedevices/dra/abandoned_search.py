"""Finds prepared claims that nobody will unprepare, and unprepares them. asyncio.

The kubelet is asked first, with one question for all claims. Only for a claim that no container has
the API server is asked, so on a usual node it is never asked. A claim is unprepared after two
looks, so that a kubelet that is ending the pod has time for its own call.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, NoReturn

from kubedevices.dra.abandoned_verdict import Answer, why_abandoned
from kubedevices.dra.claims import ClaimSource
from kubedevices.dra.prepared_file import PreparedClaim
from kubedevices.errors import ApiRefused, ApiUnreachable, KubedevicesError
from kubedevices.host import deadlines
from kubedevices.plugin.author_errors import describe
from kubedevices.values.allocation import ClaimReference

_log = logging.getLogger(__name__)


class SearchTiming(NamedTuple):
    """All in seconds."""

    interval: float = 300.0
    """Longest time between two looks; the time is random, so that the nodes do not ask together."""

    pause: float = 1.0
    """Shortest time between two looks, while claims wait for devices."""

    confirm: float = 60.0
    """Time between the two looks. The containers of a pod that was deleted by force have ended by
    then."""


class AbandonedSearch:
    """Looks at the claims of `claims()`.

    `of_pods` asks the kubelet, as `Guard.claims_of_pods`. `free` unprepares a claim if a last
    question in its turn, the second argument, returns a reason.
    """

    def __init__(
        self,
        driver: str,
        api: ClaimSource,
        *,
        claims: Callable[[], Collection[PreparedClaim]],
        of_pods: Callable[[], Awaitable[Collection[tuple[str, str]] | None]],
        free: Callable[[ClaimReference, Callable[[], Awaitable[str]]], Awaitable[None]],
        is_trusted: Callable[[], bool],
        timing: SearchTiming | None = None,
    ) -> None:
        self._driver, self._api, self._claims = driver, api, claims
        self._of_pods, self._free, self._is_trusted = of_pods, free, is_trusted
        self._timing = timing or SearchTiming()
        self._asked = asyncio.Event()
        # When a look found a claim abandoned for the first time, by UID.
        self._since: dict[str, float] = {}

    def look_soon(self) -> None:
        """Look without a pause: a claim waits for a device of another claim."""
        self._asked.set()

    async def run(self) -> NoReturn:
        """Look now and then."""
        while True:
            pause = self._timing.interval * random.uniform(0.5, 1)
            if self._since:
                pause = min(pause, self._timing.confirm)
            await deadlines.within(pause, self._asked.wait())
            self._asked.clear()
            await self.look()
            await asyncio.sleep(self._timing.pause)

    async def look(self) -> None:
        """Look at all claims once, and unprepare the claims that two looks found abandoned."""
        now = asyncio.get_running_loop().time()
        suspects = await self._suspects()
        uids = {each.reference.uid for each in suspects}
        self._since = {uid: since for uid, since in self._since.items() if uid in uids}
        for claim in suspects:
            uid = claim.reference.uid
            if not await self._reason(claim):
                self._since.pop(uid, None)
            elif uid not in self._since:
                self._since[uid] = now
            elif now - self._since[uid] >= self._timing.confirm:
                await self._end(claim)

    async def _suspects(self) -> list[PreparedClaim]:
        # A claim without a name comes from a CDI file, after the loss of the checkpoint.
        claims = [each for each in self._claims() if each.reference.name]
        if not claims or not self._is_trusted() or (used := await self._of_pods()) is None:
            return []
        return [
            each for each in claims if (each.reference.namespace, each.reference.name) not in used
        ]

    async def _reason(self, claim: PreparedClaim) -> str:
        answer: Answer
        try:
            answer = await self._api.get_claim(claim.reference)
        except (ApiRefused, ApiUnreachable) as error:
            answer = error
        return why_abandoned(claim.reference, claim.results, answer, self._driver)

    async def _end(self, claim: PreparedClaim) -> None:
        reason = ""

        async def ask_again() -> str:
            """Ask both again in the turn of the claim: a pod may have got the claim just now."""
            nonlocal reason
            if claim in await self._suspects():
                reason = await self._reason(claim)
            return reason

        try:
            await self._free(claim.reference, ask_again)
        except Exception as error:  # ours, or from the author's hook
            problem = str(error) if isinstance(error, KubedevicesError) else describe(error)
            text = "claim %s is abandoned, but cannot be unprepared: %s"
            _log.error(text, claim.reference, problem)
        else:
            if reason:
                names = ", ".join(each.device for each in claim.results)
                _log.warning(
                    "claim %s is unprepared without a call of the kubelet: %s, and no container on "
                    "this node has it; free again: %s", claim.reference, reason, names,
                )  # fmt: skip
        self._since.pop(claim.reference.uid, None)
