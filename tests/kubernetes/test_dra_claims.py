"""Claims of every kind, and the contents of slices, on a real Kubernetes."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kubedevices.dra.slices import NUMA_NODE, PCI_BUS_ID
from tests.kubernetes.cluster import BUSYBOX, CLUSTER_TEST, Cluster, running_cluster
from tests.kubernetes.dra_node import (
    DRIVER,
    GROUP,
    Driver,
    account,
    create_pod,
    make_class,
    namespace_for,
    running_driver,
    widgets_of,
)

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(600)]

WIDGET = {"deviceClassName": "widget"}
PRINT = ["sh", "-c", r"tr '\0' '\n' </proc/1/environ; sleep 100000"]
SCANNER = """
import sys
from pathlib import Path
import kubedevices as kd

class Cards(kd.PolledScanner):
    def list_devices(self):
        tree = kd.DeviceTree()
        about = {"model": "big", "cores": 40, "ecc": True, "firmware": {"version": "1.2.3"},
                 "resource.kubernetes.io/pciBusID": "0000:3b:00.0"}
        capacity = {"memory": "16Gi"}
        tree.add("card", kd.Device("GPU:1", numa_nodes=[0], attributes=about, capacity=capacity))
        return tree

kd.run(Cards(), domain="cards.test", mode="dra", kubeconfig=Path(sys.argv[1]))
"""


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[Driver]:
    with running_driver(cluster, devices=4) as started:
        yield started


@pytest.fixture
def namespace(driver: Driver) -> Iterator[str]:
    with namespace_for(driver) as name:
        yield name


def claim(cluster: Cluster, namespace: str, name: str, *requests: dict[str, Any]) -> None:
    made = {
        "apiVersion": GROUP,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": requests}},
    }
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(made))


def pod(cluster: Cluster, namespace: str, name: str, claimed: str, **containers: str) -> None:
    """Create a pod with a claim; each container may name a request of the claim."""
    wanted = containers or {"main": ""}
    spec = {
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "c", "resourceClaimName": claimed}],
        "containers": [
            {
                "name": container,
                "image": BUSYBOX,
                "command": PRINT,
                "resources": {
                    "claims": [{"name": "c"} | ({"request": request} if request else {})]
                },
            }
            for container, request in wanted.items()
        ],
    }
    metadata = {"name": name, "namespace": namespace}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(made))


def test_containers_name_the_requests_of_a_claim(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """Each gets the device of its request, from one CDI file."""
    requests = ({"name": name, "exactly": WIDGET} for name in ("a", "b"))
    claim(cluster, namespace, "two", *requests)
    pod(cluster, namespace, "both", "two", one="a", other="b")
    ready = ("--for=condition=Ready", "pod/both", "--timeout=90s")
    cluster.kubectl("wait", f"--namespace={namespace}", *ready, timeout=120)

    def widgets(container: str) -> list[str]:
        words = ("logs", f"--namespace={namespace}", "both", f"--container={container}")
        return [line for line in cluster.kubectl(*words).splitlines() if line[:7] == "WIDGET_"]

    cluster.wait("both environments", lambda: widgets("one") and widgets("other"))
    assert len(widgets("one")) == len(widgets("other")) == 1
    assert widgets("one") != widgets("other")
    assert len(driver.cdi_files()) == 1


def test_the_first_available_alternative_is_allocated(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """Nine widgets do not exist, two do: the result names the subrequest."""
    firsts = [WIDGET | {"name": "many", "count": 9}, WIDGET | {"name": "few", "count": 2}]
    claim(cluster, namespace, "first", {"name": "it", "firstAvailable": firsts})
    pod(cluster, namespace, "takes", "first", main="it")
    assert len(widgets_of(cluster, namespace, "takes")) == 2
    assert len(driver.cdi_files()) == 1


def test_all_devices_at_once(cluster: Cluster, driver: Driver, namespace: str) -> None:
    claim(cluster, namespace, "all", {"name": "it", "exactly": WIDGET | {"allocationMode": "All"}})
    pod(cluster, namespace, "takes", "all")
    assert len(widgets_of(cluster, namespace, "takes")) == len(driver.published()) == 4


def test_two_pods_share_a_claim(cluster: Cluster, driver: Driver, namespace: str) -> None:
    """The claim is unprepared after the second pod."""
    claim(cluster, namespace, "shared", {"name": "it", "exactly": WIDGET})
    for name in ("first", "second"):
        pod(cluster, namespace, name, "shared")
    held = [widgets_of(cluster, namespace, name) for name in ("first", "second")]
    assert held[0] == held[1]
    assert len(held[0]) == 1
    cluster.kubectl("delete", "pod", "first", f"--namespace={namespace}", "--now")
    assert len(driver.cdi_files()) == 1
    cluster.kubectl("delete", "pod", "second", f"--namespace={namespace}", "--now")
    cluster.wait("no CDI file is left", lambda: not driver.cdi_files())


def test_a_claim_with_admin_access_gets_devices_in_use(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """With adminAccess a claim gets all devices, also the device that a pod holds."""
    label = "resource.kubernetes.io/admin-access=true"
    cluster.kubectl("label", "namespace", namespace, label)
    create_pod(cluster, namespace, "holds")
    held = widgets_of(cluster, namespace, "holds")
    every = WIDGET | {"allocationMode": "All", "adminAccess": True}
    claim(cluster, namespace, "look", {"name": "it", "exactly": every})
    pod(cluster, namespace, "looks", "look")
    seen = widgets_of(cluster, namespace, "looks")
    assert len(seen) == len(driver.published()) == 4
    assert {*held} < {*seen}
    create_pod(cluster, namespace, "next")
    assert widgets_of(cluster, namespace, "next") != held


def test_a_claim_names_devices_of_two_drivers(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """Each driver prepares its own part."""
    other = Driver(cluster, 1, domain="other.test")
    make_class(cluster, "other", "other.test")
    other.start()
    try:
        cluster.wait("its device", lambda: len(other.published()) == 1)
        ours = {"name": "ours", "exactly": WIDGET}
        theirs = {"name": "theirs", "exactly": {"deviceClassName": "other"}}
        claim(cluster, namespace, "mixed", ours, theirs)
        pod(cluster, namespace, "takes", "mixed")
        widgets_of(cluster, namespace, "takes")
        assert len(driver.cdi_files()) == len(other.cdi_files()) == 1
        cluster.kubectl("delete", "pod", "takes", f"--namespace={namespace}", "--now")
        cluster.wait("both files are gone", lambda: not driver.cdi_files() + other.cdi_files())
    finally:
        other.stop()


def test_a_wiped_registry_directory_is_filled_again(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """The driver is registered again, and pods get devices."""
    registry = cluster.kubelet_dir / "plugins_registry"

    def sockets() -> list[int]:
        return [path.stat().st_ino for path in registry.glob(f"{DRIVER}-reg.*")]

    before = sockets()
    assert before
    for path in [*registry.iterdir()]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.wait("a new socket", lambda: sockets() and sockets() != before, timeout=5)
    create_pod(cluster, namespace, "after")
    assert len(widgets_of(cluster, namespace, "after")) == 1


def test_a_slice_has_attributes_of_each_kind_and_a_capacity(cluster: Cluster) -> None:
    """The API server accepts them."""
    config = cluster.directory / "cards.kubeconfig"
    account(cluster, config)
    words = cluster.words("exec", sys.executable, "-c", SCANNER, str(config))

    def devices() -> list[Any]:
        found = [each["spec"] for each in cluster.get("resourceslices")["items"]]
        return [
            each for part in found if part["driver"] == "cards.test" for each in part["devices"]
        ]

    with subprocess.Popen(words) as process:
        try:
            cluster.wait("the card", devices)
            (card,) = devices()
        finally:
            process.terminate()
    assert card["attributes"] == {
        "type": {"string": "card"},
        "id": {"string": "GPU:1"},
        "model": {"string": "big"},
        "cores": {"int": 40},
        "ecc": {"bool": True},
        "firmware": {"version": "1.2.3"},
        NUMA_NODE: {"int": 0},
        PCI_BUS_ID: {"string": "0000:3b:00.0"},
    }
    assert card["capacity"] == {"memory": {"value": "16Gi"}}


def test_a_driver_without_devices_has_one_empty_slice(cluster: Cluster, driver: Driver) -> None:
    """So the scheduler knows that the pool is complete."""
    driver.tell("{count: 0}")
    cluster.wait("no device", lambda: driver.slices() and not driver.published())
    assert len(driver.slices()) == 1


def test_a_field_that_the_server_drops_is_logged_once() -> None:
    """With the feature gate of taints off, devices are served without taints."""
    with (
        running_cluster("--feature", "DRADeviceTaints=false") as cluster,
        running_driver(cluster) as driver,
        namespace_for(driver) as namespace,
    ):
        driver.tell('{set: {id: "*-0", health: Unhealthy}}')
        log = cluster.directory / "log" / "driver.log"
        cluster.wait("it is told", lambda: "dropped taints" in log.read_text())
        driver.tell('{set: {id: "*-1", health: Unhealthy}}')
        create_pod(cluster, namespace, "served")
        assert len(widgets_of(cluster, namespace, "served")) == 1
        assert log.read_text().count("dropped taints") == 1
        devices = [each for part in driver.slices() for each in part["spec"]["devices"]]
        assert not [each for each in devices if "taints" in each]
