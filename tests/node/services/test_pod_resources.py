"""kubedevices.node.services.pod_resources, asked over its socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.pod_resources import (
    ALLOCATABLE,
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    PodResourcesClient,
)
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.pods.pod_devices import HeldDevices, PodDevices
from kubedevices.node.services.pod_resources import PodResourcesServer
from kubedevices.values.allocation import ContainerAllocateResponse, PluginOptions
from kubedevices.values.device import ReportedDevice
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.turns import Turns

GPU = "example.com/gpu"
TRAINING = Pod(
    "training",
    uid="uid-1",
    init_containers=(Container("warm-up"), Container("metrics", is_sidecar=True)),
    containers=(Container("train"), Container("idle")),
)


class FakeNode:
    """Pods and devices, with the methods of a device manager."""

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.pod_devices = PodDevices(self.inventory)
        self.admitted = {TRAINING.uid: TRAINING}
        self.gone: set[str] = set()

    def pods(self) -> Iterable[Pod]:
        return self.admitted.values()

    async def update_allocated_devices(self) -> None:
        for uid in self.gone:
            self.admitted.pop(uid, None)
            self.pod_devices.remove_pod(uid)

    def hold(self, container: str, numa: dict[int, list[str]], uid: str = "uid-1") -> None:
        held = HeldDevices(numa, ContainerAllocateResponse())
        self.pod_devices.insert(uid, container, GPU, held)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@contextlib.asynccontextmanager
async def serving(
    directory: Path, node: FakeNode
) -> AsyncIterator[tuple[PodResourcesClient, list[tuple[str, str, bool]]]]:
    counted: list[tuple[str, str, bool]] = []
    server = PodResourcesServer(
        node,
        directory / "pod-resources" / "kubelet.sock",
        count=lambda *call: counted.append(call),
    )
    await server.start()
    try:
        async with await GrpcChannel.dial(server.socket) as channel:
            yield PodResourcesClient(channel), counted
    finally:
        await server.stop()


async def test_list_has_sidecars_before_apps_and_no_plain_init_container(
    short_dir: Path, node: FakeNode
) -> None:
    """v1.List has restartable init containers first, then apps, also containers without devices."""
    node.hold("warm-up", {0: ["gpu-0"]})
    node.hold("metrics", {0: ["gpu-0"]})
    node.hold("train", {-1: ["gpu-1"]})
    async with serving(short_dir, node) as (client, _):
        assert await client.list_pods(timeout=5) == (
            PodEntry(
                "training",
                "default",
                (
                    ContainerEntry("metrics", (DeviceEntry(GPU, ("gpu-0",), (0,)),)),
                    ContainerEntry("train", (DeviceEntry(GPU, ("gpu-1",), None),)),
                    ContainerEntry("idle"),
                ),
            ),
        )


async def test_a_pod_without_a_name_is_listed_with_its_uid(short_dir: Path, node: FakeNode) -> None:
    """A kubelet's checkpoint has only UIDs; with empty names all pods would be the same."""
    node.admitted = {"uid-9": Pod("", "", "uid-9", containers=(Container("c"),))}
    node.hold("c", {0: ["gpu-0"]}, uid="uid-9")
    async with serving(short_dir, node) as (client, _):
        (listed,) = await client.list_pods(timeout=5)
        assert (listed.name, listed.namespace) == ("uid-9", "")
        assert await client.get_pod("uid-9", "", timeout=5) == listed
        with pytest.raises(RpcError, match="not found"):
            await client.get_pod("", "", timeout=5)


async def test_a_device_on_two_numa_nodes_is_listed_twice(short_dir: Path, node: FakeNode) -> None:
    """One message for each device and NUMA node, each with one ID, as in a kubelet."""
    node.hold("train", {0: ["gpu-0", "gpu-1"], 1: ["gpu-0"]})
    async with serving(short_dir, node) as (client, _):
        (pod,) = await client.list_pods(timeout=5)
    assert pod.containers[1].devices == (
        DeviceEntry(GPU, ("gpu-0",), (0,)),
        DeviceEntry(GPU, ("gpu-1",), (0,)),
        DeviceEntry(GPU, ("gpu-0",), (1,)),
    )


async def test_the_next_list_has_every_change_of_a_pod(short_dir: Path, node: FakeNode) -> None:
    """New devices and ended pods are in the next list, although lists are cached."""
    async with serving(short_dir, node) as (client, _):
        (pod,) = await client.list_pods(timeout=5)
        assert not pod.containers[1].devices
        node.hold("train", {0: ["gpu-0"]})
        (pod,) = await client.list_pods(timeout=5)
        assert pod.containers[1].devices == (DeviceEntry(GPU, ("gpu-0",), (0,)),)
        node.gone.add("uid-1")
        assert await client.list_pods(timeout=5) == ()


pods = st.builds(
    Pod, st.sampled_from("xy"), uid=st.sampled_from("abc"), containers=st.just((Container("c"),))
)
steps = st.one_of(
    st.tuples(st.just("admit"), pods),
    st.tuples(st.just("hold"), st.sampled_from("abc"), st.sampled_from(["gpu-0", "gpu-1"])),
    st.tuples(st.just("remove"), st.sampled_from("abc")),
    st.tuples(st.just("go"), st.sampled_from("abc")),
)


@given(st.lists(steps, max_size=20))
def test_a_cached_list_equals_a_new_list(made: list[Any]) -> None:
    """After any sequence of changes."""
    node = FakeNode()
    asked = PodResourcesServer(node, Path("socket"))
    for kind, *what in made:
        match kind:
            case "admit":
                node.admitted[what[0].uid] = what[0]
            case "hold":
                node.hold("c", {0: [what[1]]}, uid=what[0])
            case "remove":
                node.pod_devices.remove(what[0], "c", GPU)
            case "go":
                node.admitted.pop(what[0], None)
                node.pod_devices.remove_pod(what[0])
        assert asked._encode_all() == PodResourcesServer(node, Path("socket"))._encode_all()


async def test_get_returns_one_pod_or_an_error(short_dir: Path, node: FakeNode) -> None:
    """v1.Get has the same content as v1.List. An unknown pod is UNKNOWN with the kubelet's text."""
    node.hold("train", {0: ["gpu-0"]})
    async with serving(short_dir, node) as (client, counted):
        (listed,) = await client.list_pods(timeout=5)
        assert await client.get_pod("training", "default", timeout=5) == listed
        with pytest.raises(RpcError, match="pod nope in namespace default not found") as caught:
            await client.get_pod("nope", "default", timeout=5)
        assert caught.value.code is StatusCode.UNKNOWN
    assert counted[-2:] == [("get", "v1", False), ("get", "v1", True)]


async def test_allocatable_has_every_healthy_device(short_dir: Path, node: FakeNode) -> None:
    """Held devices too. A kubelet leaves out devices with an empty topology."""
    generation = node.inventory.connect(GPU, PluginOptions()).generation
    devices = (
        ReportedDevice("a", "Healthy", (0, 1)),
        ReportedDevice("b", "Unhealthy", (0,)),
        ReportedDevice("c", "Healthy", None),
        ReportedDevice("d", "Healthy", ()),
    )
    node.inventory.report(GPU, generation, devices)
    node.hold("train", {0: ["a"]})
    expected = [("a", (0,)), ("a", (1,)), ("c", None), ("d", None)]
    async with serving(short_dir, node) as (client, _):
        found = await client.get_allocatable(timeout=5)
    assert [(*entry.device_ids, entry.numa_nodes) for entry in found] == expected


async def test_many_allocatable_devices_are_encoded_in_turns(short_dir: Path) -> None:
    """Other tasks run after some devices, and all callers share the answer that is being made."""
    node, count = FakeNode(), 20_000
    generation = node.inventory.connect(GPU, PluginOptions()).generation
    devices = tuple(ReportedDevice(f"gpu-{n}", "Healthy", (n % 2,)) for n in range(count))
    node.inventory.report(GPU, generation, devices)
    server = PodResourcesServer(node, short_dir / "pods.sock")
    steps = sum(1 for _ in server._encode_allocatable())
    assert count / 128 <= steps <= count
    async with Turns() as turns:
        first, second = await asyncio.gather(server.get_allocatable(), server.get_allocatable())
    assert first is second
    assert len(ALLOCATABLE.from_wire(first)) == count
    assert turns.count >= 20


async def test_v1alpha1_lists_app_containers_only(short_dir: Path, node: FakeNode) -> None:
    """The first version of the API has neither sidecars nor NUMA nodes."""
    node.hold("metrics", {0: ["gpu-0"]})
    node.hold("train", {0: ["gpu-1"]})
    async with serving(short_dir, node) as (client, counted):
        (pod,) = await client.list_pods_v1alpha1(timeout=5)
    assert [each.name for each in pod.containers] == ["train", "idle"]
    assert pod.containers[0].devices == (DeviceEntry(GPU, ("gpu-1",), None),)
    assert counted == [("list", "v1alpha1", False)]


async def test_the_eleventh_call_of_a_burst_is_refused(short_dir: Path) -> None:
    """All methods share a burst of ten calls; the next call gets RESOURCE_EXHAUSTED."""
    async with serving(short_dir, FakeNode()) as (client, counted):
        asked = [
            ask(timeout=10) for ask in (client.get_allocatable, client.list_pods) for _ in range(40)
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        turned_away = [error for error in answers if isinstance(error, RpcError)]
    assert len(turned_away) == 80 - len(counted)
    assert {error.code for error in turned_away} == {StatusCode.RESOURCE_EXHAUSTED}
    assert {error.message for error in turned_away} == {"rejected by rate limit"}
    assert 10 <= len(counted) < 80


async def test_the_socket_is_in_its_own_directory(short_dir: Path) -> None:
    """Root and its group may use the directory. Only the socket is in it."""
    async with serving(short_dir, FakeNode()):
        folder = short_dir / "pod-resources"
        assert folder.stat().st_mode & 0o777 == 0o750
        assert [path.name for path in folder.iterdir()] == ["kubelet.sock"]
