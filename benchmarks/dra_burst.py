"""Many claims at once: the kubelet's calls to prepare the claims of all pods of a node start.

Each pod makes a call of its own, as a kubelet does. The kubelet's answers about devices of device
plugins come from a stand-in too, because the driver asks for them before a claim gets a device.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import measure
from kubedevices.host.shared_directory import SharedDirectory
from kubedevices.kubelet_api.pod_resources import PodEntry, pod_resources_methods
from kubedevices.testing.workbench.dra_node import NODE_NAME, DraNode
from kubedevices.values.allocation import ClaimReference
from kubedevices.wire.unix_grpc import GrpcServer

if TYPE_CHECKING:
    from kubedevices.testing.dra_kubelet.connection import DriverConnection

Prepare = Callable[[ClaimReference], Awaitable[None]]


class NoPods:
    """The podresources answers of a kubelet whose device plugins have no devices."""

    questions = 0

    async def list_pods(self) -> list[bytes]:
        """Return no pods."""
        self.questions += 1
        return []

    async def get_pod(self, name: str, namespace: str) -> bytes:
        """Not called by a driver."""
        raise NotImplementedError

    async def get_allocatable(self) -> bytes:
        """Return no devices."""
        return b""

    async def list_pods_v1alpha1(self) -> list[PodEntry]:
        """Not called by a driver."""
        raise NotImplementedError


@contextlib.asynccontextmanager
async def pod_resources(node: DraNode) -> AsyncIterator[NoPods]:
    """Serve the kubelet's podresources socket."""
    directory = node.kubelet_dir / "pod-resources"
    directory.mkdir(exist_ok=True)
    pods = NoPods()
    server = GrpcServer(pod_resources_methods(pods), name="podresources")
    await server.start(directory / "kubelet.sock")
    try:
        yield pods
    finally:
        await server.stop()


def allocate(node: DraNode, resource: str, count: int) -> list[ClaimReference]:
    """Create claims, and allocate a device to each as a scheduler does."""
    made, domain = [], resource.partition("/")[0]
    selector = {"cel": {"expression": f'device.driver == "{domain}"'}}
    of_driver = {"metadata": {"name": "burst"}, "spec": {"selectors": [selector]}}
    node.api.put("deviceclasses", of_driver)
    for number in range(count):
        name = f"burst-{number}"
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "burst", "count": 1}}]
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        node.api.put("resourceclaims", claim)
        node.api.allocate(name, f"pod-{number}", NODE_NAME)
        uid = node.api.get("resourceclaims", name)["metadata"]["uid"]
        made.append(ClaimReference("default", uid, name))
    return made


async def one_after_the_other(
    claims: Sequence[ClaimReference], driver: "DriverConnection"
) -> tuple[float, list[float], int]:
    """Prepare claims singly; return the seconds of all, of each, and the failures."""
    began, times, failures = time.perf_counter(), [], 0
    for claim in claims:
        took, failed = await _timed(claim, driver)
        times.append(took)
        failures += failed
    return time.perf_counter() - began, times, failures


async def at_once(
    claims: Sequence[ClaimReference], driver: "DriverConnection"
) -> tuple[float, list[float], int]:
    """Prepare claims with one call each, all at the same time."""
    began = time.perf_counter()
    answers = await asyncio.gather(*(_timed(each, driver) for each in claims))
    seconds = time.perf_counter() - began
    return seconds, [took for took, _ in answers], sum(failed for _, failed in answers)


async def _timed(claim: ClaimReference, driver: "DriverConnection") -> tuple[float, bool]:
    began = time.perf_counter()
    answer = (await driver.prepare([claim]))[claim.uid]
    return time.perf_counter() - began, isinstance(answer, str)


def disk_write(directory: Path, size: int) -> float:
    """Return the seconds that one safe write of a file of `size` bytes takes."""
    took = []
    for _ in range(11):
        began = time.perf_counter()
        SharedDirectory.at(directory).replace("written", bytes(size))
        took.append(time.perf_counter() - began)
    return measure.median(took)


async def burst_rows(node: DraNode, resource: str, claims: int) -> list[list[str]]:
    """Prepare claims singly and at once; return a row for each."""
    rows = []
    driver = node.kubelet.drivers.get(resource.partition("/")[0], "prepare")
    made = allocate(node, resource, claims)
    for name, way in (("one after the other", one_after_the_other), ("at once", at_once)):
        seconds, times, failures = await way(made, driver)
        each = seconds / claims * 1e3
        slowest = max(times)
        rows.append([name, f"{seconds:.2f}", f"{each:.1f}", f"{slowest:.2f}", str(failures)])
        await driver.unprepare(made)
    write = disk_write(node.kubelet_dir, 2**16)
    rows.append(["one safe write of 64 KB", f"{write:.4f}", f"{write * 1e3:.1f}", "", ""])
    return rows
