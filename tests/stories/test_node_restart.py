"""A node that restarts: running containers keep their devices, and nothing unverified is allocated.

The requirements of kubernetes issues 118559, 133382 and 138446 (running pods that were rejected
after a restart) and 109595, 114640, 125579 and 128043 (pods with stale devices, or none for ever,
after a reboot).
"""

import asyncio
from pathlib import Path

import pytest

from kubedevices.errors import PluginNotBack
from kubedevices.node.overview import describe_pods
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.topology.options import check_settings
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.restart_rig import ENDS, End, RestartRig, ids, kubelet_rejection, pod, still_waits
from tests.waiting import until

PLUGINS = ("at once", "late", "never")

UID = pod("p").uid


# ---------------------------------------------------------------- every end, every plugin


@pytest.mark.parametrize("when", PLUGINS)
@pytest.mark.parametrize("end", ENDS)
async def test_a_running_pod_is_never_rejected(short_dir: Path, end: End, when: str) -> None:
    """The runtime says that the pod runs. Its plugin may be registered, late, or lost.

    No plugin is called, and the options with which the container was started stay available."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a", "b")
        devices = await rig.admit("p")
        before = await rig.start_container("p")
        rig.running = {(UID, "main")}
        await rig.restart(end)
        plugin = await rig.plugin("a", "b") if when == "at once" else None
        assert await rig.admit("p") == devices
        assert await rig.start_container("p") == before == devices
        if when == "late":
            plugin = await rig.plugin("a", "b")
        if plugin is not None:
            assert await rig.admit("p") == devices
            assert plugin.allocations == []


@pytest.mark.parametrize("end", ENDS)
async def test_a_running_pod_keeps_an_unhealthy_device(short_dir: Path, end: End) -> None:
    """A kubelet ends no pod because of the health of a device, also not after a restart."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        await rig.admit("p")
        rig.running = {(UID, "main")}
        await rig.restart(end)
        plugin = await rig.plugin("x")
        for devices in (unhealthy("a"), healthy("x")):
            await plugin.send(devices)
            await until(lambda: "a" not in rig.manager.inventory.healthy(RESOURCE))
            assert await rig.admit("p") == ("a",)


@pytest.mark.parametrize("when", PLUGINS)
@pytest.mark.parametrize("end", ENDS)
async def test_a_container_that_does_not_run_starts_when_its_plugin_has_reported(
    short_dir: Path, end: End, when: str
) -> None:
    """It ended while the node was down, or with the boot. It is admitted at once and started later.

    There is no other Allocate call. While the plugin is missing, each start is told to wait."""
    async with RestartRig(short_dir, start_wait=0.3 if when == "never" else 20) as rig:
        await rig.plugin("a", "b")
        devices = await rig.admit("p")
        rig.running = set()
        await rig.restart(end)
        plugin = await rig.plugin("a", "b") if when == "at once" else None
        assert await rig.admit("p") == devices
        start = asyncio.create_task(rig.start_container("p"))
        if when != "at once":
            assert await still_waits(start)
        if when == "never":
            with pytest.raises(PluginNotBack, match=f"{RESOURCE}: its plugin has not reported"):
                await start
            assert rig.held() == {"p": {*devices}}
            return
        if when == "late":
            plugin = await rig.plugin("a", "b")
        assert await start == devices
        assert plugin is not None
        assert plugin.allocations == []


@pytest.mark.parametrize("end", ENDS)
async def test_held_devices_go_to_no_other_pod(short_dir: Path, end: End) -> None:
    """Neither before nor after the plugin registers, whether or not its containers still exist."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a", "b", "c")
        devices = await rig.admit("p", 2)
        rig.running = set()
        await rig.restart(end)
        assert await rig.refused(pod("q")) == kubelet_rejection("no_healthy")
        await rig.plugin("a", "b", "c")
        (other,) = await rig.admit("q")
        assert other not in devices
        assert "Requested: 1, Available: 0" in await rig.refused(pod("r"))
        await rig.manager.release(UID)
        await rig.admit("r", 2)


# ---------------------------------------------------------------- without a container runtime


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_without_a_runtime_pods_of_this_boot_count_as_running(
    short_dir: Path, end: End
) -> None:
    """A node for podman does not know more, and they may run."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        devices = await rig.admit("p")
        await rig.restart(end)
        assert await rig.admit("p") == devices
        assert await rig.start_container("p") == devices


async def test_without_a_runtime_nothing_runs_after_a_reboot(short_dir: Path) -> None:
    """Each start waits, until the pod was started once in this boot."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        devices = await rig.admit("p")
        await rig.restart("rebooted")
        with pytest.raises(PluginNotBack):
            await rig.start_container("p")
        await rig.restart("stopped")
        with pytest.raises(PluginNotBack):
            await rig.start_container("p")
        await rig.plugin("a")
        assert await rig.start_container("p") == devices
        await rig.restart("killed")
        assert await rig.start_container("p") == devices


@pytest.mark.parametrize("end", ENDS)
async def test_pods_without_a_possible_container_are_reported(short_dir: Path, end: End) -> None:
    """After a reboot until the next start. After another end of the node containers may run."""

    def left_behind() -> bool:
        (told,) = describe_pods(rig.manager, {})["pods"]
        return "from before the machine booted" in told["left_behind"]

    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        await rig.admit("p")
        assert not left_behind()
        await rig.restart(end)
        assert left_behind() is (end == "rebooted")
        await rig.plugin("a")
        await rig.start_container("p")
        assert not left_behind()


async def test_a_pod_admitted_again_with_its_plugin_counts_as_verified(short_dir: Path) -> None:
    """From then on it is a normal pod."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        devices = await rig.admit("p")
        await rig.restart("rebooted")
        await rig.plugin("a")
        await rig.admit("p")
        await rig.restart("killed")
        assert await rig.start_container("p") == devices


async def test_a_pod_admitted_again_without_its_plugin_stays_unverified(short_dir: Path) -> None:
    """After a reboot it may be admitted several times: it is not started yet."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        await rig.admit("p")
        ends: tuple[End, ...] = ("rebooted", "killed")
        for end in ends:
            await rig.restart(end)
            await rig.admit("p")
            with pytest.raises(PluginNotBack):
                await rig.start_container("p")


async def test_a_pod_of_an_unknown_boot_is_verified(short_dir: Path) -> None:
    """Without a boot ID, the machine may have been rebooted."""
    async with RestartRig(short_dir, boot_id_file=short_dir / "none") as rig:
        await rig.plugin("a")
        await rig.admit("p")
        await rig.restart("stopped")
        with pytest.raises(PluginNotBack):
            await rig.start_container("p")


# ---------------------------------------------------------------- finished containers

STARTED = Pod(
    "p",
    init_containers=(Container("init", {RESOURCE: 2}),),
    containers=(Container("main", {RESOURCE: 1}), Container("side", {RESOURCE: 1})),
)


@pytest.mark.parametrize("when", PLUGINS)
async def test_a_pod_with_a_finished_init_container_counts_as_running(
    short_dir: Path, when: str
) -> None:
    """Its init container does not run. The same holds for an app container between two attempts."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a", "b")
        devices = await rig.manager.allocate(STARTED)
        rig.running = {(UID, "side")}
        await rig.restart()
        if when == "at once":
            await rig.plugin("a", "b")
        assert await rig.manager.allocate(STARTED) == devices
        if when == "late":
            await rig.plugin("x")
            assert await rig.manager.allocate(STARTED) == devices


async def test_a_crashed_container_of_a_running_pod_waits_for_its_plugin(
    short_dir: Path,
) -> None:
    """The other container runs on."""
    async with RestartRig(short_dir, start_wait=20) as rig:
        await rig.plugin("a", "b")
        devices = await rig.manager.allocate(STARTED)
        rig.running = {(UID, "side")}
        await rig.restart()
        options = rig.manager.get_device_run_container_options
        assert ids(await options(STARTED, "side")) == devices["side"][RESOURCE]
        start = asyncio.create_task(options(STARTED, "main"))
        assert await still_waits(start)
        await rig.plugin("a", "b")
        assert ids(await start) == devices["main"][RESOURCE]


async def test_a_container_with_two_resources_waits_for_both_plugins(short_dir: Path) -> None:
    """A report of one plugin says nothing about the devices of the other."""
    gadget = "example.com/gadget"
    asked = Pod("p", containers=(Container("main", {RESOURCE: 1, gadget: 1}),))
    async with RestartRig(short_dir, start_wait=20) as rig:
        await rig.plugin("a")
        await rig.plugin("g", resource=gadget)
        await rig.manager.allocate(asked)
        await rig.restart("rebooted")
        start = asyncio.create_task(rig.start_container("p"))
        for resource, device in ((gadget, "g"), (RESOURCE, "a")):
            assert await still_waits(start)
            await rig.plugin(device, resource=resource)
        assert {*await start} == {"a", "g"}


async def test_pre_start_is_called_again_after_the_plugin_registers(short_dir: Path) -> None:
    """For a container that does not run. If it runs, the plugin's options are unknown."""
    async with RestartRig(short_dir, start_wait=20) as rig:
        await rig.plugin("a", pre_start=True)
        await rig.admit("p")
        await rig.restart("rebooted")
        start = asyncio.create_task(rig.start_container("p"))
        plugin = await rig.plugin("a", pre_start=True)
        assert await start == ("a",)
        assert plugin.pre_starts == [("a",)]


# ---------------------------------------------------------------- requests that changed


async def test_a_pod_with_a_changed_request_is_rejected(short_dir: Path) -> None:
    """Its request differs from its devices; it is rejected even if it runs, as in the kubelet."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a", "b")
        await rig.admit("p", 2)
        rig.running = {(UID, "main")}
        await rig.restart()
        assert "changed request for resource" in await rig.refused(pod("p", 1))


async def test_a_running_pod_is_not_checked_against_the_policy_again(
    short_dir: Path,
) -> None:
    """Its devices may be on NUMA nodes that the policy would not choose now."""
    settings = check_settings("single-numa-node", numa_nodes=(0, 1))
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a", "b")
        await rig.admit("p", 2)
        rig.running = {(UID, "main")}
        rig.options["topology"] = settings
        await rig.restart()
        plugin = await rig.plugin("x")
        await plugin.send([*healthy("a", numa=(0,)), *healthy("b", numa=(1,))])
        await rig.manager.wait_for(RESOURCE, capacity=2)
        assert {*await rig.admit("p", 2)} == {"a", "b"}


async def test_a_running_container_gets_no_new_resource(short_dir: Path) -> None:
    """Its resource became known later. No policy and no plugin may reject the pod because of it."""
    gadget = "example.com/gadget"
    asked = Pod("p", containers=(Container("main", {RESOURCE: 1, gadget: 1}),))
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        got = await rig.manager.allocate(asked)
        await rig.plugin("g", resource=gadget)
        rig.running = {(UID, "main")}
        rig.options["topology"] = check_settings("single-numa-node", numa_nodes=(0, 1))
        await rig.restart()
        plugin = await rig.plugin("g", resource=gadget)
        await plugin.send([ReportedDevice("g", "Unhealthy", (0,))])
        await rig.manager.wait_for(gadget, allocatable=0)
        assert await rig.manager.allocate(asked) == got == {"main": {RESOURCE: ("a",)}}


# ---------------------------------------------------------------- what the runtime says


async def test_the_question_to_the_runtime_may_be_a_coroutine(short_dir: Path) -> None:
    """It is asked each time, because the answer may change."""
    running = {(UID, "main")}

    async def ask() -> set[tuple[str, str]]:
        await asyncio.sleep(0)
        return running

    async with RestartRig(short_dir, running_containers=ask) as rig:
        await rig.plugin("a")
        await rig.admit("p")
        await rig.restart("rebooted")
        assert await rig.start_container("p") == ("a",)
        running.clear()
        with pytest.raises(PluginNotBack):
            await rig.start_container("p")


async def test_a_runtime_without_an_answer_does_not_mean_that_nothing_runs(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an error or a timeout, the pods of this boot count as running; this is logged."""
    monkeypatch.setattr("kubedevices.node.admission.after_restart._RUNTIME_TIMEOUT", 0.05)

    def fail() -> set[tuple[str, str]]:
        raise ConnectionRefusedError("containerd is not there")

    async def hang() -> set[tuple[str, str]]:
        await asyncio.sleep(60)
        return set()

    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        devices = await rig.admit("p")
        for ask, said in ((fail, "containerd is not there"), (hang, "TimeoutError")):
            rig.options["running_containers"] = ask
            await rig.restart("killed")
            assert await rig.admit("p") == await rig.start_container("p") == devices
            assert said in caplog.text
        await rig.restart("rebooted")
        with pytest.raises(PluginNotBack):
            await rig.start_container("p")


async def test_the_runtime_is_not_asked_about_pods_of_this_node_process(short_dir: Path) -> None:
    """The admission of a new pod needs no question to the runtime."""
    asked = 0

    def ask() -> set[tuple[str, str]]:
        nonlocal asked
        asked += 1
        return set()

    async with RestartRig(short_dir, running_containers=ask) as rig:
        await rig.plugin("a", "b")
        await rig.admit("p")
        await rig.start_container("p")
        await rig.restart()
        await rig.plugin("a", "b")
        await rig.admit("q")
        assert asked == 0
        await rig.admit("p")
        assert asked == 1
        await rig.admit("p")
        assert asked == 1
