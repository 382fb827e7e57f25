"""Which devices a container gets, and the message of each refusal."""

import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import (
    AllocationError,
    DevicesNoLongerHealthy,
    DevicesUnavailable,
    EndpointNotFound,
    NoHealthyDevices,
    NothingAllocated,
    PreferredAllocationFailed,
    PreStartFailed,
    RequestChanged,
    UnregisteredResource,
)
from kubedevices.node.admission.device_choice import (
    AskPlugin,
    Chosen,
    DeviceRequest,
    NumaSplit,
    plan,
)
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod_devices import HeldDevices, PodDevices
from kubedevices.values.allocation import (
    ContainerAllocateResponse,
    PluginOptions,
)
from kubedevices.values.device import ReportedDevice, natural_key
from tests.allocator_rig import THREE_EACH, Node, Nodes, R
from tests.golden_data import cases, load

# ---------------------------------------------------------------- golden vectors


@pytest.mark.parametrize(("number", "case"), cases("filter_by_affinity"))
def test_devices_are_split_by_affinity_as_in_the_kubelet(number: int, case: Any) -> None:
    """Aligned, on other nodes, and without any node: the same sets, each in natural order."""
    devices = {
        name: None if nodes is None else tuple(nodes) for name, nodes in case["devices"].items()
    }
    node = Node(devices)
    node.hold(*(name for name in devices if name not in case["available"]))
    record = node.inventory.record(R)
    assert record is not None
    split = NumaSplit(case["affinity"], record.devices.counts)
    free = record.devices.free
    for part, expected in (
        (split.is_aligned, case["from_affinity"]),
        (split.is_unaligned, case["not_from_affinity"]),
        (split.is_without_numa, case["without_topology"]),
    ):
        assert free.all(part) == sorted(expected, key=natural_key)


MESSAGES = load("messages")


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (NoHealthyDevices(R), "no_healthy"),
        (UnregisteredResource(R), "unregistered"),
        (DevicesNoLongerHealthy(R), "no_longer_healthy"),
        (DevicesUnavailable(R, 1, 0), "unavailable"),
        (RequestChanged("p", "c", R, 1, 2), "changed"),
        (EndpointNotFound(R), "no_endpoint"),
        (NothingAllocated("p", "c", R), "prestart_no_devices"),
    ],
    ids=str,
)
def test_errors_have_the_kubelets_texts(error: AllocationError, key: str) -> None:
    """Tools match these texts, so they are equal."""
    assert str(error) == MESSAGES[key]


@pytest.mark.parametrize("error", [PreferredAllocationFailed("x"), PreStartFailed("x")], ids=str)
def test_errors_with_a_reason_begin_with_the_kubelets_text(error: AllocationError) -> None:
    """The beginning is the kubelet's text, the rest is the plugin's."""
    assert any(str(error) == f"{prefix}x" for prefix in MESSAGES["prefixes"])


# ---------------------------------------------------------------- cases of the kubelet's own tests


def test_devices_are_given_until_none_is_free() -> None:
    """PodContainerDeviceAllocation: both devices, then a refusal, then the last free device."""
    node = Node(["d1", "d2"])
    assert node.choose(2) == ("d1", "d2")
    node.hold("d1", "d2")
    with pytest.raises(DevicesUnavailable) as caught:
        node.plan(1)
    assert str(caught.value).endswith("Requested: 1, Available: 0")
    node.pod_devices.remove_pod("another")
    node.hold("d1")
    assert node.choose(1) == ("d2",)


def test_a_container_that_holds_devices() -> None:
    """PodContainerDeviceToAllocate: held healthy devices stay; without them a plan is an error."""
    node = Node(["d1", "d2"])
    node.hold("d1", pod="p")
    assert node.choose(1) == ()
    node.list(["!d1", "!d2"])
    with pytest.raises(NoHealthyDevices, match="no healthy devices present"):
        node.plan(1)
    node.list(["d2"])
    with pytest.raises(DevicesNoLongerHealthy, match="previously allocated"):
        node.plan(1)
    with pytest.raises(RequestChanged, match="from 1 to 2"):
        node.plan(2)
    with pytest.raises(RequestChanged, match="from 1 to 0"):
        node.plan(0)


def test_a_resource_without_a_list_is_unregistered() -> None:
    """PodContainerDeviceToAllocate: the message is the one for an unknown resource."""
    node = Node()
    with pytest.raises(UnregisteredResource, match="cannot allocate unregistered device"):
        node.plan(1)
    request = DeviceRequest("p", "c", "v.example/unknown", 1)
    with pytest.raises(UnregisteredResource, match=r"v\.example/unknown"):
        plan(request, node.inventory, node.pod_devices)


def test_devices_vanish_while_the_plugin_is_asked() -> None:
    """DevicesToAllocateConflictWithUpdateAllocatedDevices: the answer is checked against the new
    state.
    """
    node = Node(["d1", "d2", "d3"], prefers=True)
    node.hold("d1")
    assert node.ask(1).available == ("d2", "d3")
    for pod_uid in [*node.pod_devices.pod_uids()]:
        node.pod_devices.remove_pod(pod_uid)
    assert node.choose(1, answer=("d3",)) == ("d3",)
    node.list(["d1", "d2"])
    assert node.choose(1, answer=("d3",)) == ("d1",)
    node.hold("d1", "d2", pod="faster")
    with pytest.raises(DevicesUnavailable):
        node.plan(1, answer=("d1",))


@pytest.mark.parametrize(
    ("devices", "affinity", "count", "chosen"),
    [
        ({"d0": None, "d1": None}, (0,), 1, ("d0",)),
        ({"d0": None, "d1": (1,)}, (1,), 1, ("d1",)),
        ({"d0": (0,), "d1": (1,)}, (0,), 1, ("d0",)),
        ({"d0": (0,), "d1": (1,)}, (1,), 1, ("d1",)),
        (THREE_EACH, (0,), 2, ("d0", "d1")),
        (THREE_EACH, (1,), 2, ("d3", "d4")),
        (THREE_EACH, (0,), 4, ("d0", "d1", "d2", "d3")),
        (THREE_EACH, (1,), 4, ("d3", "d4", "d5", "d0")),
        (THREE_EACH, None, 4, ("d0", "d1", "d2", "d3")),
        ({f"d{n}": (n % 4,) for n in range(8)}, (1, 3), 4, ("d1", "d3", "d5", "d7")),
        ({"d0": None, "d1": (1,), "d2": (0,)}, (0,), 3, ("d2", "d1", "d0")),
    ],
)
def test_aligned_devices_come_first(
    devices: Mapping[str, Nodes], affinity: Nodes, count: int, chosen: tuple[str, ...]
) -> None:
    """TopologyAlignedAllocation: the wanted nodes, then other nodes, then devices without node."""
    assert Node(devices).choose(count, affinity=affinity) == chosen


# ---------------------------------------------------------------- where a kubelet is wrong


def test_a_request_for_zero_devices_is_ignored() -> None:
    """A kubelet refuses a limit of zero if no device is healthy."""
    node = Node(["!d1"])
    assert node.choose(0) == ()


def test_an_unhealthy_device_is_not_reused() -> None:
    """A device of an init container is reused only while it is healthy."""
    node = Node(["!d1", "d2", "d3"])
    node.hold("d1", "d2", pod="p", container="init")
    assert node.choose(1, reusable=("d1", "d2")) == ("d2",)
    assert node.choose(2, reusable=("d1", "d2")) == ("d2", "d3")


def test_a_matching_allocation_stays_before_the_plugin_registers_again() -> None:
    """After a restart of the node a pod keeps its device without a call."""
    inventory = Inventory()
    inventory.restore(R, 0)
    pod_devices = PodDevices(inventory)
    pod_devices.insert("p", "c", R, HeldDevices({-1: ["d1"]}, ContainerAllocateResponse()))
    request = DeviceRequest("p", "c", R, 1)
    assert plan(request, inventory, pod_devices) == Chosen()
    with pytest.raises(RequestChanged):
        plan(DeviceRequest("p", "c", R, 2), inventory, pod_devices)
    with pytest.raises(NoHealthyDevices):
        plan(DeviceRequest("q", "c", R, 1), inventory, pod_devices)
    generation = inventory.connect(R, PluginOptions()).generation
    assert plan(request, inventory, pod_devices) == Chosen()
    inventory.report(R, generation, (ReportedDevice("d2", "Healthy"),))
    with pytest.raises(DevicesNoLongerHealthy):
        plan(request, inventory, pod_devices)


def test_a_container_that_runs_since_before_the_start_is_not_changed() -> None:
    """The container keeps its devices, with or without its plugin."""
    node = Node(["!d1"])
    assert node.choose(1, is_fixed=True) == ()
    node.hold("d1", pod="p")
    with pytest.raises(RequestChanged):
        node.plan(2, is_fixed=True)


def test_a_lost_plugin_has_no_healthy_devices() -> None:
    """Requests after a disconnect are refused with the message about unhealthy devices."""
    node = Node(["d1"])
    node.inventory.disconnect(R, node.generation, 0)
    with pytest.raises(NoHealthyDevices):
        node.plan(1)


# ---------------------------------------------------------------- rules

names = st.sampled_from([f"d{n}" for n in range(12)])
nodes = st.none() | st.lists(st.integers(0, 3), max_size=2).map(tuple)


@given(
    devices=st.dictionaries(names, nodes, max_size=10),
    unhealthy=st.sets(names),
    held=st.sets(names),
    reusable=st.sets(names),
    affinity=st.none() | st.sets(st.integers(0, 3), min_size=1),
    count=st.integers(1, 6),
    answer=st.none() | st.lists(names, max_size=6),
    prefers=st.booleans(),
)
def test_a_plan_is_right_or_refused_with_a_true_reason(  # noqa: PLR0917
    devices: dict[str, Nodes],
    unhealthy: set[str],
    held: set[str],
    reusable: set[str],
    affinity: set[int] | None,
    count: int,
    answer: list[str] | None,
    prefers: bool,
) -> None:
    """A plan has exactly the wanted number of different devices, all healthy, free or reusable.

    Reusable devices are used first, then aligned devices, then others. A refusal has true numbers.
    """
    listed = {f"!{name}" if name in unhealthy else name: on for name, on in devices.items()}
    node = Node(prefers=prefers)
    node.list(listed)
    reusable &= held
    node.hold(*sorted(held), pod="p", container="init")
    healthy = {name for name in devices if name not in unhealthy}
    free = healthy - held
    usable = healthy & reusable
    kwargs: dict[str, Any] = {"reusable": reusable, "affinity": affinity}
    try:
        found = node.plan(count, answer=answer, **kwargs)
    except NoHealthyDevices:
        refused = not healthy
    except DevicesUnavailable as error:
        refused = len(free) + len(usable) < count
        refused &= (error.requested, error.available) == (count - len(usable), len(free))
    else:
        refused = False
        if isinstance(found, AskPlugin):
            asked = found.request
            assert prefers
            assert answer is None
            assert asked.size == count > len(asked.must_include)
            assert set(asked.must_include) <= set(asked.available) <= free | usable
            assert list(asked.available) == sorted(set(asked.available), key=natural_key)
            found = node.plan(count, answer=asked.available[:count], **kwargs)
        assert isinstance(found, Chosen)
        chosen = set(found.device_ids)
        assert len(found.device_ids) == len(chosen) == count
        assert chosen <= free | usable
        assert len(chosen & usable) == min(count, len(usable))
        if affinity is not None:
            aligned = {name for name in free if set(devices[name] or ()) & affinity}
            assert len(chosen & aligned) == min(count - len(chosen & usable), len(aligned))
    assert refused == (len(free) + len(usable) < count or not healthy)


def test_the_time_to_choose_does_not_depend_on_the_number_of_devices() -> None:
    """One of 10,000 devices is found as quickly as one of 100."""
    few, many = (Node([f"d{i}" for i in range(size)]) for size in (100, 10_000))
    few.choose(1)
    many.choose(1)
    assert min(timed(many) for _ in range(50)) < 10 * min(timed(few) for _ in range(50))


def timed(node: Node) -> float:
    began = time.perf_counter()
    node.choose(1)
    return time.perf_counter() - began
