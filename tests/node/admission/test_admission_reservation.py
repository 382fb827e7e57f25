"""The devices that a pod is about to get, and rules that hold for every order of events."""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kubedevices.errors import AllocationError
from kubedevices.node.admission.admission import Reservation
from kubedevices.node.admission.device_choice import Chosen, DeviceRequest, plan
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import PodDevices
from kubedevices.values.allocation import ContainerAllocateResponse, PluginOptions
from kubedevices.values.device import ReportedDevice, natural_key

R, S = "v.example/r", "v.example/s"


class Node:
    """A node with one or two resources that admits pods."""

    def __init__(self, **counts: int) -> None:
        self.inventory = Inventory()
        self.pod_devices = PodDevices(self.inventory)
        for name, count in counts.items():
            resource = f"v.example/{name}"
            generation = self.inventory.connect(resource, PluginOptions()).generation
            devices = tuple(ReportedDevice(f"{name}{i}", "Healthy", (i % 2,)) for i in range(count))
            self.inventory.report(resource, generation, devices)

    def reserve(self, pod: Pod) -> Reservation:
        reservation = Reservation(pod, self.inventory, self.pod_devices)
        try:
            for container in pod:
                for resource, count in container.limits.items():
                    request = DeviceRequest(
                        pod.uid, container.name, resource, count, reservation.reusable(resource)
                    )
                    chosen = plan(request, self.inventory, self.pod_devices)
                    assert isinstance(chosen, Chosen)
                    reservation.take(container, resource, chosen.device_ids)
                reservation.finish(container)
        except AllocationError:
            reservation.roll_back()
            raise
        return reservation

    def admit(self, pod: Pod) -> Mapping[str, set[str]]:
        reservation = self.reserve(pod)
        reservation.commit({part: ContainerAllocateResponse() for part in reservation.parts})
        return {
            container.name: {
                device_id
                for resource in container.limits
                for device_id in self.pod_devices.device_ids(pod.uid, container.name, resource)
            }
            for container in pod
        }


# ---------------------------------------------------------------- cases of the kubelet's own tests


def test_later_containers_reuse_the_devices_of_init_containers() -> None:
    """InitContainerDeviceAllocation: two devices do for two init containers and two apps."""
    pod = Pod(
        "p",
        init_containers=(Container("i1", {R: 1}), Container("i2", {R: 2})),
        containers=(Container("a1", {R: 1}), Container("a2", {R: 1})),
    )
    got = Node(r=2).admit(pod)
    assert got["i1"] | got["a1"] | got["a2"] <= got["i2"]
    assert not got["a1"] & got["a2"]


def test_sidecars_keep_their_devices() -> None:
    """RestartableInitContainerDeviceAllocation: six devices; only the plain init shares."""
    pod = Pod(
        "p",
        init_containers=(
            Container("init", {R: 3}),
            Container("s1", {R: 1}, is_sidecar=True),
            Container("s2", {R: 2}, is_sidecar=True),
        ),
        containers=(Container("a1", {R: 1}), Container("a2", {R: 2})),
    )
    got = Node(r=6).admit(pod)
    assert got["s1"] | got["s2"] == got["init"]
    beside = [got[name] for name in ("s1", "s2", "a1", "a2")]
    assert sum(map(len, beside)) == len(set().union(*beside)) == 6


def test_a_pod_of_two_resources() -> None:
    """Each resource has devices of its own, taken and held together."""
    got = Node(r=1, s=2).admit(Pod("p", containers=(Container("c", {R: 1, S: 2}),)))
    assert got == {"c": {"r0", "s0", "s1"}}


# ---------------------------------------------------------------- reserve, commit, roll back


def test_a_rollback_frees_the_whole_reservation() -> None:
    """All devices of a failed pod are free again, and are freed only once."""
    node = Node(r=4)
    pod = Pod("p", "", "", (Container("i", {R: 2}),), (Container("a", {R: 3}),))
    reservation = node.reserve(pod)
    assert set(node.inventory.reserved(R)) == {"r0", "r1", "r2"}
    assert repr(reservation) == "<Reservation of 2 parts for /p, open>"
    reservation.roll_back()
    reservation.roll_back()
    assert not node.inventory.reserved(R)
    assert repr(reservation) == "<Reservation of 2 parts for /p, closed>"


def test_a_cleanup_does_not_free_reserved_devices() -> None:
    """While plugins answer, no cleanup makes pending devices available."""
    node = Node(r=2)
    first = node.reserve(Pod("p", containers=(Container("a", {R: 1}),)))
    node.pod_devices.remove_pod("p")
    second = node.reserve(Pod("q", containers=(Container("a", {R: 1}),)))
    assert not {*first.parts.values()} & {*second.parts.values()}


def test_commit_keeps_the_nodes_of_the_devices() -> None:
    """The held devices have their NUMA nodes and the plugin's answer."""
    node = Node(r=2)
    reservation = node.reserve(Pod("p", "", "p", (), (Container("a", {R: 2}),)))
    response = ContainerAllocateResponse(env={"A": "1"})
    [holding] = reservation.commit({("a", R): response})
    assert holding == ("p", "a", R, node.pod_devices.get("p", "a", R))
    assert holding.held.devices_per_numa == {0: ["r0"], 1: ["r1"]}
    assert holding.held.response is response


def test_a_pod_admitted_again_reserves_no_further_devices() -> None:
    """App containers still reuse the held devices of init containers."""
    node = Node(r=2)
    pod = Pod("p", "", "p", (Container("i", {R: 2}),), (Container("a", {R: 1}),))
    before = node.admit(pod)
    assert node.admit(pod) == before
    assert not node.reserve(pod).parts
    grown = Pod("p", "", "p", pod.init_containers, (*pod.containers, Container("b", {R: 1})))
    assert node.admit(grown)["b"] == {"r1"}


# ---------------------------------------------------------------- rules


class NodeMachine(RuleBasedStateMachine):
    """Pods come and go, admissions are pending, lists change, plugins disconnect and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.inventory = Inventory(grace_period=5)
        self.pod_devices = PodDevices(self.inventory)
        self.generation = self.inventory.connect(R, PluginOptions()).generation
        self.open: list[Reservation] = []
        self.now = 0.0
        self.pods = 0

    @rule(
        devices=st.dictionaries(st.integers(0, 9), st.tuples(st.booleans(), st.integers(0, 2))),
        newest=st.booleans(),
    )
    def list_devices(self, devices: dict[int, tuple[bool, int]], newest: bool) -> None:
        if newest:
            self.generation = self.inventory.connect(R, PluginOptions(), "socket").generation
        listed = tuple(
            ReportedDevice(
                f"d{number}", "Healthy" if healthy else "Unhealthy", (node,) if node else None
            )
            for number, (healthy, node) in devices.items()
        )
        self.inventory.report(R, self.generation, listed)

    @rule(passed=st.integers(0, 4))
    def lose_the_plugin(self, passed: int) -> None:
        self.now += passed
        self.inventory.disconnect(R, self.generation, self.now)

    @rule(passed=st.integers(0, 4))
    def look_at_the_capacity(self, passed: int) -> None:
        self.now += passed
        self.inventory.get_capacity(self.now)

    @rule(init=st.integers(0, 3), app=st.lists(st.integers(0, 3), max_size=2))
    def begin_a_pod(self, init: int, app: list[int]) -> None:
        self.pods += 1
        pod = Pod(
            f"p{self.pods}",
            "",
            f"p{self.pods}",
            (Container("i", {R: init}),),
            tuple(Container(f"a{n}", {R: count}) for n, count in enumerate(app)),
        )
        node = Node()
        node.inventory, node.pod_devices = self.inventory, self.pod_devices
        try:
            self.open.append(node.reserve(pod))
        except AllocationError:
            return

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0), answered=st.booleans())
    def end_an_admission(self, which: int, answered: bool) -> None:
        reservation = self.open.pop(which % len(self.open))
        if answered:
            reservation.commit({part: ContainerAllocateResponse() for part in reservation.parts})
        else:
            reservation.roll_back()

    @rule(active=st.sets(st.integers(1, 20)))
    def clean_up(self, active: set[int]) -> None:
        for pod_uid in {*self.pod_devices.pod_uids()} - {f"p{number}" for number in active}:
            self.pod_devices.remove_pod(pod_uid)

    def pending(self) -> list[tuple[str, set[str]]]:
        return [
            (each.pod.uid, {one for ids in each.parts.values() for one in ids})
            for each in self.open
        ]

    @invariant()
    def reserved_is_held_or_pending(self) -> None:
        """The reserved devices are exactly the held devices and the pending devices."""
        derived = self.pod_devices.reserved().get(R, set())
        pending = set().union(*(ids for _, ids in self.pending()))
        assert set(self.inventory.reserved(R)) == derived | pending

    @invariant()
    def no_device_is_held_twice(self) -> None:
        """No two pods, held or pending, have a device in common."""
        taken = [(uid, self.pod_devices.of_pod(uid, R)) for uid in self.pod_devices.pod_uids()]
        taken += self.pending()
        assert sum(len(ids) for _, ids in taken) == len(set().union(*(ids for _, ids in taken)))

    @invariant()
    def free_is_healthy_and_not_reserved(self) -> None:
        """The free devices are always exactly the healthy devices that are not reserved."""
        record = self.inventory.record(R)
        if record is not None:
            free = set(self.inventory.healthy(R)) - set(self.inventory.reserved(R))
            assert record.devices.free.all() == sorted(free, key=natural_key)
            assert sum(record.devices.counts.values()) == len(record.devices.devices)


@pytest.mark.parametrize("histories", [15, pytest.param(100, marks=pytest.mark.slow)])
def test_the_rules_hold_in_any_history(histories: int) -> None:
    """The invariants of `NodeMachine` hold after each step of random histories."""
    how = settings(max_examples=histories, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(NodeMachine, settings=how)
