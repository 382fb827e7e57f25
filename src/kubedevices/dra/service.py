"""The DRAPlugin service: the kubelet's calls to prepare and unprepare claims. asyncio.

The service reads the allocation of a claim from the API server. If the API server does not answer,
the service uses the checkpoint for a claim that was prepared before. The author's hooks are called
under the lock, so that preparing and unpreparing a claim never overlap.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kubedevices import deadlines
from kubedevices.allocation import ClaimDevice, ClaimReference
from kubedevices.dra.claim_hooks import ClaimHooks
from kubedevices.dra.claim_lock import ClaimLock
from kubedevices.dra.claims import Configuration, DeviceGroup, Result, configuration_of, results_of
from kubedevices.dra.device_plugin_guard import Guard
from kubedevices.dra.metadata import (
    ClaimNames,
    RequestMetadata,
    metadata_of,
    names_in_files,
    names_of,
)
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.slices import Offer, TypedDevice
from kubedevices.errors import ApiRefused, ApiUnreachable, ClaimRefused, KubedevicesError
from kubedevices.kubelet_api.dra import ClaimAnswer, DeviceHealth, HealthStatus
from kubedevices.plugin import hook_threads
from kubedevices.plugin.author_errors import describe
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.timing import HookTimeouts

ANSWER_LIMIT = 40.0
"""Seconds until the kubelet gets an answer or an error. The kubelet's deadline is 45 s."""

LATE_CALL_LIMIT = ANSWER_LIMIT / 2
"""Seconds that a claim waits for its late call, see `claim_hooks`."""

HEALTH_INTERVAL = 5.0
"""Seconds between two lists of health. For the kubelet, a health older than 30 s is unknown."""

T = TypeVar("T")
Ready = tuple[ClaimDevice, ...]
_log = logging.getLogger(__name__)


class ClaimSource(Protocol):
    """The source of claim objects: the API server."""

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        """Return a ResourceClaim; raises `ApiRefused` or `ApiUnreachable`."""


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
        self._lock = ClaimLock(preparation.lock_file)
        self._is_ending = False
        self._work: set[asyncio.Task[Any]] = set()
        self._guard, self._has_metadata = guard, metadata
        # Labels of the devices of the claim that is being prepared, from before the question to the
        # guard until the checkpoint has them. `is_held` is True meanwhile, so a device plugin of
        # the same scanner cannot get them in between.
        self._being_allocated: frozenset[str] = frozenset()

    def is_held(self, label: str) -> bool:
        """Whether a claim has the device `label`, or is getting it now."""
        return label in self._being_allocated or self._preparation.is_held(label)

    def update(self, offer: Offer) -> None:
        """Set the offered devices."""
        self._offer = offer
        event, self._offered = self._offered, asyncio.Event()
        event.set()

    async def start(self) -> None:
        """Read the checkpoint and repair the files that earlier processes left."""
        await self._locked(self._preparation.start)

    def end_health_streams(self) -> None:
        """End the health streams, which would otherwise never end."""
        self._is_ending = True
        self._offered.set()

    async def settle(self, timeout: float) -> None:
        """Wait for claims that are being prepared or unprepared, at most `timeout` seconds."""
        if self._work:
            await asyncio.wait(self._work, timeout=timeout)

    async def ensure_files(self) -> None:
        """Write missing CDI and metadata files again."""
        await self._run_to_end(self._locked(self._preparation.ensure_files))

    # ------------------------------------------------------------ called by the kubelet

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        """Prepare each claim; the failure of one claim does not affect the others."""
        answers = await asyncio.gather(*(self._answer(each, self._prepare) for each in claims))
        return {claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        """Unprepare each claim; an unknown claim succeeds."""
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
                )
                for label, each in (offer.devices.items() if offer else ())
            ]
            try:
                async with deadlines.timeout(HEALTH_INTERVAL):
                    await news.wait()
            except TimeoutError:
                continue

    # ------------------------------------------------------------ one claim

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold the lock, and read the checkpoint again if another instance changed it."""
        async with self._lock:
            await hook_threads.call(self._preparation.refresh)
            yield

    async def _answer(
        self, claim: ClaimReference, work: Callable[[ClaimReference], Coroutine[Any, Any, Ready]]
    ) -> ClaimAnswer:
        """Return the result of `work`, or an error text after a failure or `ANSWER_LIMIT` seconds.

        `work` goes on after the limit, and after the kubelet has cancelled its call.
        """
        try:
            async with deadlines.timeout(ANSWER_LIMIT):
                return await self._run_to_end(work(claim))
        except TimeoutError:
            return f"claim {claim}: not ready within {ANSWER_LIMIT:g} s, the work goes on"
        except KubedevicesError as error:
            _log.warning("%s", error)
            return str(error)
        except Exception as error:  # from the author's hooks, or a bug: other claims go on
            _log.exception("claim %s", claim)
            return f"claim {claim}: {describe(error)}"

    async def _run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as a task, which runs to its end even if the caller is cancelled."""
        return await asyncio.shield(self._start(work))

    def _start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # mark as read: if nobody waits, the kubelet repeats its call anyway

    async def _prepare(self, claim: ClaimReference) -> Ready:
        # Read before taking the lock: the API server may be slow, and other claims go on meanwhile.
        results, configuration, names = await self._read(claim)
        await self._claim_hooks.wait_for_late_call(claim, LATE_CALL_LIMIT)
        async with self._turn():
            await self._claim_hooks.wait_for_late_call(claim, 0)
            ready = await hook_threads.call(self._preparation.answer_if_ready, claim, results)
            if ready is not None:
                return ready
            offer = self._offer
            offered = offer.devices if offer else {}
            if self._has_metadata and names is None:
                problem = "the path of its metadata is unknown without the API server"
                raise ClaimRefused(str(claim), problem)
            groups = self._claim_hooks.plan(claim, results, offered, configuration)
            self._being_allocated = frozenset(each.device for each in results)
            try:
                await self._check_guard(claim, results, offer)
                known = self._preparation.known(claim.uid)
                # The scheduler allocated other devices than before: first the author's hooks
                # unprepare the old devices.
                if known is not None and known.results != results:
                    await self._claim_hooks.unprepare(claim, known.groups)
                await hook_threads.call(self._preparation.begin, claim, results, offered, groups)
            finally:
                self._being_allocated = frozenset()
            return await self._make_ready(claim, results, offer, groups, names)

    async def _make_ready(
        self,
        claim: ClaimReference,
        results: tuple[Result, ...],
        offer: Offer | None,
        groups: Sequence[DeviceGroup],
        names: ClaimNames | None,
    ) -> Ready:
        """Call the author's hooks for a claim that was begun, and write its files.

        If a step fails, the steps before are undone.
        """
        begun: list[DeviceGroup] = []
        offered: Mapping[str, TypedDevice] = offer.devices if offer else {}
        try:
            given = await self._claim_hooks.allocate(results, offered)
            for group in groups:
                begun.append(group)
                first = next(
                    each
                    for each in results
                    if each.request == group.request
                    and offered[each.device].device_type == group.device_type
                )
                edits, others = given[first]
                given[first] = edits.plus(await self._claim_hooks.prepare(claim, group)), others
            metadata: tuple[RequestMetadata, ...] = ()
            if self._has_metadata and offer is not None and names is not None:
                metadata = metadata_of(self._driver, claim, names, results, offer.attributes)
            return await hook_threads.call(self._preparation.finish, claim, given.items(), metadata)
        except BaseException:
            # A late hook still runs in its thread: undo its work only after it has returned.
            if self._claim_hooks.is_late(claim):
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

    async def _undo(self, claim: ClaimReference, groups: Sequence[DeviceGroup]) -> None:
        """Undo what was begun. If this fails, the claim keeps its devices until the next call."""
        try:
            await self._claim_hooks.unprepare(claim, groups)
        except Exception as error:
            _log.error("claim %s: not undone, it keeps its devices: %s", claim, describe(error))
        else:
            await hook_threads.call(self._preparation.remove, claim.uid)

    async def _undo_later(self, claim: ClaimReference, groups: Sequence[DeviceGroup]) -> None:
        """Undo what was begun, after the late call has returned."""
        await self._claim_hooks.wait_for_late_call(claim, None)
        async with self._turn():
            known = self._preparation.known(claim.uid)
            if known is not None and not known.is_ready:
                await self._undo(claim, groups)

    async def _unprepare(self, claim: ClaimReference) -> Ready:
        await self._claim_hooks.wait_for_late_call(claim, LATE_CALL_LIMIT)
        async with self._turn():
            await self._claim_hooks.wait_for_late_call(claim, 0)
            known = self._preparation.known(claim.uid)
            if known is not None:
                await self._claim_hooks.unprepare(known.reference, known.groups)
            await hook_threads.call(self._preparation.remove, claim.uid)
        return ()

    async def _locked(self, function: Callable[..., None], *arguments: object) -> None:
        async with self._turn():
            await hook_threads.call(function, *arguments)

    async def _read(
        self, claim: ClaimReference
    ) -> tuple[tuple[Result, ...], Mapping[str, Configuration], ClaimNames | None]:
        """Return the allocation of a claim, its configuration by request, and its names.

        The names are None if metadata is off, and if they are unknown without the API server.
        """
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
            return known.results, configuration, names_in_files(known.metadata)
        results = results_of(found, claim, self._driver)
        names = names_of(found, claim, self._driver) if self._has_metadata else None
        return results, configuration_of(found, self._driver), names
