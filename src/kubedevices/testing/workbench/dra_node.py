"""The DRA part of a bench: an API server with one node, a kubelet, and the handle of a driver.

API server and kubelet are stand-ins, see `kubedevices.testing.api_server` and
`kubedevices.testing.dra_kubelet`. This module is asyncio and needs h11.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal
from uuid import UUID, uuid4

from kubedevices.dra.driver import DraDriver
from kubedevices.dra.options import DraOptions
from kubedevices.errors import ApiRefused, DynamicResourcesFailed, NotInTime, UsageError
from kubedevices.host.cdi_specs import read_registry
from kubedevices.kubelet_api.pod_resources import (
    ClaimedDevice,
    ClaimEntry,
    ContainerEntry,
    PodEntry,
)
from kubedevices.node.arrival.plugin_watcher import WatcherTiming
from kubedevices.plugin.scanner import Scanner
from kubedevices.testing.api_server import ApiServer
from kubedevices.testing.dra_kubelet.claim_manager import ClaimManager, DraPod, DraTiming
from kubedevices.testing.dra_kubelet.connection import CallTiming
from kubedevices.testing.workbench.loop_thread import LoopThread
from kubedevices.testing.workbench.plugins import RunnerPlugin
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.cdi import ContainerEdits
from kubedevices.values.device import DeviceSpec, Mount
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.scheduler import NotAllocatable, PoolDevice, complete_devices

Wanted = Mapping[str, int | Literal["all"]] | Sequence[Object] | str
"""A number of devices by `domain/type`; or requests as in a ResourceClaim; or a claim's name."""

NODE_NAME = "bench"
_POLL = 0.01  # seconds
_TIMING = DraTiming(
    calls=CallTiming(redial=0.05, longest_redial=1), watcher=WatcherTiming(interval=0.05)
)


@dataclass(frozen=True)
class Claimed:
    """A claim that is prepared for a pod. `devices` are the names in the ResourceSlices.

    `options` are the options of a container that uses the whole claim. `by_request` and
    `options_of` are for containers that use one request of the claim.
    """

    name: str
    uid: str
    devices: tuple[str, ...]
    by_request: Mapping[str, tuple[str, ...]]
    options: ContainerOptions
    options_of: Mapping[str, ContainerOptions]


class DraNode:
    """One node under `kubelet_dir`, whose drivers write CDI files to `cdi_dir`."""

    def __init__(self, kubelet_dir: Path, cdi_dir: Path) -> None:
        self.kubelet_dir, self.cdi_dir = kubelet_dir, cdi_dir
        self.api = ApiServer()
        self.pods: dict[str, DraPod] = {}
        self.kubelet = self._new_kubelet()

    def _new_kubelet(self) -> ClaimManager:
        return ClaimManager(self.kubelet_dir, NODE_NAME, self.api, timing=_TIMING)

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file with which a driver finds the API server."""
        return self.kubelet_dir / "kubeconfig"

    async def start(self) -> None:
        """Start the API server and the kubelet."""
        self.kubelet_dir.mkdir(mode=0o750, exist_ok=True)
        self.cdi_dir.mkdir(exist_ok=True)
        await self.api.start()
        self._boot(uuid4())
        self.kubeconfig.write_text(self.api.kubeconfig())
        await self.kubelet.start()

    async def stop(self) -> None:
        """End the kubelet and the API server."""
        await self.kubelet.stop()
        await self.api.stop()

    def _boot(self, boot_id: UUID) -> None:
        status = {"nodeInfo": {"bootID": str(boot_id)}}
        self.api.put("nodes", {"metadata": {"name": NODE_NAME}, "status": status})

    async def restart(self, away: float, *, reboot: bool = False) -> None:
        """Restart the kubelet: it deletes all ResourceSlices, and prepares claims of pods again.

        With `reboot` all files in `cdi_dir` are lost meanwhile, and the node has a new boot ID.
        """
        await self.kubelet.stop()
        await asyncio.sleep(away)
        if reboot:
            shutil.rmtree(self.cdi_dir)
            self.cdi_dir.mkdir()
            self._boot(uuid4())
        self.kubelet = self._new_kubelet()
        await self.kubelet.start(self.pods)
        for pod in self.pods.values():
            while True:  # until the driver has registered again
                try:
                    await self.kubelet.prepare(pod)
                    break
                except DynamicResourcesFailed:
                    await asyncio.sleep(_POLL)

    # ------------------------------------------------------------ slices

    def published(self, driver: str) -> list[Object]:
        """Return the devices that a driver has published in complete pools."""
        return [each.device for each in self._offered() if each.driver == driver]

    def _offered(self) -> list[PoolDevice]:
        return complete_devices(self.api.find("resourceslices"), NODE_NAME)

    async def wait_published(self, driver: str, devices: int, timeout: float) -> None:
        """Return when a driver is registered and has published this number of devices."""

        def problem() -> str:
            found = self.published(driver)
            state = "registered" if self.kubelet.drivers.instances(driver) else "not registered"
            names = ", ".join(each["name"] for each in found) or "no devices"
            is_there = state == "registered" and len(found) == devices
            return "" if is_there else f"{state}, with {names}"

        await _until(problem, driver, f"registered with {devices} devices", timeout)

    # ------------------------------------------------------------ claims

    async def claim(
        self,
        pod: str,
        wanted: Wanted,
        config: Sequence[Object],
        timeout: float,
        *,
        pod_group: str = "",
    ) -> Claimed:
        """Create a claim, allocate it and prepare it for a pod, like scheduler and kubelet."""
        known = self.pods.get(pod) or DraPod(pod, pod, (), group=pod_group)
        if known.group != pod_group:
            here = f"in the PodGroup {known.group}" if known.group else "in no PodGroup"
            raise UsageError(f"the pod {pod} is {here}: give all its claims the same pod_group")
        if isinstance(wanted, str):
            name = wanted
        else:
            number = sum(map(len, (each.claims for each in self.pods.values()))) + 1
            # A claim of a PodGroup may have outlived its pod.
            taken = {each["metadata"]["name"] for each in self.api.find("resourceclaims")}
            name = next(n for i in count(number) if (n := f"{pod}-{i}") not in taken)
            requests = self._requests(wanted) if isinstance(wanted, Mapping) else list(wanted)
            devices = {"requests": requests, **({"config": list(config)} if config else {})}
            claim = {"metadata": {"name": name}, "spec": {"devices": devices}}
            self.api.put("resourceclaims", claim)
        await _until(
            lambda: self._cannot_allocate(name, pod, pod_group), name, "allocated", timeout
        )
        found = self.api.get("resourceclaims", name)
        results = found["status"]["allocation"]["devices"]["results"]
        for driver in {each["driver"] for each in results}:
            await _until(lambda: self._cannot_call(driver), driver, "registered", timeout)  # noqa: B023
        made = known._replace(claims=(*known.claims, name))
        self.pods[pod] = made
        await self.kubelet.prepare(made)
        return self._claimed(name, found["metadata"]["uid"], results)

    def _requests(self, wanted: Mapping[str, int | Literal["all"]]) -> list[Object]:
        requests = []
        for resource, number in wanted.items():
            exactly: Object = {"deviceClassName": self.device_class(resource)}
            exactly |= {"allocationMode": "All"} if number == "all" else {"count": number}
            requests.append({"name": resource.partition("/")[2].lower(), "exactly": exactly})
        return requests

    def device_class(self, wanted: str | Object) -> str:
        """Create the DeviceClass of a manifest, or of `domain/type` if there is none; its name."""
        if not isinstance(wanted, str):
            if (kind := wanted.get("kind", "DeviceClass")) != "DeviceClass":
                raise UsageError(f"device_class needs a DeviceClass, this is a {kind}")
            made: Object = self.api.put("deviceclasses", wanted)
            return str(made["metadata"]["name"])
        domain, slash, device_type = wanted.partition("/")
        if not slash:
            raise UsageError(f"device_class({wanted!r}): write 'domain/type', or give a manifest")
        name = f"{device_type.lower()}.{domain}"
        if any(each["metadata"]["name"] == name for each in self.api.find("deviceclasses")):
            return name
        expression = (
            f'device.driver == "{domain}" && '
            f'device.attributes["{domain}"].?type.orValue("") == "{device_type}"'
        )
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        self.api.put("deviceclasses", {"metadata": {"name": name}, "spec": spec})
        return name

    def _cannot_allocate(self, name: str, pod: str, pod_group: str) -> str:
        try:
            self.api.allocate(name, pod, NODE_NAME, pod_group=pod_group)
        except NotAllocatable as error:
            return str(error)
        return ""

    def _cannot_call(self, driver: str) -> str:
        instances = self.kubelet.drivers.instances(driver)
        if any(each.is_connected for each in instances):
            return ""
        return "registered, but killed" if instances else "not registered"

    def _claimed(self, name: str, uid: str, results: Sequence[Object]) -> Claimed:
        info = self.kubelet.prepared("default", name)
        assert info is not None, "the kubelet has just prepared it"
        by_request: dict[str, tuple[str, ...]] = {}
        for each in results:
            request = each["request"].partition("/")[0]
            by_request[request] = (*by_request.get(request, ()), each["device"])
        return Claimed(
            name,
            uid,
            tuple(each["device"] for each in results),
            by_request,
            self._options(info.cdi_ids()),
            {request: self._options(info.cdi_ids(request)) for request in by_request},
        )

    def _options(self, cdi_ids: tuple[str, ...]) -> ContainerOptions:
        """Return the container options for CDI names; raises `UnresolvableCdiDevices`."""
        edits = read_registry([self.cdi_dir]).edits(cdi_ids)
        return options_of(edits)._replace(cdi_devices=cdi_ids)

    async def release(self, pod: str) -> None:
        """End a pod: claims that no other pod uses are freed and deleted."""
        await self.kubelet.unprepare(pod)
        ended = self.pods.pop(pod)
        for name in ended.claims:
            try:
                claim = self.api.get("resourceclaims", name)
            except ApiRefused:
                continue  # somebody deleted it
            self._end_reservation(claim, "pods", pod)

    async def release_pod_group(self, name: str) -> None:
        """Delete a PodGroup: claims that are reserved for nobody else are deleted."""
        if pods := [each.name for each in self.pods.values() if each.group == name]:
            problem = f"pods of the PodGroup {name} are here: release {', '.join(pods)} first"
            raise UsageError(problem)
        for claim in self.api.find("resourceclaims"):
            self._end_reservation(claim, "podgroups", name)

    def _end_reservation(self, claim: Object, resource: str, uid: str) -> None:
        reserved = claim.get("status", {}).get("reservedFor", [])
        kept = [each for each in reserved if (each["resource"], each["uid"]) != (resource, uid)]
        if kept:
            claim["status"]["reservedFor"] = kept
            self.api.put("resourceclaims", claim)
        elif reserved:
            self.api.delete("resourceclaims", claim["metadata"]["name"])

    def pod_entries(self) -> Iterator[PodEntry]:
        """Yield the pods with their claims, as a kubelet lists them at its podresources socket."""
        for pod in self.pods.values():
            claims = tuple(
                ClaimEntry(
                    each.reference.name,
                    each.reference.namespace,
                    tuple(
                        ClaimedDevice(driver, device.pool, device.device, device.share_id)
                        for driver, device in each.devices_for()
                    ),
                )
                for each in self.kubelet.claims_of(pod.uid)
            )
            yield PodEntry(pod.name, pod.namespace, (ContainerEntry("main", (), claims),))

    def health(self, claimed: Claimed) -> dict[str, str]:
        """Return `Healthy`, `Unhealthy` or `Unknown` for each device of a claim."""
        info = self.kubelet.prepared("default", claimed.name)
        return {
            device.device: self.kubelet.health(driver, device.device)[0].name.capitalize()
            for driver, device in (info.devices_for() if info else ())
        }


class DriverPlugin(RunnerPlugin[DraDriver]):
    """A scanner as DRA driver in the bench's own thread; `Bench.start(mode="dra")` creates it."""

    def __init__(
        self, thread: LoopThread, scanner: Scanner, domain: str, options: DraOptions
    ) -> None:
        make = partial(DraDriver, scanner, domain=domain, **options)
        super().__init__(thread, scanner, domain, make)

    def socket_files(self) -> list[Path]:
        """Return both sockets: for calls, and for the kubelet's plugin watcher."""
        return [self.runner.sockets.service, self.runner.sockets.registration]


def options_of(edits: ContainerEdits) -> ContainerOptions:
    """Return CDI edits as container options; these have no hooks and no other edits."""
    return ContainerOptions(
        env=dict(each.split("=", 1) for each in edits.env),
        devices=tuple(
            DeviceSpec(each.host_path or each.path, each.path, each.permissions or "rw")
            for each in edits.device_nodes
        ),
        mounts=tuple(
            Mount(each.host_path, each.container_path, "ro" in each.options)
            for each in edits.mounts
        ),
    )


async def _until(problem: Callable[[], str], what: str, wanted: str, timeout: float) -> None:
    """Return when `problem()` returns `""`; raises `NotInTime` with the last problem."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while seen := problem():
        if loop.time() > end:
            raise NotInTime(what, wanted, timeout, seen)
        await asyncio.sleep(_POLL)
