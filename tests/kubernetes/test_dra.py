"""`simulate --mode dra` beside a real kubelet, scheduler and API server."""

import time
from collections.abc import Iterator

import pytest

from tests.kubernetes.cluster import CLUSTER_TEST, Cluster
from tests.kubernetes.dra_node import (
    DRIVER,
    Driver,
    create_pod,
    make_class,
    namespace_for,
    running_driver,
    widgets_of,
)

pytestmark = [*CLUSTER_TEST, pytest.mark.timeout(600)]


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[Driver]:
    with running_driver(cluster) as started:
        yield started


@pytest.fixture
def namespace(driver: Driver) -> Iterator[str]:
    with namespace_for(driver) as name:
        yield name


def test_pods_get_the_devices_of_their_claims(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """Each pod its own device. When a pod ends, the next pod gets its device."""
    for name in ("first", "second"):
        create_pod(cluster, namespace, name)
    held = [widgets_of(cluster, namespace, name) for name in ("first", "second")]
    assert sorted(map(len, held)) == [1, 1]
    assert held[0] != held[1]
    assert len(driver.cdi_files()) == 2
    create_pod(cluster, namespace, "third")
    cluster.kubectl("delete", "pod", "first", f"--namespace={namespace}", "--now")
    assert widgets_of(cluster, namespace, "third") == held[0]
    assert len(driver.cdi_files()) == 2


def test_slices_are_written_again_after_a_kubelet_restart(cluster: Cluster, driver: Driver) -> None:
    """A kubelet deletes them when it starts: within 5 s they exist again."""
    before = [each["metadata"]["uid"] for each in driver.slices()]
    cluster("restart", "kubelet")
    started = time.monotonic()
    cluster.wait(
        "new slices",
        lambda: driver.published() and driver.slices()[0]["metadata"]["uid"] not in before,
        timeout=5,
    )
    assert len(driver.published()) == 2, time.monotonic() - started


def test_deleted_slices_are_written_again(cluster: Cluster, driver: Driver) -> None:
    """Within 5 s, with the same devices."""
    before = [each["metadata"]["uid"] for each in driver.slices()]
    cluster.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRIVER}")

    def is_back() -> bool:
        found = [each["metadata"]["uid"] for each in driver.slices()]
        return bool(found) and not {*found} & {*before} and len(driver.published()) == 2

    cluster.wait("new slices", is_back, timeout=5)


def test_deleted_cdi_files_are_written_again(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """So a container of the pod can start again."""
    create_pod(cluster, namespace, "holds")
    before = widgets_of(cluster, namespace, "holds")
    (file,) = driver.cdi_files()
    file.unlink()
    cluster.wait("the file", driver.cdi_files, timeout=5)
    cluster("exec", "pkill", "-9", "-f", "sleep 100000")

    def restarts() -> int:
        pod = cluster.get("pod", "holds", f"--namespace={namespace}")
        (status,) = pod["status"]["containerStatuses"]
        return int(status["restartCount"]) if "running" in status["state"] else 0

    cluster.wait("a new container", restarts)
    assert widgets_of(cluster, namespace, "holds") == before


def test_a_killed_driver_goes_on(cluster: Cluster, driver: Driver, namespace: str) -> None:
    """Pods run on, pods are deleted while it does not run, and new pods wait for it."""
    create_pod(cluster, namespace, "stays")
    create_pod(cluster, namespace, "goes")
    stays, goes = (widgets_of(cluster, namespace, name) for name in ("stays", "goes"))
    driver.kill()
    cluster.kubectl("delete", "pod", "goes", f"--namespace={namespace}", "--wait=false")
    create_pod(cluster, namespace, "waits")
    driver.start()
    assert widgets_of(cluster, namespace, "waits") == goes
    assert widgets_of(cluster, namespace, "stays") == stays
    cluster.wait("two claims", lambda: len(driver.cdi_files()) == 2)


def test_a_rolling_update_disturbs_no_pod(cluster: Cluster, driver: Driver, namespace: str) -> None:
    """The newer instance registers before the older ends; each unprepares claims of the other."""

    def registered() -> list[str]:
        directory = cluster.kubelet_dir / "plugins_registry"
        return sorted(path.name for path in directory.glob(f"{DRIVER}-reg.*"))

    create_pod(cluster, namespace, "before")
    held = widgets_of(cluster, namespace, "before")
    (old,) = registered()
    newer = Driver(cluster, 2)
    newer.control = newer.control.with_name("newer.sock")
    newer.start()
    try:
        cluster.wait("the newer alone", lambda: len(registered()) == 1 and registered() != [old])
        create_pod(cluster, namespace, "between")
        assert widgets_of(cluster, namespace, "between") != held
        driver.stop()
        cluster.kubectl("delete", "pod", "before", f"--namespace={namespace}", "--now")
        create_pod(cluster, namespace, "after")
        assert widgets_of(cluster, namespace, "after") == held
        driver.start()
        cluster.wait("the third", lambda: len(registered()) == 1)
    finally:
        newer.stop()
    assert len(driver.published()) == 2


def test_a_pod_has_the_same_device_after_a_reboot(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """Boot ID and CDI directory are new; the pod is started again with its own device."""
    create_pod(cluster, namespace, "stays")
    before = widgets_of(cluster, namespace, "stays")
    cluster("reboot", timeout=120)
    driver.kill()  # the process is gone with the node
    assert not driver.cdi_files()
    driver.start()

    def restarts() -> int:
        (status,) = cluster.get("pod", "stays", f"--namespace={namespace}")["status"][
            "containerStatuses"
        ]
        return int(status["restartCount"]) if "running" in status["state"] else 0

    cluster.wait("a new container", restarts, timeout=120)
    assert widgets_of(cluster, namespace, "stays") == before
    assert len(driver.cdi_files()) == 1


def test_an_unhealthy_device_is_shown_in_kubernetes(
    cluster: Cluster, driver: Driver, namespace: str
) -> None:
    """In the status of its pod and as a taint, until it is healthy again."""
    create_pod(cluster, namespace, "holds")
    widgets_of(cluster, namespace, "holds")

    def seen() -> tuple[str, int]:
        pod = cluster.get("pod", "holds", f"--namespace={namespace}")
        (status,) = pod["status"]["containerStatuses"]
        (device,) = status["allocatedResourcesStatus"][0]["resources"]
        taints = [
            taint
            for each in driver.slices()
            for found in each["spec"]["devices"]
            for taint in found.get("taints", [])
            if taint["key"] == f"{DRIVER}/unhealthy" and taint["effect"] == "NoSchedule"
        ]
        return device["health"], len(taints)

    cluster.wait("healthy", lambda: seen() == ("Healthy", 0))
    driver.tell('{set: {id: "*", health: Unhealthy}}')
    cluster.wait("unhealthy", lambda: seen() == ("Unhealthy", 2), timeout=20)
    driver.tell('{set: {id: "*", health: Healthy}}')
    cluster.wait("healthy again", lambda: seen() == ("Healthy", 0), timeout=20)


def test_a_pod_with_limits_gets_a_device(cluster: Cluster, driver: Driver, namespace: str) -> None:
    """The class has the name of the resource; the pod is written as for a device plugin."""
    make_class(cluster, "widget", extendedResourceName=f"{DRIVER}/widget")
    create_pod(cluster, namespace, "limited", widget=1)
    assert len(widgets_of(cluster, namespace, "limited")) == 1
    assert len(driver.cdi_files()) == 1


def test_129_devices_are_three_slices(cluster: Cluster) -> None:
    """All have one generation, which a taint does not change: it is one update of one slice."""
    with running_driver(cluster, devices=129) as driver:
        sizes = sorted(len(each["spec"]["devices"]) for each in driver.slices())
        assert sizes == [1, 64, 64]

        def versions() -> set[str]:
            return {each["metadata"]["resourceVersion"] for each in driver.slices()}

        before = versions()
        driver.tell('{set: {id: "*-7", health: Unhealthy}}')
        cluster.wait("one update", lambda: len(versions() - before) == 1)
        pools = [each["spec"]["pool"] for each in driver.slices()]
        assert len(driver.published()) == 129
        assert all(each == pools[0] for each in pools)
