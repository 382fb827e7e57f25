"""The DRAPlugin service of a driver: what a kubelet asks of it. asyncio.

The API server is asked what the scheduler gave to a claim. If it cannot be reached, a claim that
was prepared before is served from what is known of it. The author's hooks are called under the
lock, so that preparing a claim and giving it back never overlap.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kubedevices.allocation import ClaimDevice, ClaimReference
from kubedevices.dra.author_calls import AuthorCalls
from kubedevices.dra.claim_lock import ClaimLock
from kubedevices.dra.claims import Configuration, Group, Result, configuration_of, results_of
from kubedevices.dra.guard import Guard
from kubedevices.dra.metadata import (
    ClaimNames,
    RequestMetadata,
    metadata_of,
    names_known,
    names_of,
)
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.slices import Offer, TypedDevice
from kubedevices.errors import ApiRefused, ApiUnreachable, ClaimRefused, KubedevicesError
from kubedevices.kubelet_api.dra import ClaimAnswer, DeviceHealth, HealthStatus
from kubedevices.plugin import hook_threads
from kubedevices.plugin.author_code import describe
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.timing import HookTimeouts

ANSWER_LIMIT = 40.0
"""Seconds until a kubelet gets an answer, be it an error: after 45 s it hangs up."""

QUIET_LIMIT = ANSWER_LIMIT / 2
"""Seconds that a claim waits for a call of the author's code that is late."""

HEALTH_INTERVAL = 5.0
"""Seconds between two lists of health: to a kubelet, what is older than 30 s is unknown."""

T = TypeVar("T")
Ready = tuple[ClaimDevice, ...]
_log = logging.getLogger(__name__)


class ClaimSource(Protocol):
    """Where claims are read."""

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        """Return a ResourceClaim; raises `ApiRefused` or `ApiUnreachable`."""


class ClaimService:
    """Prepares claims with what `offer` has; `offer` is replaced with every scan."""

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
        self._author = AuthorCalls(
            driver,
            hooks_of,
            dev_root=dev_root,
            timeouts=timeouts or HookTimeouts(),
            longest=ANSWER_LIMIT / 2,
        )
        self._offer: Offer | None = None
        self._offered = asyncio.Event()
        self._lock = ClaimLock(preparation.lock_file)
        self._is_ending = False
        self._work: set[asyncio.Task[Any]] = set()
        self._guard, self._has_metadata = guard, metadata
        # Devices of the claim in turn, from before the guard is asked until the checkpoint has
        # them: so nobody else gets them in between.
        self._taking: frozenset[str] = frozenset()

    def is_held(self, label: str) -> bool:
        """Whether a claim has the device of this name, or is about to get it."""
        return label in self._taking or self._preparation.is_held(label)

    def update(self, offer: Offer) -> None:
        """Take what is offered from now on."""
        self._offer = offer
        event, self._offered = self._offered, asyncio.Event()
        event.set()

    async def start(self) -> None:
        """Take up what earlier processes have left."""
        await self._locked(self._preparation.start)

    def end_health(self) -> None:
        """End the streams of health: what is waited for after that are claims."""
        self._is_ending = True
        self._offered.set()

    async def settle(self, timeout: float) -> None:
        """Wait for claims that are being prepared or given back."""
        if self._work:
            await asyncio.wait(self._work, timeout=timeout)

    async def ensure_files(self) -> None:
        """Write again what is missing of the CDI files."""
        await self._own(self._locked(self._preparation.ensure_files))

    # ------------------------------------------------------------ what a kubelet calls

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        """Prepare each claim; the failure of a claim does not touch the others."""
        answers = await asyncio.gather(*(self._answer(each, self._prepare) for each in claims))
        return {claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        """Give each claim back; an unknown claim is given back already."""
        answers = await asyncio.gather(*(self._answer(each, self._unprepare) for each in claims))
        return {
            claim.uid: answer if isinstance(answer, str) else ""
            for claim, answer in zip(claims, answers, strict=True)
        }

    async def watch_health(self) -> AsyncIterator[list[DeviceHealth]]:
        """Yield the health of all devices at once, with each change, and every few seconds."""
        while not self._is_ending:
            # Both before the yield: an offer that comes while the reader is slow is not missed.
            news, offer = self._offered, self._offer
            now = int(time.time())
            yield [
                DeviceHealth(
                    self._node,
                    label,
                    HealthStatus.HEALTHY if each.device.is_healthy else HealthStatus.UNHEALTHY,
                    now,
                )
                for label, each in (offer.devices.items() if offer else ())
            ]
            try:
                async with asyncio.timeout(HEALTH_INTERVAL):
                    await news.wait()
            except TimeoutError:
                continue

    # ------------------------------------------------------------ one claim

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Be the only process that prepares or gives back, and know what the others did."""
        async with self._lock:
            await hook_threads.call(self._preparation.refresh)
            yield

    async def _answer(
        self, claim: ClaimReference, work: Callable[[ClaimReference], Coroutine[Any, Any, Ready]]
    ) -> ClaimAnswer:
        """Return what `work` returns, or why not. It goes on if the kubelet stops waiting."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT):
                return await self._own(work(claim))
        except TimeoutError:
            return f"claim {claim}: not ready within {ANSWER_LIMIT:g} s, still at work"
        except KubedevicesError as error:
            _log.warning("%s", error)
            return str(error)
        except Exception as error:  # of the author's code, or a bug: the other claims go on
            _log.exception("claim %s", claim)
            return f"claim {claim}: {describe(error)}"

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as a task of ours, which ends even if the caller is cancelled."""
        return await asyncio.shield(self._start(work))

    def _start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; if nobody does any more, it is asked again

    async def _prepare(self, claim: ClaimReference) -> Ready:
        # Before the turn: the API server may take long, and other claims go on meanwhile.
        results, configuration, names = await self._read(claim)
        await self._author.wait_until_quiet(claim, QUIET_LIMIT)
        async with self._turn():
            await self._author.wait_until_quiet(claim, 0)
            ready = await hook_threads.call(self._preparation.ready, claim, results)
            if ready is not None:
                return ready
            offer = self._offer
            offered = offer.devices if offer else {}
            if self._has_metadata and names is None:
                problem = "without the API server it is not known where its metadata belongs"
                raise ClaimRefused(str(claim), problem)
            groups = self._author.plan(claim, results, offered, configuration)
            self._taking = frozenset(each.device for each in results)
            try:
                await self._check_guard(claim, results, offer)
                known = self._preparation.known(claim.uid)
                # The scheduler gave the claim other devices than before: the author undoes the old
                # ones first.
                if known is not None and known.results != results:
                    await self._author.unprepare(claim, known.groups)
                await hook_threads.call(self._preparation.begin, claim, results, offered, groups)
            finally:
                self._taking = frozenset()
            return await self._make_ready(claim, results, offer, groups, names)

    async def _make_ready(
        self,
        claim: ClaimReference,
        results: tuple[Result, ...],
        offer: Offer | None,
        groups: Sequence[Group],
        names: ClaimNames | None,
    ) -> Ready:
        """Let the author prepare a claim that was begun; what fails is undone."""
        begun: list[Group] = []
        offered: Mapping[str, TypedDevice] = offer.devices if offer else {}
        try:
            given = await self._author.give(results, offered)
            for group in groups:
                begun.append(group)
                first = next(
                    each
                    for each in results
                    if each.request == group.request
                    and offered[each.device].device_type == group.device_type
                )
                edits, others = given[first]
                given[first] = edits.plus(await self._author.prepare(claim, group)), others
            metadata: tuple[RequestMetadata, ...] = ()
            if self._has_metadata and offer is not None and names is not None:
                metadata = metadata_of(self._driver, claim, names, results, offer.attributes)
            return await hook_threads.call(self._preparation.finish, claim, given.items(), metadata)
        except BaseException:
            # The author's code still runs in its thread, and must not be undone beside itself.
            if self._author.is_late(claim):
                self._start(self._undo_later(claim, tuple(begun)))
            else:
                await self._undo(claim, begun)
            raise

    async def _check_guard(
        self, claim: ClaimReference, results: tuple[Result, ...], offer: Offer | None
    ) -> None:
        """Raise `ClaimRefused` if the device plugin API has a device that is new to the claim."""
        if self._guard is None or offer is None:
            return
        known = {each.device for each in self._preparation.results_of(claim.uid)}
        labels = [each.device for each in results if each.device not in known]
        keys = [offer.key_of(each) for each in labels if each in offer.devices]
        if keys and (why := await self._guard.refusal(keys)):
            raise ClaimRefused(str(claim), why)

    async def _undo(self, claim: ClaimReference, groups: Sequence[Group]) -> None:
        """Undo what was begun; if that fails, the claim keeps its devices and is tried again."""
        try:
            await self._author.unprepare(claim, groups)
        except Exception as error:
            _log.error("claim %s: not undone, it keeps its devices: %s", claim, describe(error))
        else:
            await hook_threads.call(self._preparation.take_back, claim.uid)

    async def _undo_later(self, claim: ClaimReference, groups: Sequence[Group]) -> None:
        """Undo it when the call that is late has returned."""
        await self._author.wait_until_quiet(claim, None)
        async with self._turn():
            known = self._preparation.known(claim.uid)
            if known is not None and not known.is_ready:
                await self._undo(claim, groups)

    async def _unprepare(self, claim: ClaimReference) -> Ready:
        await self._author.wait_until_quiet(claim, QUIET_LIMIT)
        async with self._turn():
            await self._author.wait_until_quiet(claim, 0)
            known = self._preparation.known(claim.uid)
            if known is not None:
                await self._author.unprepare(known.reference, known.groups)
            await hook_threads.call(self._preparation.take_back, claim.uid)
        return ()

    async def _locked(self, function: Callable[..., None], *arguments: object) -> None:
        async with self._turn():
            await hook_threads.call(function, *arguments)

    async def _read(
        self, claim: ClaimReference
    ) -> tuple[tuple[Result, ...], Mapping[str, Configuration], ClaimNames | None]:
        """Return what is allocated to a claim, what is configured by request, and its names."""
        try:
            found = await self._source.get_claim(claim)
        except (ApiUnreachable, ApiRefused) as error:
            known = self._preparation.known(claim.uid)
            # A clear no, such as "not found": what we know of the claim is out of date.
            if isinstance(error, ApiRefused) and error.status < 500 and error.status != 429:
                raise ClaimRefused(str(claim), str(error)) from error
            if known is None or not known.reference.name:
                raise ClaimRefused(str(claim), str(error)) from error
            _log.warning("claim %s: served from what is known: %s", claim, error)
            configuration = {each.request: each.configuration for each in known.groups}
            return known.results, configuration, names_known(known.metadata)
        results = results_of(found, claim, self._driver)
        names = names_of(found, claim, self._driver) if self._has_metadata else None
        return results, configuration_of(found, self._driver), names
