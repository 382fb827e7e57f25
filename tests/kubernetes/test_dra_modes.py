"""A node changes between device plugin and DRA under a real kubelet and scheduler.

Each of these tests checks repeatedly that no device is in both APIs.
"""

import asyncio
import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from examples.demo_dra import reboot_node
from kubedevices.errors import KubedevicesError
from kubedevices.kubelet_api.pod_resources import PodResourcesClient
from kubedevices.wire.grpc_channel import GrpcChannel
from tests.kubernetes.cluster import CLUSTER_TEST, Cluster
from tests.kubernetes.dra_node import (
    DRIVER,
    Driver,
    account,
    create_pod,
    logs_of,
    make_class,
    namespace_for,
    widgets_of,
)

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(900)]

RESOURCE = f"{DRIVER}/widget"
PREFIX = "simple-device-node1-"
SOUND = 1.5
"""Seconds: what a slice had so long ago no device plugin offers yet, see `HandoverTiming`."""


class Switched(Driver):
    """A driver with three devices that starts as a device plugin and follows a file."""

    def __init__(self, cluster: Cluster, *more: str) -> None:
        self.mode_file = cluster.directory / "mode"
        super().__init__(cluster, 3, "--mode-file", str(self.mode_file), *more)
        self.both: list[str] = []

    def choose(self, mode: str) -> None:
        """Write the mode as an administrator does."""
        new = self.mode_file.with_name("mode.new")
        new.write_text(f"{mode}\n")
        new.rename(self.mode_file)

    def numbers(self) -> set[str]:
        """Return the numbers of the devices in slices."""
        return {each.removeprefix(PREFIX) for each in self.published()}

    def wait(self, mode: str) -> None:
        """Wait until all devices are in one API."""
        if mode == "dra":
            self.cluster.wait("devices in DRA", lambda: len(self.numbers()) == 3)
        else:
            self.cluster.wait("a plugin", lambda: self.cluster.allocatable(RESOURCE) == 3)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Read both APIs repeatedly; `both` gets the devices that are in both."""
        stop = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._look(stop)))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not self.both

    async def _look(self, stop: threading.Event) -> None:
        socket = self.cluster.kubelet_dir / "pod-resources/kubelet.sock"
        while not stop.is_set():
            began = time.monotonic()
            with contextlib.suppress(KubedevicesError, OSError, AssertionError):
                in_slices = set(await asyncio.to_thread(self.published))
                async with await GrpcChannel.dial(socket, timeout=5) as channel:
                    found = await PodResourcesClient(channel).get_allocatable(timeout=5)
                offered = {
                    each
                    for entry in found
                    if entry.resource == RESOURCE
                    for each in entry.device_ids
                }
                if (both := in_slices & offered) and time.monotonic() - began < SOUND:
                    self.both.append(f"{sorted(both)}")
            await asyncio.sleep(0.05)


def number_of(variables: list[str]) -> str:
    """Return the number of a pod's only device, from its environment."""
    (variable,) = variables
    found = re.fullmatch(rf"WIDGET_{PREFIX}(\d)=/dev/\d", variable)
    assert found, variable
    return found[1]


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[Switched]:
    with switched(cluster) as started:
        yield started


@contextmanager
def switched(cluster: Cluster, *more: str, mode: str = "device-plugin") -> Iterator[Switched]:
    driver = Switched(cluster, *more)
    account(cluster, driver.config)
    make_class(cluster, "widget", extendedResourceName=RESOURCE)
    driver.choose(mode)
    driver.start()
    try:
        with driver.watched():
            yield driver
            driver.choose("device-plugin")  # so that no slice is left for the next test
            cluster.wait("no slice", lambda: not driver.slices())
    finally:
        driver.stop()


@pytest.fixture
def namespace(driver: Switched) -> Iterator[str]:
    with namespace_for(driver) as name:
        yield name


def device_of(cluster: Cluster, namespace: str, name: str) -> str:
    """Wait for a pod, and return the number of its device."""
    return number_of(widgets_of(cluster, namespace, name))


def has_claim(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether the scheduler allocated the pod's device by DRA."""
    pod = cluster.get("pod", name, f"--namespace={namespace}")
    return "extendedResourceClaimStatus" in pod["status"]


def delete(cluster: Cluster, namespace: str, name: str) -> None:
    cluster.kubectl("delete", "pod", name, f"--namespace={namespace}", "--now", timeout=120)


def test_a_switch_does_not_disturb_running_pods(
    cluster: Cluster, driver: Switched, namespace: str
) -> None:
    """There and back. The pods have one manifest, and no device is held twice."""
    driver.wait("device-plugin")
    create_pod(cluster, namespace, "old", widget=1)
    old = device_of(cluster, namespace, "old")
    assert not has_claim(cluster, namespace, "old")
    driver.choose("dra")
    cluster.wait("two devices in DRA", lambda: len(driver.numbers()) == 2)
    assert old not in driver.numbers()
    create_pod(cluster, namespace, "new", widget=1)
    new = device_of(cluster, namespace, "new")
    assert has_claim(cluster, namespace, "new")
    assert new != old
    delete(cluster, namespace, "old")
    cluster.wait("the device of the old pod in DRA", lambda: old in driver.numbers(), timeout=5)
    driver.choose("device-plugin")
    cluster.wait("two devices of the plugin", lambda: cluster.allocatable(RESOURCE) == 2)
    create_pod(cluster, namespace, "again", widget=1)
    assert device_of(cluster, namespace, "again") != new
    assert not has_claim(cluster, namespace, "again")
    delete(cluster, namespace, "new")
    cluster.wait(
        "the device of the new pod", lambda: cluster.allocatable(RESOURCE) == 3, timeout=10
    )


def test_a_split_serves_both_kinds_of_pods(cluster: Cluster) -> None:
    """Pods with limits by the plugin, pods with a claim by DRA."""
    globs = f"widget/{PREFIX}2"
    with switched(cluster, "--dra-devices", globs, mode="split") as driver:
        cluster.wait("a split", lambda: driver.numbers() == {"2"})
        cluster.wait("two devices of the plugin", lambda: cluster.allocatable(RESOURCE) == 2)
        with namespace_for(driver) as namespace:
            create_pod(cluster, namespace, "limited", widget=1)
            create_pod(cluster, namespace, "claims")
            assert device_of(cluster, namespace, "claims") == "2"
            assert device_of(cluster, namespace, "limited") in "01"
            assert not has_claim(cluster, namespace, "limited")


def test_a_switch_goes_on_after_a_kill(cluster: Cluster, driver: Switched) -> None:
    """Meanwhile no device is in both APIs, and the next process goes on."""
    driver.wait("device-plugin")
    for turn, pause in enumerate((0.1, 0.6, 1.5, 0.1, 0.6, 1.5)):
        mode = ("dra", "device-plugin")[turn % 2]
        driver.choose(mode)
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert driver.process is not None
            driver.process.wait(pause)  # it does not end: this is the moment of the kill
        driver.kill()
        driver.start()
        driver.wait(mode)


def restarts_of(cluster: Cluster, namespace: str, name: str) -> int:
    """Return how often the container was started again, 0 while it does not run."""
    status = cluster.get("pod", name, f"--namespace={namespace}")["status"]
    assert status["phase"] != "Failed", (status.get("reason"), status.get("message"))
    statuses = status.get("containerStatuses", [])  # for a moment after a reboot there are none
    found = [each for each in statuses if "running" in each["state"]]
    return int(found[0]["restartCount"]) if found else 0


def wait_restarted(cluster: Cluster, namespace: str, name: str, before: int = 0) -> None:
    def is_restarted() -> bool:
        return restarts_of(cluster, namespace, name) > before

    cluster.wait(f"a new container of {name}", is_restarted, timeout=150)


def end_containers(cluster: Cluster) -> None:
    """Kill the processes of all pods of these tests, as a crash does."""
    cluster("exec", "pkill", "-9", "-f", "sleep 100000")


def test_an_extended_resource_is_served_by_dra(
    cluster: Cluster, driver: Switched, namespace: str
) -> None:
    """Also after a restart of the kubelet and of the container, to the end of the pod.

    The kubelet knew the name as a device plugin's before, and a pod still holds such a device."""
    driver.wait("device-plugin")
    create_pod(cluster, namespace, "old", widget=1)
    old = device_of(cluster, namespace, "old")
    driver.choose("dra")
    cluster.wait("two devices in DRA", lambda: len(driver.numbers()) == 2)
    create_pod(cluster, namespace, "new", widget=1)
    new = device_of(cluster, namespace, "new")
    assert has_claim(cluster, namespace, "new")
    end_containers(cluster)
    for name in ("old", "new"):
        wait_restarted(cluster, namespace, name)
    cluster("restart", "kubelet")
    cluster.wait("slices again", lambda: len(driver.numbers()) == 2)
    before = restarts_of(cluster, namespace, "new")
    end_containers(cluster)
    wait_restarted(cluster, namespace, "new", before)
    assert device_of(cluster, namespace, "old") == old
    assert device_of(cluster, namespace, "new") == new
    delete(cluster, namespace, "new")
    cluster.wait("the claim is given back", lambda: not driver.cdi_files())
    cluster.wait(
        "no claim is left",
        lambda: not cluster.get("resourceclaims", f"--namespace={namespace}")["items"],
    )


def test_both_kinds_of_pods_start_again_after_a_reboot(
    cluster: Cluster, driver: Switched, namespace: str
) -> None:
    """In mode dra, each with its device, if the process runs before the kubelet."""
    driver.wait("device-plugin")
    create_pod(cluster, namespace, "old", widget=1)
    old = device_of(cluster, namespace, "old")
    driver.choose("dra")
    cluster.wait("two devices in DRA", lambda: len(driver.numbers()) == 2)
    create_pod(cluster, namespace, "new", widget=1)
    new = device_of(cluster, namespace, "new")
    note = cluster.kubelet_dir / "plugins" / DRIVER / "held-by-plugin.json"
    cluster.wait("a note", note.exists)

    log = cluster.directory / "log" / "driver.log"

    seen = 0

    def start() -> None:
        nonlocal seen
        driver.kill()  # it is gone with the node
        seen = log.stat().st_size
        driver.start()

    def serves() -> bool:
        text = log.read_text()[seen:]
        return all(
            re.search(rf"serving at \S*{re.escape(each)}", text)
            for each in ("device-plugins/", "plugins_registry/")
        )

    reboot_node(cluster, cluster.words(), start, serves)
    for name in ("old", "new"):
        wait_restarted(cluster, namespace, name)
    assert device_of(cluster, namespace, "old") == old
    assert device_of(cluster, namespace, "new") == new
    cluster.wait("no device of the plugin", lambda: not cluster.allocatable(RESOURCE))
    create_pod(cluster, namespace, "third", widget=1)
    assert device_of(cluster, namespace, "third") not in (old, new)
    assert has_claim(cluster, namespace, "third")
    assert logs_of(cluster, namespace, "third")
