"""The DRAPlugin service: the kubelet's calls to prepare and unprepare claims. asyncio.

The service reads the allocation of a claim from the API server. If the API server does not answer,
the service uses the checkpoint for a claim that was prepared before. A claim whose device another
claim still has waits for the end of the other claim.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from kubedevices.dra.claim_hooks import ClaimHooks
from kubedevices.dra.claim_work import ClaimWork, Ready, Wanted
from kubedevices.dra.claims import ClaimSource, configuration_of, results_of
from kubedevices.dra.device_plugin_guard import Guard
from kubedevices.dra.holder_wait import HolderWait
from kubedevices.dra.metadata import names_in_files, names_of
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.slices import Offer
from kubedevices.errors import (
    ApiRefused,
    ApiUnreachable,
    ClaimRefused,
    DeviceStillHeld,
    KubedevicesError,
)
from kubedevices.host import deadlines
from kubedevices.kubelet_api.dra import ClaimAnswer, DeviceHealth, HealthStatus
from kubedevices.plugin.author_errors import describe
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.timing import HookTimeouts
from kubedevices.values.allocation import ClaimReference
from kubedevices.values.device import REASON_LIMIT

ANSWER_LIMIT = 40.0
"""Seconds until the kubelet gets an answer or an error. The kubelet's deadline is 45 s."""

HEALTH_INTERVAL = 5.0
"""Seconds between two lists of health. For the kubelet, a health older than 30 s is unknown."""

_log = logging.getLogger(__name__)


class ClaimService:
    """Prepares claims with the devices of the last call of `update`."""

    def __init__(
        self,
        driver: str,
        node_name: str,
        source: ClaimSource,
        preparation: Preparation,
        hooks_of: Callable[[str], Hooks],
        *,
        dev_root: Path,
        timeouts: HookTimeouts | None = None,
        guard: Guard | None = None,
        metadata: bool = False,
    ) -> None:
        self._driver, self._node, self._source = driver, node_name, source
        self._preparation = preparation
        self._claim_hooks = ClaimHooks(
            driver,
            hooks_of,
            dev_root=dev_root,
            timeouts=timeouts or HookTimeouts(),
            longest=ANSWER_LIMIT / 2,
        )
        self._offer: Offer | None = None
        self._offered = asyncio.Event()
        self.work = ClaimWork(
            driver,
            preparation,
            self._claim_hooks,
            lambda: self._offer,
            guard=guard,
            metadata=metadata,
        )
        """Prepares and unprepares single claims."""

        self.holder_wait = HolderWait(self.work, preparation)
        self._is_ending = False

    def update(self, offer: Offer) -> None:
        """Set the offered devices."""
        self._offer = offer
        event, self._offered = self._offered, asyncio.Event()
        event.set()

    def begin_end(self) -> None:
        """End the health streams, which would never end, and the claims that wait for others."""
        self._is_ending = True
        self._offered.set()
        self.holder_wait.end()

    async def ensure_files(self) -> None:
        """Write missing CDI and metadata files again."""
        await self.work.run_to_end(self.work.ensure_files())

    # ------------------------------------------------------------ called by the kubelet

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        """Prepare each claim; the failure of one claim does not affect the others."""
        answers = await asyncio.gather(*(self._answer(each, self._prepare) for each in claims))
        return {claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        """Unprepare each claim; an unknown claim succeeds."""
        self.holder_wait.end_calls(claims)
        answers = await asyncio.gather(*(self._answer(each, self._unprepare) for each in claims))
        return {
            claim.uid: answer if isinstance(answer, str) else ""
            for claim, answer in zip(claims, answers, strict=True)
        }

    async def watch_health(self) -> AsyncIterator[list[DeviceHealth]]:
        """Yield the health of all devices at the start, after a change, and every few seconds."""
        while not self._is_ending:
            # Take both before the yield, so that no offer is missed that comes during the yield.
            news, offer = self._offered, self._offer
            now = int(time.time())
            yield [
                DeviceHealth(
                    self._node,
                    label,
                    HealthStatus.HEALTHY if each.device.is_healthy else HealthStatus.UNHEALTHY,
                    now,
                    _message_of(each.device.reason),
                )
                for label, each in (offer.devices.items() if offer else ())
            ]
            await deadlines.within(HEALTH_INTERVAL, news.wait())

    # ------------------------------------------------------------ one claim

    async def _answer(
        self, claim: ClaimReference, work: Callable[[ClaimReference], Coroutine[Any, Any, Ready]]
    ) -> ClaimAnswer:
        """Return the result of `work`, or an error text after a failure or `ANSWER_LIMIT` seconds.

        What `work` has begun goes on after the limit, and after the kubelet has cancelled its call.
        """
        try:
            async with deadlines.timeout(ANSWER_LIMIT):
                return await work(claim)
        except TimeoutError:
            problem = f"claim {claim}: not ready within {ANSWER_LIMIT:g} s, the work goes on"
            _log.warning("%s", problem)
            return problem
        except KubedevicesError as error:
            _log.warning("%s", error)
            return str(error)
        except Exception as error:  # from the author's hooks, or a bug: other claims go on
            _log.exception("claim %s", claim)
            return f"claim {claim}: {describe(error)}"

    async def _prepare(self, claim: ClaimReference) -> Ready:
        with self.holder_wait.call(claim) as call:
            while True:
                # Read before taking a turn: the API server may be slow, and other claims go on
                # meanwhile.
                wanted = await self._read(claim)
                work = self.work.prepare(claim, wanted, lambda: call.is_over)
                try:
                    return await self.work.run_to_end(work)
                except DeviceStillHeld as error:
                    # In no turn: the holder may be unprepared by the other instance of the driver.
                    # Not as a task of its own: if the kubelet cancels its call, the pod may be
                    # gone, and nobody would unprepare the claim.
                    await self.holder_wait.wait(call, wanted.results, error)

    async def _unprepare(self, claim: ClaimReference) -> Ready:
        await self.work.run_to_end(self.work.unprepare(claim))
        return ()

    async def _read(self, claim: ClaimReference) -> Wanted:
        """Return the allocation of a claim, its configuration by request, and its names."""
        try:
            found = await self._source.get_claim(claim)
        except (ApiUnreachable, ApiRefused) as error:
            known = self._preparation.known(claim.uid)
            # A definite answer, such as "not found": the checkpoint is out of date for this claim.
            if isinstance(error, ApiRefused) and error.is_definite:
                raise ClaimRefused(str(claim), str(error)) from error
            if known is None or not known.reference.name:
                raise ClaimRefused(str(claim), str(error)) from error
            _log.warning("claim %s: prepared from the checkpoint: %s", claim, error)
            configuration = {each.request: each.configuration for each in known.groups}
            return Wanted(known.results, configuration, names_in_files(known.metadata))
        results = results_of(found, claim, self._driver)
        names = names_of(found, claim, self._driver) if self.work.has_metadata else None
        return Wanted(results, configuration_of(found, self._driver), names)


def _message_of(reason: str) -> str:
    """Return a reason as a message: a kubelet cuts a longer message in the same way."""
    return reason if len(reason) <= REASON_LIMIT else f"{reason[: REASON_LIMIT - 3]}..."
