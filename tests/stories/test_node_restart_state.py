"""The state that a node reads from its predecessor or a kubelet, and a kubelet from the node."""

import asyncio
import shutil
from pathlib import Path

import pytest

from kubedevices.errors import PluginNotBack
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.checkpoint.text import Checkpoint, parse_checkpoint, restore
from kubedevices.node.inventory.inventory import Capacity
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
)
from kubedevices.values.device import DeviceSpec, Mount
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.golden_data import GOLDEN
from tests.node_process import node_process
from tests.restart_rig import ENDS, End, RestartRig, ids, pod
from tests.waiting import until

CHECKPOINT = "kubelet_internal_checkpoint"
RESOURCES = tuple(f"domain{number}.com/resource{number}" for number in (1, 2, 3))


def full_answer(request: AllocateRequest) -> AllocateResponse:
    """Return an Allocate answer with all possible parts."""
    (container,) = request.containers
    return AllocateResponse(
        [
            ContainerAllocateResponse(
                env={f"DEVICE_{each}": "yes" for each in container.device_ids},
                devices=[DeviceSpec(f"/dev/{each}") for each in container.device_ids],
                mounts=[Mount("/home/lib", f"/lib/{each}") for each in container.device_ids],
                annotations={"example.com/with": "annotation"},
                cdi_devices=[f"domain.com/device={each}" for each in container.device_ids],
            )
        ]
    )


@pytest.mark.parametrize("end", ENDS)
async def test_a_restarted_node_has_the_same_devices_and_answers(short_dir: Path, end: End) -> None:
    """Three pods, three resources, NUMA nodes 0 and none, CDI.

    No device is healthy until the plugins register, and every resource is known."""
    async with RestartRig(short_dir) as rig:
        for resource in RESOURCES:
            plugin = await rig.plugin(*(f"dev{n}" for n in range(1, 6)), resource=resource)
            plugin.allocate_answer = full_answer
            numa = (0,) if resource == RESOURCES[1] else None
            await plugin.send(healthy(*(f"dev{n}" for n in range(1, 6)), numa=numa))
            await until(
                lambda resource=resource, numa=numa: (  # type: ignore[misc]
                    rig.manager.inventory.devices(resource)["dev5"].numa_nodes == numa
                )
            )
        first, second, third = RESOURCES
        await rig.manager.allocate(
            Pod(
                "pod1",
                containers=(
                    Container("con1", {first: 2, second: 1}),
                    Container("con2", {first: 1, third: 1}),
                ),
            )
        )
        await rig.manager.allocate(Pod("pod2", containers=(Container("con1", {second: 2}),)))
        await rig.manager.allocate(Pod("pod3", containers=(Container("con3", {third: 1}),)))
        before = sorted(rig.manager.pod_devices, key=lambda each: each[:3])
        reserved = rig.manager.pod_devices.reserved()
        await rig.restart(end)
        assert sorted(rig.manager.pod_devices, key=lambda each: each[:3]) == before
        assert {*before[0].held.devices_per_numa} | {*before[1].held.devices_per_numa} == {0, -1}
        assert rig.manager.pod_devices.reserved() == reserved
        assert all({*rig.manager.inventory.reserved(name)} == reserved[name] for name in RESOURCES)
        assert rig.manager.inventory.registered_devices() == {name: [] for name in RESOURCES}
        assert [each.name for each in rig.manager.pods()] == ["pod1", "pod2", "pod3"]


async def test_a_resource_whose_plugin_was_lost_at_the_stop_stays_known(short_dir: Path) -> None:
    """It is known with 0 of 0, is not removed, and can be requested."""
    async with RestartRig(short_dir) as rig:
        plugin = await rig.plugin("a", "b", "c", resource="example.com/resource2")
        await plugin.stop()
        await rig.manager.wait_for("example.com/resource2", capacity=3, allocatable=0)
        await rig.restart()
        expected = Capacity({"example.com/resource2": 0}, {"example.com/resource2": 0}, ())
        assert rig.manager.get_capacity() == expected
        assert rig.manager.inventory.is_known("example.com/resource2")


@pytest.mark.parametrize("restarted", ["container", "node", "plugin", "container and node", "all"])
async def test_a_pod_keeps_its_device_over_restarts(short_dir: Path, restarted: str) -> None:
    """The pod has the same device in its options and in the listings, whatever is restarted."""
    async with RestartRig(short_dir, start_wait=20) as rig:
        plugin = await rig.plugin("a", "b", "c")
        devices = await rig.admit("p")
        if restarted in ("plugin", "all"):
            await plugin.stop()
            await plugin.start()
            await plugin.register()
            await rig.manager.wait_for(RESOURCE, allocatable=3)
        if restarted in ("node", "container and node", "all"):
            await rig.restart()
            await rig.plugin("a", "b", "c")
        if restarted in ("container", "container and node", "all"):
            assert await rig.start_container("p") == devices
        assert await rig.admit("p") == devices
        assert rig.held() == {"p": {*devices}}
        assert (await rig.admit("q"))[0] not in devices


async def test_a_pod_deleted_while_the_node_was_down_holds_no_device(short_dir: Path) -> None:
    """Its device is free before the next pod is planned; the file forgets it too.

    But not before the caller knows which pods live: right after a start it may not.
    """
    active = {pod("p").uid, pod("q").uid}
    is_known = True
    async with RestartRig(short_dir, active_pods=lambda: active if is_known else None) as rig:
        await rig.plugin("a", "b")
        await rig.admit("p")
        await rig.admit("q")
        active.remove(pod("p").uid)
        is_known = False
        await rig.restart()
        await rig.plugin("a", "b")
        assert "Requested: 1, Available: 0" in await rig.refused(pod("r"))
        is_known = True
        await rig.admit("r")
        assert {*rig.held()} == {"q", "r"}
        await rig.manager.stop()
        found = parse_checkpoint((rig.sockets / CHECKPOINT).read_bytes())
        assert isinstance(found, Checkpoint)
        assert {each.pod_uid for each in found.entries or ()} == {pod("q").uid, pod("r").uid}
        await rig.manager.start()


# ---------------------------------------------------------------- from a kubelet and back

GPU = "vendor.example/gpu"
UID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


def kubelets_file(directory: Path) -> Path:
    """Put a kubelet's checkpoint with one pod into a plugin directory."""
    (directory / "p").mkdir()
    golden = GOLDEN / "checkpoints" / "04_full_response.json"
    return Path(shutil.copy(golden, directory / "p" / CHECKPOINT))


async def test_pods_of_a_kubelet_are_taken_over(short_dir: Path) -> None:
    """Their devices are held from the start. When they are admitted again, they have a name."""
    kubelets_file(short_dir)
    asked = Pod("train", "ml", UID, containers=(Container("main", {GPU: 1}),))
    running = {(UID, "main")}
    async with RestartRig(short_dir, running_containers=lambda: running) as rig:
        assert [(each.name, each.uid) for each in rig.manager.pods()] == [("", UID)]
        assert await rig.manager.allocate(asked) == {"main": {GPU: ("gpu-0",)}}
        options = await rig.manager.get_device_run_container_options(asked, "main")
        assert options is not None
        assert dict(options.env) == {"GPU_VISIBLE": "gpu-0"}
        assert options.cdi_devices == ("vendor.example/gpu=gpu-0",)
        plugin = await rig.plugin("gpu-0", "gpu-1", resource=GPU)
        new = await rig.manager.allocate(pod("new", resource=GPU))
        assert new == {"main": {GPU: ("gpu-1",)}}
        assert plugin.allocations == [("gpu-1",)]
        await rig.restart("killed")
        assert [each.full_name for each in rig.manager.pods()] == ["ml/train", "default/new"]


async def test_pods_of_a_kubelet_are_verified_before_they_start(short_dir: Path) -> None:
    """The kubelet's file has no boot ID."""
    kubelets_file(short_dir)
    async with RestartRig(short_dir) as rig:
        (moved,) = rig.manager.pods()
        with pytest.raises(PluginNotBack):
            await rig.manager.get_device_run_container_options(moved, "main")
        await rig.plugin("gpu-0", resource=GPU)
        options = await rig.manager.get_device_run_container_options(moved, "main")
        assert ids(options) == ("gpu0",)


async def test_a_kubelet_can_take_over(short_dir: Path) -> None:
    """After each answer, and after a stop, the file is as a kubelet would have written it."""
    async with RestartRig(short_dir) as rig:
        file = rig.sockets / CHECKPOINT
        await rig.plugin("a", "b", "c")
        devices = await rig.admit("p", 2)
        await until(lambda: file.exists() and b"PodUID" in file.read_bytes(), 3)
        await rig.manager.release(pod("p").uid)
        devices = await rig.admit("q", 2)
        await rig.manager.stop()
        found = parse_checkpoint(file.read_bytes())
        assert isinstance(found, Checkpoint)
        (holding,) = restore(found, CONTAINER_RESPONSE.from_wire).holdings
        assert holding[:3] == (pod("q").uid, "main", RESOURCE)
        assert holding.held.device_ids == devices
        assert holding.held.response.env == {"IDS": ",".join(devices)}
        assert found.registered == {RESOURCE: ("a", "b", "c")}
        await rig.manager.start()


async def test_node_takes_over_the_pods_of_a_kubelet_on_the_command_line(short_dir: Path) -> None:
    """The pod is listed, and released by its UID."""
    file = kubelets_file(short_dir)
    async with (
        node_process(short_dir, "--log-level", "info") as node,
        FakePlugin(short_dir / "p", GPU, devices=healthy("gpu-0")) as plugin,
        await node.ask() as client,
    ):
        await until(lambda: f"read 1 pods from {file}" in node.log)
        await plugin.register()
        await node.tells("list changed")
        (listed,) = (await client.devices())["resources"][0]["devices"]
        assert listed["held_by"] == [{"namespace": "", "pod": "", "uid": UID, "container": "main"}]
        released = await client.release(UID)
        assert released["devices"] == {GPU: ["gpu-0"]}
        assert (await node.tells("released"))["pod"] == UID
        await asyncio.wait_for(client.allocate(pod("new", resource=GPU)), 10)
