"""Prepares the claims of a pod before it starts, and unprepares them after its end. asyncio.

A claim that several pods share is prepared once, and unprepared after its last pod. A pod that
needs a claim whose unprepare is under way waits for that call, and then the claim is prepared
again. The calls for one pod come one after the other. A failed unprepare is tried again every
minute. After a stop in the middle of a call, the next start repeats the call.

The state is in a file with the name `dra_manager_state` and the content that a kubelet writes.
"""

import asyncio
import contextlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from kubedevices.errors import DynamicResourcesFailed, KubedevicesError, RpcError
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.host.state_file import StateFile
from kubedevices.kubelet_api.dra import PLUGIN_TYPE, DeviceHealth, HealthStatus
from kubedevices.node.arrival.plugin_watcher import PluginWatcher, WatcherTiming
from kubedevices.testing.dra_kubelet.claim_cache import ClaimCache, ClaimInfo, answer_problem
from kubedevices.testing.dra_kubelet.connection import CallTiming, DriverConnection
from kubedevices.testing.dra_kubelet.drivers import WIPE_DELAY, Drivers
from kubedevices.testing.dra_kubelet.health import HealthCache
from kubedevices.values.allocation import ClaimReference
from kubedevices.values.scheduling.kinds import POD_GROUP

STATE_FILE = "dra_manager_state"
_STATE_LIMIT = 64 * 2**20
_STATE_VERSION = 1
_log = logging.getLogger(__name__)


class ClusterApi(Protocol):
    """A kubelet's calls to the API server; both raise `ApiRefused` or `ApiUnreachable`."""

    async def get_claim(self, claim: ClaimReference) -> Mapping[str, Any]:
        """Return a ResourceClaim by namespace and name."""

    async def delete_slices(self, node_name: str, driver: str) -> None:
        """Delete the ResourceSlices of a driver on a node; an empty `driver` means all drivers."""


class DraPod(NamedTuple):
    """A pod with claims: `claims` are names of ResourceClaims in its namespace.

    `group` is the PodGroup of the pod (`spec.schedulingGroup.podGroupName`); empty without one.
    """

    uid: str
    name: str
    claims: tuple[str, ...]
    namespace: str = "default"
    group: str = ""


class DraTiming(NamedTuple):
    """All in seconds, as in a kubelet."""

    wipe: float = WIPE_DELAY
    reconcile: float = 60.0
    calls: CallTiming = CallTiming()
    watcher: WatcherTiming = WatcherTiming()


class ClaimManager:
    """The kubelet's side of DRA with the root directory `kubelet_dir`."""

    def __init__(
        self,
        kubelet_dir: Path,
        node_name: str,
        api: ClusterApi,
        *,
        timing: DraTiming | None = None,
    ) -> None:
        self.kubelet_dir, self.node_name, self._api = kubelet_dir, node_name, api
        self._timing = timing = timing or DraTiming()
        self._file = StateFile(
            SharedDirectory(kubelet_dir), STATE_FILE, limit=_STATE_LIMIT, version=_STATE_VERSION
        )
        self._cache, self._health = ClaimCache(), HealthCache()
        self._active: set[str] = set()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._leaving: dict[ClaimReference, asyncio.Event] = {}
        self._task: asyncio.Task[NoReturn] | None = None
        self.drivers = Drivers(
            self._wipe, self._record_health, wipe_delay=timing.wipe, timing=timing.calls
        )
        self._watcher = PluginWatcher(
            kubelet_dir / "plugins_registry", {PLUGIN_TYPE: self.drivers}, timing=timing.watcher
        )

    async def start(self, active_pods: Iterable[str] = ()) -> None:
        """Delete all slices of the node, look for drivers, and unprepare claims of ended pods.

        `active_pods` are the UIDs of pods that still run after a restart. Raises `CannotAsk`.
        """
        self._active = set(active_pods)
        with contextlib.suppress(FileNotFoundError):
            self._cache = self._file.read(ClaimCache.from_document)
        await self._watcher.start()
        self.drivers.start()
        self._task = asyncio.create_task(self._reconcile_always(), name="claims of ended pods")

    async def stop(self) -> None:
        """Stop as a kubelet does: pods and their claims stay."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._watcher.stop()
        await self.drivers.stop()

    async def _wipe(self, driver: str) -> None:
        await self._api.delete_slices(self.node_name, driver)

    # ------------------------------------------------------------ pods

    async def prepare(self, pod: DraPod) -> None:
        """Prepare the claims of a pod that is about to start.

        Raises `DynamicResourcesFailed`; a kubelet tries again until the pod is deleted.
        """
        self._active.add(pod.uid)
        async with self._turns[pod.uid]:
            await self._prepare(pod)

    async def _prepare(self, pod: DraPod) -> None:
        claims = [await self._claim_for(pod, name) for name in pod.claims]
        instances = {
            driver: self.drivers.get(driver, "prepare")
            for claim in claims
            for driver in claim.devices
        }
        for found in claims:
            while (gone := self._leaving.get(found.reference)) is not None:
                await gone.wait()  # ends with the call to the driver, which has a deadline
        wanted: list[ClaimInfo] = []
        for found in claims:
            claim = self._known(found)
            claim.pods.add(pod.uid)
            if not claim.is_prepared:
                wanted.append(claim)
        self._save()
        for driver, instance in instances.items():
            await self._prepare_at(driver, instance, [c for c in wanted if driver in c.devices])
        for claim in wanted:
            claim.is_prepared = True
        self._save()

    async def unprepare(self, pod_uid: str) -> None:
        """Unprepare the claims of an ended pod that no other pod uses.

        Raises `DynamicResourcesFailed`; a background task tries again every minute.
        """
        self._active.discard(pod_uid)
        async with self._turns[pod_uid]:
            await self._unprepare(pod_uid)

    def prepared(self, namespace: str, name: str) -> ClaimInfo | None:
        """Return a claim that a pod on this node uses, prepared or not."""
        return self._cache.get(namespace, name)

    def claims_of(self, pod_uid: str) -> Iterator[ClaimInfo]:
        """Yield the claims that the kubelet has for a pod."""
        return (each for each in self._cache if pod_uid in each.pods)

    def health(self, driver: str, device: str) -> tuple[HealthStatus, str]:
        """Return health and message of any device of this node."""
        now = asyncio.get_running_loop().time()
        return self._health.get(driver, self.node_name, device, now)

    # ------------------------------------------------------------ prepare

    async def _claim_for(self, pod: DraPod, name: str) -> ClaimInfo:
        """Return a claim that the pod may use; raises `DynamicResourcesFailed`."""
        try:
            claim = await self._api.get_claim(ClaimReference(pod.namespace, "", name))
        except KubedevicesError as error:
            problem = f"fetch ResourceClaim {name}: {error}"
            raise DynamicResourcesFailed("prepare", problem) from error
        uid, status = claim["metadata"]["uid"], claim.get("status", {})
        if not any(_is_for(each, pod) for each in status.get("reservedFor", ())):
            problem = (
                f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {name} ({uid})"
            )
            raise DynamicResourcesFailed("prepare", problem)
        allocation = status.get("allocation")
        if allocation is None:
            raise DynamicResourcesFailed("prepare", f"ResourceClaim {name}: not allocated")
        results = allocation.get("devices", {}).get("results", ())
        reference = ClaimReference(pod.namespace, uid, name)
        return ClaimInfo(reference, {each["driver"]: () for each in results})

    def _known(self, found: ClaimInfo) -> ClaimInfo:
        known = self._cache.get(found.reference.namespace, found.reference.name)
        if known is None:
            self._cache.add(found)
            return found
        if known.reference.uid != found.reference.uid:
            problem = (
                f"old ResourceClaim with same name {found.reference.name} and different UID "
                f"{known.reference.uid} still exists (previous pod force-deleted?!)"
            )
            raise DynamicResourcesFailed("prepare", problem)
        return known

    async def _prepare_at(
        self, driver: str, instance: DriverConnection, claims: list[ClaimInfo]
    ) -> None:
        if not claims:
            return
        asked = [each.reference for each in claims]
        try:
            answers = await instance.prepare(asked)
        except RpcError as error:
            problem = f"NodePrepareResources: {error}"
            raise DynamicResourcesFailed("prepare", problem) from error
        errors = {uid: each if isinstance(each, str) else "" for uid, each in answers.items()}
        if problem := answer_problem("NodePrepareResources", asked, errors):
            raise DynamicResourcesFailed("prepare", problem)
        for claim in claims:
            answer = answers[claim.reference.uid]
            assert not isinstance(answer, str)
            claim.devices[driver] = answer

    # ------------------------------------------------------------ unprepare

    async def _unprepare(self, pod_uid: str) -> None:
        last: list[ClaimInfo] = []
        for claim in self._cache:
            if claim.pods == {pod_uid}:
                last.append(claim)
            else:
                claim.pods.discard(pod_uid)
        leaving = {each.reference: asyncio.Event() for each in last}
        self._leaving |= leaving
        try:
            await self._unprepare_claims(last)
        finally:
            for reference, event in leaving.items():
                del self._leaving[reference]
                event.set()

    async def _unprepare_claims(self, last: list[ClaimInfo]) -> None:
        for driver in dict.fromkeys(driver for claim in last for driver in claim.devices):
            asked = [each.reference for each in last if driver in each.devices]
            instance = self.drivers.get(driver, "unprepare")
            try:
                errors = await instance.unprepare(asked)
            except RpcError as error:
                problem = f"NodeUnprepareResources: {error}"
                raise DynamicResourcesFailed("unprepare", problem) from error
            if problem := answer_problem("NodeUnprepareResources", asked, errors):
                raise DynamicResourcesFailed("unprepare", problem)
        for claim in last:
            self._cache.remove(claim)
        self._save()

    async def _reconcile_always(self) -> NoReturn:
        while True:
            gone = {uid for claim in self._cache for uid in claim.pods} - self._active
            for uid in gone:
                try:
                    async with self._turns[uid]:
                        await self._unprepare(uid)
                except DynamicResourcesFailed as error:
                    _log.info("pod %s: %s (again in a minute)", uid, error)
            await asyncio.sleep(self._timing.reconcile)

    # ------------------------------------------------------------ health, state

    def _record_health(self, driver: str, devices: tuple[DeviceHealth, ...] | None) -> None:
        if devices is None:
            self._health.clear(driver)
        else:
            self._health.update(driver, devices, asyncio.get_running_loop().time())

    def _save(self) -> None:
        self._file.store(json.dumps(self._cache.to_document()).encode())


def _is_for(reservation: Mapping[str, Any], pod: DraPod) -> bool:
    """Whether a pod may use a claim with this reservation: its own, or that of its PodGroup.

    A kubelet knows no UID of a PodGroup, so the name decides.
    """
    if reservation["uid"] == pod.uid:
        return True
    is_group = reservation.items() >= POD_GROUP.items()
    return pod.group != "" and is_group and reservation["name"] == pod.group
