"""Writes the ResourceSlices of one driver on one node and keeps them up to date. asyncio.

A kubelet deletes all slices of its node when it starts, and other clients may delete or change
slices. So the publisher watches the slices and writes them again. While nothing changes, it reads
the slices every five minutes.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, NamedTuple, NoReturn

from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.slice_writes import Pool, StoredForms, plan_writes
from kubedevices.dra.slices import DeviceObject
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.errors.words import counted
from kubedevices.plugin.timing import back_off

Slices = Sequence[Sequence[DeviceObject]]

_INVALID = 422
# Rounds of list and write until the list shows the wanted slices. If four rounds are not enough,
# another client writes the same slices.
_ROUNDS = 4
_log = logging.getLogger(__name__)


class PublishTiming(NamedTuple):
    """All in seconds."""

    first_retry: float = 0.2
    """Pause after a failure, or after another client changed the slices; the pause doubles up to
    `last_retry`."""

    last_retry: float = 30.0

    invalid: float = 60.0
    """Pause after slices that the API server refuses as invalid; the pause doubles up to
    `last_invalid`. An administrator may change an admission policy meanwhile."""

    last_invalid: float = 600.0


class Publisher:
    """Publishes the slices of the last call of `publish`, while `run` runs."""

    def __init__(
        self, api: ApiClient, driver: str, node_name: str, timing: PublishTiming | None = None
    ) -> None:
        self._api, self._driver, self._node = api, driver, node_name
        self._timing = timing or PublishTiming()
        self._wanted: Slices | None = None
        self._changed = asyncio.Event()
        self._stored_forms = StoredForms()
        self._logged_fields: set[str] = set()
        self._last_left = ""
        self.problem = ""
        """Why the last attempt to publish failed; empty after a success and before any attempt."""

        self.errors = 0
        """How many calls the API server refused or did not answer."""

        self.is_published = False
        """Whether the server had the wanted slices when the publisher last listed them."""

        # Labels of devices that may be in a slice on the server. None means unknown: any device may
        # be in a slice.
        self._possibly_published: set[str] | None = None

    def assume_only(self, labels: Collection[str]) -> None:
        """Assume that slices on the server have no other devices. Call this before `publish`."""
        self._possibly_published = {*labels}

    def forget_server_state(self) -> None:
        """Assume nothing about the slices on the server: another instance writes them now."""
        self.is_published, self._possibly_published = False, None

    @property
    def is_empty(self) -> bool:
        """Whether no slice is wanted and the server has none."""
        return self.is_published and not self._wanted

    @property
    def wanted(self) -> Slices:
        """The devices of each slice, from the last call of `publish`."""
        return self._wanted or ()

    def may_have(self, label: str) -> bool:
        """Whether a slice on the server may have the device `label`; True if that is unknown."""
        return self._possibly_published is None or label in self._possibly_published

    def publish(self, slices: Slices) -> None:
        """Set the wanted slices, each as a sequence of devices, and return at once."""
        if slices != self._wanted:
            self._wanted, self.is_published = slices, False
            if self._possibly_published is not None:
                # Labels are added before the first write, and removed only by a list in `_sync`: a
                # device that leaves the wanted slices may stay on the server until then.
                self._possibly_published |= _names(slices)
            self._changed.set()

    async def run(self) -> NoReturn:
        """Keep the slices up to date until cancelled. Errors are logged, and the call repeated."""
        failures = refusals = 0
        while self._wanted is None:
            await self._changed.wait()
        while True:
            self._changed.clear()
            try:
                version = await self._sync()
                refusals = 0
                self._log_success()
                waiting = self._wait_for_change(version, None)
                if await self._is_early(waiting, self._timing.last_retry):
                    # The pause grows, in case another client changes the slices again and again,
                    # or the server ends each watch at once.
                    await self._pause(failures, None)
                    failures += 1
                else:
                    failures = 0
            except ApiRefused as error:
                self._log_error(error)
                if error.status == _INVALID:
                    await self._wait_after_refusal(refusals)
                    refusals += 1
                else:
                    await self._pause(failures, error.retry_after)
                    failures += 1
            except ApiUnreachable as error:
                self._log_error(error)
                await self._pause(failures, None)
                failures += 1

    async def _wait_after_refusal(self, refusals: int) -> None:
        """Wait until other slices are wanted, or the slices on the server change, or for long.

        The server would refuse the same slices again, but another client may delete the slices that
        are still there.
        """
        timing = self._timing
        pause = back_off(timing.invalid, timing.last_invalid, refusals) * random.uniform(0.5, 1)
        try:
            found, version = await self._api.list_slices(self._driver, self._node)
            names = _names([each["spec"].get("devices", []) for each in found])
            self._possibly_published = names | _names(self._wanted or ())
            slices, devices = counted(len(found), "slice"), counted(len(names), "device")
            if (left := f"{slices} with {devices}" if found else "no slice") != self._last_left:
                _log.error("%s: the API server still has %s from before", self._driver, left)
            self._last_left = left
            if await self._is_early(self._wait_for_change(version, pause), pause):
                await self._pause(refusals, None)
        except (ApiRefused, ApiUnreachable) as error:
            self._log_error(error)
            await self._pause(refusals, None)

    async def _sync(self) -> str:
        """Write until the server has the wanted slices; return the version to watch from."""
        node = await self._api.get_node(self._node)
        pool = Pool(self._driver, self._node, node["metadata"]["uid"])
        for _ in range(_ROUNDS):
            assert self._wanted is not None
            # Success is decided by a new list, not by the answers to the writes: other clients may
            # write too, and servers drop fields.
            found, version = await self._api.list_slices(self._driver, self._node)
            plan = plan_writes(found, self._wanted, pool, self._stored_forms)
            if plan.is_empty:
                self._possibly_published = _names(self._wanted)
                return version
            # Delete obsolete slices first: one of the highest generation would count as a part of
            # the pool.
            for each in plan.delete:
                await self._delete(each)
            for each in plan.update:
                self._record(each, await self._api.update_slice(each))
            for each in plan.create:
                self._record(each, await self._api.create_slice(each))
        problem = "another client keeps changing the slices of this driver"
        raise ApiRefused("publish the devices", 409, "Conflict", problem)

    async def _delete(self, found: DeviceObject) -> None:
        try:
            await self._api.delete_slice(found)
        except ApiRefused as error:
            if error.status != 404:  # 404: the slice is already deleted
                raise

    def _record(self, sent: DeviceObject, returned: DeviceObject) -> None:
        dropped = self._stored_forms.record(sent, returned) - self._logged_fields
        if dropped:
            self._logged_fields |= dropped
            _log.warning(
                "the API server dropped %s of the published devices: a feature gate is off",
                ", ".join(sorted(dropped)),
            )

    async def _wait_for_change(self, version: str, timeout: float | None) -> bool:
        """Wait until other slices are wanted, the slices on the server change, or the watch ends.

        Return after `timeout` seconds at the latest. Return True if another client changed the
        slices.
        """
        watch = asyncio.create_task(self._watch(version), name="watch of slices")
        changed = asyncio.create_task(self._changed.wait(), name="change of devices")
        try:
            await asyncio.wait(
                {watch, changed}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in (watch, changed):
                task.cancel()
            await asyncio.wait({watch, changed})
        return not watch.cancelled() and watch.result()

    async def _is_early(self, waiting: Coroutine[Any, Any, bool], usual: float) -> bool:
        """Whether another client changed the slices, or the server ended the watch before `usual`.

        `usual` is in seconds.
        """
        began = asyncio.get_running_loop().time()
        is_changed = await waiting
        took = asyncio.get_running_loop().time() - began
        return is_changed or (took < usual and not self._changed.is_set())

    async def _watch(self, version: str) -> bool:
        """Return True at the first event. It is never our own write: these precede `version`."""
        async with contextlib.aclosing(
            self._api.watch_slices(self._driver, self._node, version)
        ) as events:
            async for _ in events:
                return True
        return False

    def _log_success(self) -> None:
        if not self.is_published:
            count = sum(map(len, self._wanted or ()))
            _log.info("%s: %d devices are published on node %s", self._driver, count, self._node)
        elif self.problem:
            _log.info("%s: the devices are published again", self._driver)
        self.is_published, self.problem, self._last_left = True, "", ""

    def _log_error(self, error: ApiRefused | ApiUnreachable) -> None:
        """Count and log an error; the same error again is logged at level debug."""
        level = logging.DEBUG if str(error) == self.problem else logging.ERROR
        self.problem = str(error)
        self.errors += 1
        _log.log(level, "%s: devices are not published: %s", self._driver, error)

    async def _pause(self, failures: int, retry_after: float | None) -> None:
        timing = self._timing
        pause = back_off(timing.first_retry, timing.last_retry, failures)
        # The pause is random, so that the drivers of all nodes do not call at the same time after
        # an outage of the API server.
        pause *= random.uniform(0.5, 1)
        if retry_after is not None and retry_after > pause:
            pause = retry_after
            _log.info("%s: waits %.0f s, as the API server asks for", self._driver, pause)
        await asyncio.sleep(pause)


def _names(slices: Slices) -> set[str]:
    return {device["name"] for part in slices for device in part}
