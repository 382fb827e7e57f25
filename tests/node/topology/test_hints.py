"""Hints: golden vectors, cases of the kubelet's own tests, and rules for every hint."""

import time
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import HeldDevices, PodDevices
from kubedevices.node.topology.hints import Hints, resource_hints
from kubedevices.node.topology.manager import TopologyManager
from kubedevices.node.topology.options import TopologySettings
from kubedevices.values.allocation import ContainerAllocateResponse, PluginOptions
from kubedevices.values.device import ReportedDevice
from tests.golden_data import cases

R = "example.com/widget"
OTHER = "example.com/gadget"

Nodes = tuple[int, ...] | None


class Node:
    """An inventory of healthy devices, and the pods that hold some of them."""

    def __init__(self, **resources: Mapping[str, Nodes]) -> None:
        self.inventory = Inventory()
        self.pod_devices = PodDevices(self.inventory)
        for name, devices in resources.items():
            self.list(f"example.com/{name}", devices)

    def list(self, resource: str, devices: Mapping[str, Nodes]) -> None:
        connected = self.inventory.connect(resource, PluginOptions())
        listed = tuple(ReportedDevice(each, "Healthy", nodes) for each, nodes in devices.items())
        self.inventory.report(resource, connected.generation, listed)

    def hold(self, pod: str, container: str, resource: str, ids: Iterable[str]) -> None:
        held = HeldDevices(self.inventory.per_numa(resource, ids), ContainerAllocateResponse())
        self.pod_devices.insert(pod, container, resource, held)

    def manager(self, numa_nodes: Iterable[int]) -> TopologyManager:
        settings = TopologySettings(numa_nodes=tuple(numa_nodes))
        return TopologyManager(settings, self.inventory, self.pod_devices)

    def hints(
        self, limits: Mapping[str, int], numa_nodes: Iterable[int] = (0, 1), **kwargs: Any
    ) -> dict[str, Any]:
        container = Container("main", limits)
        found = self.manager(numa_nodes).get_topology_hints(
            Pod("", "", "pod", containers=(container,)), container, **kwargs
        )
        return {resource: shown(hints) for resource, hints in found.items()}

    def pod_hints(self, pod: Pod, numa_nodes: Iterable[int] = (0, 1)) -> dict[str, Any]:
        found = self.manager(numa_nodes).get_pod_topology_hints(pod)
        return {resource: shown(hints) for resource, hints in found.items()}


def shown(hints: Hints) -> Any:
    """Write `{0,1}` preferred as "01+", not preferred as "01-"."""
    if hints is None:
        return None
    return ["".join(map(str, hint.numa_nodes or ())) + "-+"[hint.preferred] for hint in hints]


ONE_EACH: Mapping[str, Nodes] = {"dev0": (0,), "dev1": (1,)}
TWO_EACH: Mapping[str, Nodes] = {"dev0": (0,), "dev1": (1,), "dev2": (0,), "dev3": (1,)}
FIRST_TWO = ["dev0", "dev1"]


# ---------------------------------------------------------------- golden vectors


NOT_ON_THIS_MACHINE: Mapping[int, str | None] = {
    3: None,
    12: None,
    25: "0+ 01-",
    42: "0+ 1+ 01-",
    60: "1+ 01-",
    70: "1+ 5+ 12- 15- 25- 125-",
    77: "0+ 2+ 01- 02- 04- 05- 12- 24- 25- 012- 014- 015- 024- 025- 045- 124- 125- 245-"
    " 0124- 0125- 0145- 0245- 1245- 01245-",
    82: "0+ 2+ 3+ 5+ 02- 03- 05- 23- 25- 35- 023- 025- 035- 235- 0235-",
    85: "0+",
    95: "0+",
    102: "01-",
    119: None,
    121: "8+ 08-",
    136: "0+ 1+ 01-",
}
"""Our hints if a device is on no node of the machine (row 38): a kubelet has no hint."""


@pytest.mark.parametrize(("number", "case"), cases("device_topology_hints"))
def test_hints_are_those_of_the_kubelet(number: int, case: Any) -> None:
    """Of 1.32, in order, without hints not needed (rows 36, 37 of differences-from-kubelet.md)."""
    devices = {
        name: None if nodes is None else tuple(nodes) for name, nodes in case["devices"].items()
    }
    node = Node(widget=devices)
    free = set(case["available"])
    node.hold("another", "main", R, [each for each in devices if each not in free])
    hints = resource_hints(
        node.inventory,
        R,
        case["request"],
        reusable=case["reusable"],
        numa_nodes=case["numa_nodes"],
    )
    if not any(devices.values()):
        assert hints is None, "a resource without NUMA nodes has no preference"
        return
    if number in NOT_ON_THIS_MACHINE:
        assert case["hints"] == []
        assert (hints and " ".join(shown(hints))) == NOT_ON_THIS_MACHINE[number]
        return
    assert hints is not None
    carrying = {node for nodes in devices.values() for node in nodes or ()}
    assert [
        {"mask": list(hint.numa_nodes or ()), "preferred": hint.preferred} for hint in hints
    ] == [hint for hint in case["hints"] if carrying.issuperset(hint["mask"])]


# ---------------------------------------------------------------- cases of the kubelet's own tests


@pytest.mark.parametrize(
    ("devices", "held", "count", "hints"),
    [
        pytest.param({"dev0": None, "dev1": ()}, {}, 1, None, id="no device has a node"),
        pytest.param({"dev0": None, "dev1": (1,)}, {}, 1, ["1+"], id="one device has a node"),
        pytest.param({"dev0": (0,), "dev1": (0,)}, {}, 1, ["0+"], id="a node without devices"),
        pytest.param(ONE_EACH, {}, 1, ["0+", "1+", "01-"], id="one fits on either node"),
        pytest.param(ONE_EACH, {}, 2, ["01+"], id="two need both nodes"),
        pytest.param(TWO_EACH, {}, 2, ["0+", "1+", "01-"], id="two fit on each node"),
        pytest.param(TWO_EACH, {}, 6, [], id="six fit on no set"),
        pytest.param(TWO_EACH, {"another": FIRST_TWO}, 2, ["01-"], id="another holds one a node"),
        pytest.param({"dev0": (0,), "dev1": (0,)}, {"pod": FIRST_TWO}, 2, ["0+"], id="holds all"),
        pytest.param(TWO_EACH, {"pod": FIRST_TWO}, 1, [], id="holds more than requested"),
        pytest.param(TWO_EACH, {"pod": FIRST_TWO}, 3, [], id="holds fewer than requested"),
    ],
)
def test_topology_hints(
    devices: Mapping[str, Nodes], held: Mapping[str, list[str]], count: int, hints: list[str] | None
) -> None:
    """GetTopologyHints and GenerateDeviceTopologyHintsFiltersNUMANodes."""
    node = Node(widget=devices)
    for pod, ids in held.items():
        node.hold(pod, "main", R, ids)
    assert node.hints({R: count}) == {R: hints}


def test_two_resources_mixed() -> None:
    """GetTopologyHints: each resource has its own hints. Unknown resources have none."""
    node = Node(widget=ONE_EACH, gadget={"dev0": (0,)})
    assert node.hints({R: 1, OTHER: 1, "example.com/unknown": 1, "cpu": 2}) == {
        R: ["0+", "1+", "01-"],
        OTHER: ["0+"],
    }


def test_pod_hints_are_the_sum_of_the_containers() -> None:
    """GetPodTopologyHints: two resources in two containers, a third one is not registered."""
    node = Node(widget=TWO_EACH, gadget={"dev0": (0,), "dev1": (1,)})
    pod = Pod(
        "pod",
        containers=(
            Container("a", {R: 1, OTHER: 1}),
            Container("b", {R: 1, "example.com/unknown": 1}),
        ),
    )
    assert node.pod_hints(pod) == {R: ["0+", "1+", "01-"], OTHER: ["0+", "1+", "01-"]}


def test_pod_hints_with_init_containers() -> None:
    """GetPodTopologyHints: an init container that needs more than the other containers decides."""
    node = Node(widget=TWO_EACH)
    pod = Pod("pod", "", "", (Container("i", {R: 3}),), (Container("a", {R: 1}),))
    assert node.pod_hints(pod) == {R: ["01+"]}


def test_pod_hints_beside_another_pod() -> None:
    """GetPodTopologyHints: another pod holds one device per node."""
    node = Node(widget=TWO_EACH)
    node.hold("another", "main", R, ["dev0", "dev1"])
    pod = Pod("pod", containers=(Container("a", {R: 1}), Container("b", {R: 1})))
    assert node.pod_hints(pod) == {R: ["01-"]}


def test_pod_hints_for_a_pod_that_holds_its_devices() -> None:
    """GetPodTopologyHints: the union over the pod's containers counts."""
    node = Node(widget=TWO_EACH)
    pod = Pod("pod", "", "pod", (), (Container("a", {R: 1}), Container("b", {R: 1})))
    node.hold("pod", "a", R, ["dev0"])
    node.hold("pod", "b", R, ["dev2"])
    assert node.pod_hints(pod) == {R: ["0+", "01-"]}


def test_only_nodes_with_devices_are_combined() -> None:
    """GenerateDeviceTopologyHintsFiltersNUMANodes: a machine of 34 nodes gives three hints."""
    node = Node(widget={"dev0": (7,), "dev1": (33,), "dev2": None})
    hints = node.hints({R: 1}, range(34))[R]
    assert hints == ["7+", "33+", "733-"]


def test_nodes_that_the_machine_does_not_have_are_dropped() -> None:
    """DeviceNUMANodes: an unknown node is in no hint. A kubelet finds no set for this request."""
    node = Node(widget={"dev0": (0,), "dev1": (9,), "dev2": (-1,), "dev3": (2**62,)})
    assert node.hints({R: 1}) == {R: ["0+"]}
    assert node.hints({R: 2}) == {R: []}
    devices: dict[str, Nodes] = {"dev0": (9,)}
    assert Node(widget=devices).hints({R: 1}) == {R: None}


def test_a_hint_contains_the_nodes_of_reusable_devices() -> None:
    """GenerateDeviceTopologyHintsFiltersNUMANodes: a set without the reusable device is no hint."""
    node = Node(widget=TWO_EACH)
    node.hold("pod", "init", R, ["dev1"])
    assert node.hints({R: 2}, reusable=lambda _: {"dev1"}) == {R: ["1+", "01-"]}


def test_an_unhealthy_reusable_device_does_not_count() -> None:
    """A device that turned unhealthy is not reused. A kubelet still uses it for its hints."""
    node = Node()
    connected = node.inventory.connect(R, PluginOptions())
    listed = [("a", "Healthy", (0,)), ("b", "Unhealthy", (1,)), ("c", "Healthy", (1,))]
    devices = tuple(ReportedDevice(*each) for each in listed)
    node.inventory.report(R, connected.generation, devices)
    node.hold("pod", "init", R, ["b", "c"])
    assert node.hints({R: 1}, reusable=lambda _: {"b"})[R] == ["0+", "01-"]


def test_a_request_for_zero_devices_has_no_hints() -> None:
    """A limit of zero is ignored. A kubelet returns every set."""
    assert Node(widget=ONE_EACH).hints({R: 0}) == {}


# ---------------------------------------------------------------- rules


@st.composite
def requests(draw: st.DrawFn) -> tuple[dict[str, Nodes], set[str], set[str], int, tuple[int, ...]]:
    """Return devices, held and reusable devices, the request, and the nodes of the machine."""
    numa_nodes = draw(st.sets(st.integers(0, 5), min_size=1, max_size=4))
    some_nodes = st.lists(st.integers(0, 6), max_size=3).map(tuple)
    each = st.one_of(st.none(), some_nodes)
    devices = draw(st.dictionaries(st.sampled_from("abcdefgh"), each, max_size=8))
    taken = draw(st.sets(st.sampled_from(sorted(devices)))) if devices else set()
    reusable = draw(st.sets(st.sampled_from(sorted(taken)))) if taken else set()
    return devices, taken, reusable, draw(st.integers(1, 6)), tuple(sorted(numa_nodes))


@given(requests())
def test_a_hint_really_fits(
    case: tuple[dict[str, Nodes], set[str], set[str], int, tuple[int, ...]],
) -> None:
    """Each hint has enough free and reusable devices, all reusable ones; no other set has.

    Preferred is exactly what has the size of the smallest set that would do with all devices free.
    """
    devices, taken, reusable, count, numa_nodes = case
    node = Node(widget=devices)
    node.hold("another", "main", R, taken)
    on = {name: set(nodes or ()) & set(numa_nodes) for name, nodes in devices.items()}
    hints = resource_hints(node.inventory, R, count, reusable=reusable, numa_nodes=numa_nodes)
    if not any(on.values()):
        assert hints is None
        return
    assert hints is not None
    carrying = set().union(*on.values())
    fitting, could = [], []
    for size in range(1, len(carrying) + 1):
        for chosen in map(set, combinations(sorted(carrying), size)):
            if sum(bool(nodes & chosen) for nodes in on.values()) >= count:
                could.append(size)
            usable = [n for n in devices if n not in taken or n in reusable]
            fits = sum(bool(on[name] & chosen) for name in usable) >= count
            if fits and all(on[name] & chosen for name in reusable if on[name]):
                fitting.append(chosen)
    assert [set(hint.numa_nodes or ()) for hint in hints] == fitting
    for hint in hints:
        assert hint.preferred == (len(hint.numa_nodes or ()) == min(could))


def test_the_number_of_hints_on_many_nodes_is_bounded() -> None:
    """A device on each of 64 nodes: about a thousand hints instead of 2**64, one of all nodes."""
    node = Node(widget={f"dev{i}": (i,) for i in range(64)})
    hints = resource_hints(node.inventory, R, 1, numa_nodes=range(64))
    assert hints is not None
    assert len(hints) < 1200
    assert len(hints[-1].numa_nodes or ()) == 64
    assert [hint.preferred for hint in hints].count(True) == 64


def test_the_number_of_devices_does_not_change_the_time() -> None:
    """10,000 devices on eight nodes are eight counts, as 100 devices are."""
    few, many = (Node(widget={f"dev{i}": (i % 8,) for i in range(size)}) for size in (100, 10_000))
    assert min(measured(many) for _ in range(20)) < 10 * min(measured(few) for _ in range(20))


def measured(node: Node) -> float:
    began = time.perf_counter()
    hints = resource_hints(node.inventory, R, 4, numa_nodes=range(8))
    assert hints is not None
    assert len(hints) == 255
    return time.perf_counter() - began
