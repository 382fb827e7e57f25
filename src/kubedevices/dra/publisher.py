"""Keeps the ResourceSlices of one driver on one node as the driver wants them. asyncio.

A kubelet deletes all slices of its node when it starts, and anybody may delete or change them, so
they are watched and written again. While nothing changes there is one read every five minutes.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.reconcile import Adopted, Pool, decide
from kubedevices.dra.slices import DeviceObject
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.plugin.timing import back_off

Slices = Sequence[Sequence[DeviceObject]]

_INVALID = 422
# Writes and new lists until the list has what is wanted; more rounds mean that somebody else
# writes.
_ROUNDS = 4
_log = logging.getLogger(__name__)


class PublishTiming(NamedTuple):
    """All in seconds."""

    first_retry: float = 0.2
    """Pause after a failure, or after others changed our slices; doubles up to `last_retry`."""

    last_retry: float = 30.0


class Publisher:
    """Writes what `publish` was last given, from `run` on until it is cancelled."""

    def __init__(
        self, api: ApiClient, driver: str, node_name: str, timing: PublishTiming | None = None
    ) -> None:
        self._api, self._driver, self._node = api, driver, node_name
        self._timing = timing or PublishTiming()
        self._wanted: Slices | None = None
        self._changed = asyncio.Event()
        self._adopted = Adopted()
        self._told: set[str] = set()
        self._complaint = ""
        self.errors = 0
        """How often the server refused something, or could not be reached."""

        self.is_published = False
        """Whether the server had what is wanted when it was asked last."""

        # Names of devices that may be in a slice on the server. None: nobody knows, so any may be.
        self._may_be_there: set[str] | None = None

    def begin_empty(self) -> None:
        """Take it as known that the server has no slices of ours. Before `publish`."""
        self._may_be_there = set()

    def forget(self) -> None:
        """Take nothing as known any more: another instance writes the slices."""
        self.is_published, self._may_be_there = False, None

    @property
    def is_empty(self) -> bool:
        """Whether no slice is wanted, and the server has none."""
        return self.is_published and not self._wanted

    @property
    def wanted(self) -> Slices:
        """The devices of each slice, as they were wanted last."""
        return self._wanted or ()

    @property
    def problem(self) -> str:
        """Why the server does not have what is wanted; empty if it has, or was not asked yet."""
        return self._complaint

    def may_have(self, label: str) -> bool:
        """Whether a device of this name may be on the server; True while it was never asked."""
        return self._may_be_there is None or label in self._may_be_there

    def publish(self, slices: Slices) -> None:
        """Take the devices of each slice; returns at once."""
        if slices != self._wanted:
            self._wanted, self.is_published = slices, False
            if self._may_be_there is not None:
                # Before anything is written: a device that leaves the wanted slices may be there
                # until a list says that it is not.
                self._may_be_there |= _names(slices)
            self._changed.set()

    async def run(self) -> NoReturn:
        """Keep the slices; whatever the server says is logged and tried again."""
        failures = 0
        while self._wanted is None:
            await self._changed.wait()
        while True:
            self._changed.clear()
            try:
                version = await self._sync()
                self._recovered()
                if await self._wait_for_change(version):
                    await self._pause(failures, None)  # longer and longer, should there be a fight
                    failures += 1
                else:
                    failures = 0
            except ApiRefused as error:
                self._complain(error)
                if error.status == _INVALID:
                    await self._changed.wait()  # the same again would be refused again
                else:
                    await self._pause(failures, error.retry_after)
                    failures += 1
            except ApiUnreachable as error:
                self._complain(error)
                await self._pause(failures, None)
                failures += 1

    async def _sync(self) -> str:
        """Write until the server has what is wanted; return the version from which to watch."""
        node = await self._api.get_node(self._node)
        pool = Pool(self._driver, self._node, node["metadata"]["uid"])
        for _ in range(_ROUNDS):
            assert self._wanted is not None
            # The list decides, not the answers to our writes: others write too, and servers drop
            # fields.
            found, version = await self._api.list_slices(self._driver, self._node)
            plan = decide(found, self._wanted, pool, self._adopted)
            if plan.is_empty:
                self._may_be_there = _names(self._wanted)
                return version
            # Obsolete slices first: those of the highest generation count as a part of the pool.
            for each in plan.delete:
                await self._delete(each)
            for each in plan.update:
                self._note(each, await self._api.update_slice(each))
            for each in plan.create:
                self._note(each, await self._api.create_slice(each))
        raise ApiRefused("publish the devices", 409, "Conflict", "somebody else changes our slices")

    async def _delete(self, found: DeviceObject) -> None:
        try:
            await self._api.delete_slice(found)
        except ApiRefused as error:
            # Gone already is as good.
            if error.status != 404:
                raise

    def _note(self, sent: DeviceObject, returned: DeviceObject) -> None:
        dropped = self._adopted.note(sent, returned) - self._told
        if dropped:
            self._told |= dropped
            _log.warning(
                "the API server dropped %s of our devices: the feature gate for it is off",
                ", ".join(sorted(dropped)),
            )

    async def _wait_for_change(self, version: str) -> bool:
        """Return when something else is wanted, or after minutes; True if our slices changed."""
        watch = asyncio.create_task(self._watch(version), name="watch of slices")
        changed = asyncio.create_task(self._changed.wait(), name="change of devices")
        try:
            await asyncio.wait({watch, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (watch, changed):
                task.cancel()
            await asyncio.wait({watch, changed})
        return not watch.cancelled() and watch.result()

    async def _watch(self, version: str) -> bool:
        """Return True at the first event: our own writes are older than `version`."""
        async with contextlib.aclosing(
            self._api.watch_slices(self._driver, self._node, version)
        ) as events:
            async for _ in events:
                return True
        return False

    def _recovered(self) -> None:
        if not self.is_published:
            count = sum(map(len, self._wanted or ()))
            _log.info("%s: %d devices are published on node %s", self._driver, count, self._node)
        elif self._complaint:
            _log.info("%s: the API server has our devices again", self._driver)
        self.is_published, self._complaint = True, ""

    def _complain(self, error: ApiRefused | ApiUnreachable) -> None:
        """Log an error, the same in a row once."""
        level = logging.DEBUG if str(error) == self._complaint else logging.ERROR
        self._complaint = str(error)
        self.errors += 1
        _log.log(level, "%s: devices are not published: %s", self._driver, error)

    async def _pause(self, failures: int, retry_after: float | None) -> None:
        timing = self._timing
        pause = back_off(timing.first_retry, timing.last_retry, failures)
        # At random: after an outage of the API server the drivers of all nodes would come in step.
        await asyncio.sleep(max(pause * random.uniform(0.5, 1), retry_after or 0))


def _names(slices: Slices) -> set[str]:
    return {device["name"] for part in slices for device in part}
