"""The other methods of kubedevices.node.device_manager that a kubelet calls."""

import asyncio
import logging
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubedevices.errors import (
    AdmissionRejected,
    RegistrationServerFailed,
    RpcError,
    StatusCode,
)
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.node_view import ResourceHealth, ResourceStatus
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.node.topology.hints import TopologyHint
from kubedevices.node.topology.options import check_settings
from kubedevices.pages.prometheus import PrometheusMetrics
from kubedevices.values.device import ReportedDevice
from kubedevices.values.numa import NumaNodes
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.node_manager import listed
from tests.socket_metadata import change_everything
from tests.waiting import until

FOUR = [
    ReportedDevice(f"{node}-{number}", "Healthy", (node,)) for node in (0, 1) for number in (0, 1)
]


def pod(count: int, name: str = "p") -> Pod:
    return Pod(name, containers=(Container("c", {RESOURCE: count}),))


async def test_devices_of_a_container_are_aligned(short_dir: Path) -> None:
    """TopologyAlignedAllocation: with single-numa-node two devices come from one NUMA node."""
    topology = check_settings("single-numa-node", numa_nodes=(0, 1))
    async with (
        DeviceManager(short_dir, settings=NodeSettings(topology=topology)) as manager,
        listed(manager, FOUR),
    ):
        await manager.allocate(pod(1, "first"))
        second = await manager.allocate(pod(2, "second"))
        assert second == {"c": {RESOURCE: ("1-0", "1-1")}}
        with pytest.raises(AdmissionRejected, match="cannot be allocated with Topology") as caught:
            await manager.allocate(pod(2, "third"))
        assert caught.value.reason == "TopologyAffinityError"
        assert [each.name for each in manager.pods()] == ["first", "second"]
        await manager.release("default/second")
        await manager.allocate(pod(2, "third"))


async def test_topology_hints_of_containers_and_pods(short_dir: Path) -> None:
    """GetTopologyHints and GetPodTopologyHints count free devices."""
    topology = check_settings("best-effort", numa_nodes=(0, 1))
    async with (
        DeviceManager(short_dir, settings=NodeSettings(topology=topology)) as manager,
        listed(manager, FOUR),
    ):
        two = pod(2)
        best = [TopologyHint(NumaNodes((node,)), True) for node in (0, 1)]
        expected = {RESOURCE: [*best, TopologyHint(NumaNodes((0, 1)), False)]}
        assert manager.get_topology_hints(two, two.containers[0]) == expected
        assert manager.get_pod_topology_hints(two) == expected


async def test_the_watcher_handler_connects_and_disconnects_a_plugin(short_dir: Path) -> None:
    """GetWatcherHandler. A disconnect of another socket changes nothing."""
    async with (
        DeviceManager(short_dir) as manager,
        FakePlugin(short_dir, devices=healthy("a")) as plugin,
    ):
        handler = manager.get_watcher_handler()
        await handler.connect(RESOURCE, plugin.socket)
        await manager.wait_for(RESOURCE, allocatable=1)
        handler.disconnect(RESOURCE, short_dir / "other.sock")
        assert manager.get_allocatable_devices()[RESOURCE]
        handler.disconnect(RESOURCE, plugin.socket)
        await manager.wait_for(RESOURCE, capacity=1, allocatable=0)


async def test_the_health_check_fails_when_kubelet_sock_is_lost(short_dir: Path) -> None:
    """GetHealthChecker: no error before the start, while the node serves, and after the stop."""
    manager = DeviceManager(short_dir)
    name, check = manager.get_health_checker()
    assert name == "device-plugin"
    check()
    async with manager:
        change_everything(short_dir / "kubelet.sock")  # as chmod, chown and restorecon do
        check()
        (short_dir / "kubelet.sock").unlink()
        with pytest.raises(RegistrationServerFailed, match="gRPC server failed"):
            check()
    check()


async def test_capacities_are_reset_only_without_a_checkpoint(short_dir: Path) -> None:
    """ResetExtendedResource: no reset with a checkpoint or with a ledger."""
    async with DeviceManager(short_dir) as manager:
        assert manager.should_reset_extended_resource_capacity()
        checkpoint = short_dir / "kubelet_internal_checkpoint"
        checkpoint.touch()
        assert not manager.should_reset_extended_resource_capacity()
        async with FakePlugin(short_dir, devices=healthy("a")) as plugin:
            await plugin.register()
            await manager.wait_for(RESOURCE)
    checkpoint.unlink()
    async with DeviceManager(short_dir) as manager:
        assert not manager.should_reset_extended_resource_capacity()


async def test_statuses_have_the_health_of_held_devices(short_dir: Path) -> None:
    """UpdateAllocatedResourcesStatus. The queue of health updates has the UID of the pod."""
    async with DeviceManager(short_dir) as manager, listed(manager, healthy("a", "b")) as plugin:
        await manager.allocate(pod(1))
        updates = manager.health_updates()
        await plugin.send([*unhealthy("a"), *healthy("b")])
        assert await asyncio.wait_for(anext(aiter(updates)), 10) == {"default/p"}
        updates.close()
        status = manager.update_allocated_resources_status("default/p", "c")
        assert status == (ResourceStatus(RESOURCE, (ResourceHealth("a", "Unhealthy"),)),)
        raised = manager.update_plugin_resources({RESOURCE: 0}, "default/p")
        assert raised == {RESOURCE: 1}


async def test_metrics_of_a_node_follow_its_events(short_dir: Path) -> None:
    """Counters count registrations, allocations and admissions. Gauges show the present numbers."""
    metrics = PrometheusMetrics()
    async with (
        DeviceManager(short_dir, metrics=metrics) as manager,
        listed(manager, [*healthy("a", "b"), *unhealthy("c")]),
    ):
        await manager.allocate(pod(1))
        with pytest.raises(AdmissionRejected):
            await manager.allocate(pod(5, "greedy"))

        def value(name: str, **labels: str) -> float | None:
            for family in text_string_to_metric_families(metrics.text().decode()):
                for sample in family.samples:
                    if (sample.name, sample.labels) == (name, labels):
                        return sample.value
            return None

        ours = {"resource": RESOURCE}
        assert value("kubedevices_node_devices_capacity", **ours) == 3
        assert value("kubedevices_node_devices_allocatable", **ours) == 2
        assert value("kubedevices_node_devices_held", **ours) == 1
        await manager.release(pod(1).uid)
        assert value("kubedevices_node_devices_held", **ours) == 0
        assert value("kubedevices_node_admissions_total", result="admitted") == 1
        assert value("kubedevices_node_admissions_total", result="rejected") == 1
        theirs = {"resource_name": RESOURCE}
        assert value("kubelet_device_plugin_registration_total", **theirs) == 1
        assert value("kubelet_device_plugin_alloc_duration_seconds_count", **theirs) == 1
        assert value("kubelet_topology_manager_admission_requests_total") == 2
        assert value("kubelet_topology_manager_admission_duration_ms_count") == 2


async def test_a_lost_stream_is_logged_in_the_kubelets_words(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Tools search for this text; it has the resource and the reason."""
    async with DeviceManager(short_dir) as manager, listed(manager, healthy("a")) as plugin:
        with caplog.at_level(logging.INFO):
            await plugin.end_streams(RpcError(StatusCode.INTERNAL, "boom"))
            await until(lambda: "listAndWatch ended" in caplog.text)
    expected = f"listAndWatch ended unexpectedly for device plugin {RESOURCE} with error boom"
    assert expected in caplog.text


@pytest.mark.parametrize("arrives", ["before the registration", "before the list"])
async def test_a_pod_waits_for_a_plugin_that_restarts(
    short_dir: Path, caplog: pytest.LogCaptureFixture, arrives: str
) -> None:
    """`admission_wait`: the pod arrives before the plugin registers again, or before its list."""
    caplog.set_level("INFO")
    async with DeviceManager(short_dir, settings=NodeSettings(admission_wait=60)) as manager:
        async with FakePlugin(short_dir, devices=healthy("a")) as plugin:
            await plugin.register()
            await manager.wait_for(RESOURCE, allocatable=1)
        await manager.wait_for(RESOURCE, allocatable=0)
        async with FakePlugin(short_dir, devices=healthy("a")) as plugin:
            gate = plugin.hang("list")
            if arrives == "before the list":
                await plugin.register()
                await until(lambda: plugin.streams_opened)
            admission = asyncio.create_task(manager.allocate(pod(1)))
            await until(lambda: admission.done() or "waits for" in caplog.text)
            if arrives == "before the registration":
                await plugin.register()
            gate.set()
            assert await asyncio.wait_for(admission, 60) == {"c": {RESOURCE: ("a",)}}
