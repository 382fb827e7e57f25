"""Prepares and unprepares one claim: the guard, the author's hooks, the files. asyncio.

Claims share what is slow: the question to the guard and the writes of the checkpoint. Calls of the
author's hooks never overlap, also for different claims.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kubedevices.dra.claim_hooks import ClaimHooks
from kubedevices.dra.claim_lock import ClaimLock
from kubedevices.dra.claim_turns import ClaimTurns
from kubedevices.dra.claims import Configuration, DeviceGroup, Result
from kubedevices.dra.device_plugin_guard import Guard
from kubedevices.dra.metadata import ClaimNames, RequestMetadata, metadata_of
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.shared_devices import SharedDevices, groups_to_undo
from kubedevices.dra.shared_writes import SharedWrites
from kubedevices.dra.slices import Offer, TypedDevice
from kubedevices.errors import ClaimRefused
from kubedevices.plugin import hook_threads
from kubedevices.plugin.author_errors import describe
from kubedevices.values.allocation import ClaimDevice, ClaimReference

LATE_CALL_LIMIT = 20.0
"""Seconds that a claim waits for its late call, see `claim_hooks`."""

T = TypeVar("T")
Ready = tuple[ClaimDevice, ...]
_log = logging.getLogger(__name__)


class Wanted(NamedTuple):
    """What the API server, or the checkpoint, says about a claim.

    `names` is None if metadata is off, and if they are unknown without the API server.
    """

    results: tuple[Result, ...]
    configuration: Mapping[str, Configuration]
    names: ClaimNames | None


class ClaimWork:
    """Works on the claims of one driver; `offer` returns the devices that the driver offers now."""

    def __init__(
        self,
        driver: str,
        preparation: Preparation,
        hooks: ClaimHooks,
        offer: Callable[[], Offer | None],
        *,
        guard: Guard | None,
        metadata: bool,
    ) -> None:
        self._driver, self._preparation, self._hooks = driver, preparation, hooks
        self._offer, self._guard, self.has_metadata = offer, guard, metadata
        self._disk = SharedWrites(preparation.together)
        # At each turn the checkpoint is read again if another instance changed it.
        refresh = partial(hook_threads.call, preparation.refresh)
        self.turns = ClaimTurns(ClaimLock(preparation.lock_file), refresh)
        """The turns of this process, and of each claim in it."""

        self._calling_hooks = asyncio.Lock()
        self._shared = SharedDevices()
        # Labels of the devices of the claims that are being prepared, by UID, from before the
        # question to the guard until the checkpoint has them. `is_held` is True meanwhile, so a
        # device plugin of the same scanner cannot get them in between.
        self._being_allocated: dict[str, frozenset[str]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.changed = asyncio.Event()
        """Set when a claim has gone, or another instance changed the claims."""

    def is_held(self, label: str) -> bool:
        """Whether a claim has the device `label`, or is getting it now."""
        return self._preparation.is_held(label) or any(
            label in each for each in self._being_allocated.values()
        )

    def wake(self) -> None:
        """Set the event `changed`; the next `changed` is another event."""
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    # ------------------------------------------------------------ tasks

    async def run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as a task, which runs to its end even if the caller is cancelled."""
        return await asyncio.shield(self._start(work, "claim"))

    async def settle(self, timeout: float) -> None:
        """Wait for claims that are being prepared or unprepared, at most `timeout` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    def _start(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark as read: if nobody waits, the kubelet repeats its call anyway

    # ------------------------------------------------------------ files

    async def start(self) -> None:
        """Read the checkpoint and repair the files that earlier processes left."""
        async with self.turns.of_process():
            await hook_threads.call(self._preparation.start)

    async def ensure_files(self) -> None:
        """Write missing files again, and look for changes by another instance."""
        async with self.turns.of_process():
            await self._disk.do(self._preparation.ensure_files)
        self.wake()

    # ------------------------------------------------------------ prepare

    async def prepare(
        self, claim: ClaimReference, wanted: Wanted, is_over: Callable[[], bool]
    ) -> Ready:
        """Prepare a claim, and return the answer for the kubelet.

        `is_over` returns whether the claim was unprepared since the kubelet's call. Raises
        `ClaimRefused` and `PreparedUnwritable`, and what a hook raises.
        """
        await self._hooks.wait_for_late_call(claim, LATE_CALL_LIMIT)
        async with self.turns.of(claim.uid):
            self._hooks.refuse_late_call(claim)
            if is_over():
                raise ClaimRefused(str(claim), "it was unprepared meanwhile")
            results = wanted.results
            ready = await self._disk.do(self._preparation.answer_if_ready, claim, results)
            if ready is not None:
                return ready
            offer = self._offer()
            offered = offer.devices if offer else {}
            if self.has_metadata and wanted.names is None:
                problem = "the path of its metadata is unknown without the API server"
                raise ClaimRefused(str(claim), problem)
            groups = self._hooks.plan(claim, results, offered, wanted.configuration)
            self._being_allocated[claim.uid] = frozenset(each.device for each in results)
            try:
                await self._check_guard(claim, results, offer)
                known = self._preparation.known(claim.uid)
                # The scheduler allocated other devices than before: first the author's hooks
                # unprepare the old devices.
                if known is not None and known.results != results:
                    await self._call_unprepare(claim, known.groups)
                await self._disk.do(self._preparation.begin, claim, results, offered, groups)
            finally:
                del self._being_allocated[claim.uid]
            return await self._make_ready(claim, wanted, offer, groups)

    async def _check_guard(
        self, claim: ClaimReference, results: tuple[Result, ...], offer: Offer | None
    ) -> None:
        """Raise `ClaimRefused` if the device plugin API has a device that is new to the claim."""
        if self._guard is None or offer is None:
            return
        before = self._preparation.known(claim.uid)
        known = {each.device for each in before.results} if before else set()
        labels = [each.device for each in results if each.device not in known]
        keys = [key for each in labels if each in offer.devices for key in offer.keys_of(each)]
        if keys and (why := await self._guard.refusal(keys)):
            raise ClaimRefused(str(claim), why)

    async def _make_ready(
        self,
        claim: ClaimReference,
        wanted: Wanted,
        offer: Offer | None,
        groups: Sequence[DeviceGroup],
    ) -> Ready:
        """Call the author's hooks for a claim that was begun, and write its files.

        If a step fails, the steps before are undone.
        """
        begun: list[DeviceGroup] = []
        results = wanted.results
        offered: Mapping[str, TypedDevice] = offer.devices if offer else {}
        try:
            async with self._calling_hooks:
                others = self._shared.work_of_others(claim.uid, self._preparation.ready_groups())
                given, done = await self._hooks.make_ready(
                    claim, results, offered, groups, others=others, begun=begun
                )
                self._shared.note_done(claim.uid, done)
            metadata: tuple[RequestMetadata, ...] = ()
            if self.has_metadata and offer is not None and wanted.names is not None:
                metadata = metadata_of(self._driver, claim, wanted.names, results, offer.attributes)
            finish = self._preparation.finish
            ready: Ready = await self._disk.do(finish, claim, given.items(), metadata, done)
        except BaseException:
            # A late hook still runs in its thread: undo its work only after it has returned.
            if self._hooks.is_late(claim):
                self._start(self._undo_later(claim, tuple(begun)), f"undo claim {claim}")
            else:
                await self._undo(claim, begun)
            raise
        self._shared.forget(claim.uid)
        return ready

    # ------------------------------------------------------------ unprepare

    async def unprepare(self, claim: ClaimReference) -> None:
        """Unprepare a claim; an unknown claim succeeds. Raises what a hook raises."""
        await self._hooks.wait_for_late_call(claim, LATE_CALL_LIMIT)
        async with self.turns.of(claim.uid):
            self._hooks.refuse_late_call(claim)
            await self._unprepare_now(claim)

    async def unprepare_if(
        self, claim: ClaimReference, reason: Callable[[], Awaitable[str]]
    ) -> None:
        """Unprepare a claim if `reason`, called in the turn of the claim, returns a text."""
        async with self.turns.of(claim.uid):
            self._hooks.refuse_late_call(claim)
            if await reason():
                await self._unprepare_now(claim)

    async def _unprepare_now(self, claim: ClaimReference) -> None:
        """Unprepare a claim in its turn."""
        known = self._preparation.known(claim.uid)
        if known is not None:
            await self._call_unprepare(known.reference, known.groups)
        await self._remove(claim)

    async def _call_unprepare(self, claim: ClaimReference, groups: Sequence[DeviceGroup]) -> None:
        """Let the author's hooks undo the work that no other claim uses."""
        async with self._calling_hooks:
            others = self._shared.work_of_others(claim.uid, self._preparation.ready_groups())
            await self._hooks.unprepare(claim, groups_to_undo(groups, others))
            self._shared.note_undone(claim.uid)

    async def _remove(self, claim: ClaimReference) -> None:
        await self._disk.do(self._preparation.remove, claim.uid)
        self._shared.forget(claim.uid)
        self.wake()

    async def _undo(self, claim: ClaimReference, groups: Sequence[DeviceGroup]) -> None:
        """Undo what was begun. If this fails, the claim keeps its devices until the next call."""
        try:
            await self._call_unprepare(claim, groups)
        except Exception as error:
            _log.error("claim %s: not undone, it keeps its devices: %s", claim, describe(error))
        else:
            await self._remove(claim)

    async def _undo_later(self, claim: ClaimReference, groups: Sequence[DeviceGroup]) -> None:
        """Undo what was begun, after the late call has returned."""
        await self._hooks.wait_for_late_call(claim, None)
        async with self.turns.of(claim.uid):
            known = self._preparation.known(claim.uid)
            if known is not None and not known.is_ready:
                await self._undo(claim, groups)
