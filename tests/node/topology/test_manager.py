"""kubedevices.node.topology.manager."""

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import HeldDevices, PodDevices
from kubedevices.node.topology.hints import TopologyHint
from kubedevices.node.topology.manager import NO_AFFINITY, TopologyManager
from kubedevices.node.topology.options import check_settings
from kubedevices.node.topology.policy import ProviderHints, TopologyAffinityError
from kubedevices.pages.prometheus import PrometheusMetrics
from kubedevices.values.allocation import ContainerAllocateResponse, PluginOptions
from kubedevices.values.device import ReportedDevice
from kubedevices.values.numa import NumaNodes

GPU, NIC = "example.com/gpu", "example.com/nic"


class Node:
    """Two GPUs and one NIC on each of two NUMA nodes."""

    def __init__(self, policy: str, scope: str = "container") -> None:
        self.inventory = Inventory()
        self.pod_devices = PodDevices(self.inventory)
        for resource, per_node in ((GPU, 2), (NIC, 1)):
            generation = self.inventory.connect(resource, PluginOptions()).generation
            devices = [
                ReportedDevice(f"{node}-{number}", "Healthy", (node,))
                for node in (0, 1)
                for number in range(per_node)
            ]
            self.inventory.report(resource, generation, devices)
        self.metrics = PrometheusMetrics()
        self.providers: list[FakeCpus] = []
        self.topology = TopologyManager(
            check_settings(policy, scope, numa_nodes=(0, 1)),
            self.inventory,
            self.pod_devices,
            providers=self.providers,
            metrics=self.metrics,
        )

    def align(self, pod: Pod, container: Container) -> NumaNodes | None:
        return self.topology.align(pod, container, lambda _: ())

    def hold(self, resource: str, numa: dict[int, list[str]], uid: str, name: str = "c") -> None:
        held = HeldDevices(numa, ContainerAllocateResponse())
        self.pod_devices.insert(uid, name, resource, held)

    def counted(self, metric: str) -> float:
        families = text_string_to_metric_families(self.metrics.text().decode())
        names = metric, f"{metric}_total"  # the parser adds this suffix to every counter
        return sum(each.value for family in families for each in family.samples
                   if each.name in names)  # fmt: skip


class FakeCpus:
    """CPUs that are only on the NUMA nodes `nodes`."""

    def __init__(self, *nodes: int) -> None:
        self.hints = {"cpu": [TopologyHint(NumaNodes(nodes), True)]}

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        return self.hints

    def pod_hints(self, pod: Pod) -> ProviderHints:
        return self.hints


def pod(*containers: Mapping[str, int]) -> Pod:
    return Pod(
        "p", containers=tuple(Container(f"c{n}", limits) for n, limits in enumerate(containers))
    )


def test_two_resources_of_a_container_are_on_one_node() -> None:
    """No NIC is free on NUMA node 0, so the GPUs are on node 1 too."""
    node = Node("restricted")
    node.hold(NIC, {0: ["0-0"]}, "other")
    both = pod({GPU: 2, NIC: 1})
    assert node.align(both, both.containers[0]) == NumaNodes((1,))


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_devices_that_cannot_be_aligned_are_refused(policy: str) -> None:
    """One free GPU on each node cannot serve two aligned GPUs.

    Words and reason are the kubelet's.
    """
    node = Node(policy)
    node.hold(GPU, {0: ["0-0"], 1: ["1-0"]}, "other")
    two = pod({GPU: 2})
    with pytest.raises(TopologyAffinityError, match="cannot be allocated with Topology") as caught:
        node.align(two, two.containers[0])
    assert caught.value.reason == "TopologyAffinityError"
    node.topology.note_refused()
    assert node.counted("kubelet_topology_manager_admission_errors_total") == 1


def test_best_effort_admits_a_container_that_cannot_be_aligned() -> None:
    """The same request is served from both nodes."""
    node = Node("best-effort")
    node.hold(GPU, {0: ["0-0"], 1: ["1-0"]}, "other")
    two = pod({GPU: 2})
    assert node.align(two, two.containers[0]) == NumaNodes((0, 1))


def test_policy_none_asks_no_hint_provider() -> None:
    """No decision is made or stored."""
    node = Node("none")
    one = pod({GPU: 4})
    assert node.align(one, one.containers[0]) is None
    assert node.topology.get_affinity(one.uid, "c0") == NO_AFFINITY


def test_scope_container_decides_for_each_container() -> None:
    """Three GPUs in two containers need no common node."""
    node = Node("single-numa-node")
    three = pod({GPU: 2}, {GPU: 1})
    assert node.align(three, three.containers[0]) == NumaNodes((0,))
    node.hold(GPU, {0: ["0-0", "0-1"]}, three.uid, "c0")
    assert node.align(three, three.containers[1]) == NumaNodes((1,))


def test_scope_pod_decides_once_for_the_whole_pod() -> None:
    """The same pod is refused, because its three GPUs are not on one node."""
    node = Node("single-numa-node", "pod")
    three = pod({GPU: 2}, {GPU: 1})
    with pytest.raises(TopologyAffinityError):
        node.align(three, three.containers[0])
    two = pod({GPU: 1}, {GPU: 1})
    assert [node.align(two, each) for each in two.containers] == [NumaNodes((0,))] * 2
    assert node.topology.get_affinity(two.uid, "c1") == TopologyHint(NumaNodes((0,)), True)


def test_hints_of_other_providers_count() -> None:
    """The CPUs are on node 1, so the GPU must be on node 1."""
    node = Node("restricted")
    node.providers.append(FakeCpus(1))
    one = pod({GPU: 1})
    assert node.align(one, one.containers[0]) == NumaNodes((1,))


def test_a_container_that_holds_its_devices_is_not_aligned_again() -> None:
    """It keeps its devices, also if they could not be aligned now."""
    node = Node("single-numa-node")
    two = pod({GPU: 2})
    node.hold(GPU, {0: ["0-0"], 1: ["1-0"]}, two.uid, "c0")
    assert node.align(two, two.containers[0]) is None


def test_a_new_admission_discards_the_earlier_decision() -> None:
    """The decision for a rejected pod does not count for its next admission."""
    node = Node("best-effort")
    one = pod({NIC: 1})
    assert node.align(one, one.containers[0]) == NumaNodes((0,))
    node.hold(NIC, {0: ["0-0"]}, "other")
    align = node.topology.new_decision(one)
    assert align(one.containers[0], lambda _: ()) == NumaNodes((1,))
    node.topology.forget(one.uid)
    assert node.topology.get_affinity(one.uid, "c0") == NO_AFFINITY


@pytest.mark.parametrize(("scope", "count"), [("container", 2), ("pod", 1)])
def test_aligned_containers_are_counted(scope: str, count: int) -> None:
    """single-numa-node counts each aligned container, or each pod, when the pod is admitted."""
    node = Node("single-numa-node", scope)
    two = pod({GPU: 1}, {GPU: 1})
    for _ in range(2):
        align = node.topology.new_decision(two)
        for container in two.containers:
            align(container, lambda _: ())
    assert node.counted("kubelet_container_aligned_compute_resources_count") == 0
    node.topology.note_admitted(two.uid)
    assert node.counted("kubelet_container_aligned_compute_resources_count") == count
