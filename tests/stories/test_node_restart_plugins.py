"""After a restart: plugins that register with other devices, with fewer at first, or too late."""

import asyncio
from pathlib import Path

import pytest

from kubedevices.errors import AdmissionRejected, DevicesNoLongerHealthy, PluginNotBack
from kubedevices.node.inventory.inventory import Capacity
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.restart_rig import RestartRig, kubelet_rejection, pod, still_waits
from tests.waiting import until

UID = pod("p").uid


# ---------------------------------------------------------------- a plugin that is back without it


async def test_a_lost_or_unhealthy_device_is_not_allocated(short_dir: Path) -> None:
    """After a reboot its pod is neither admitted nor started, with the kubelet's text."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a", "b")
        (device,) = await rig.admit("p")
        (other,) = {"a", "b"} - {device}
        await rig.restart("rebooted")
        plugin = await rig.plugin(other)
        for devices in (healthy(other), [*healthy(other), *unhealthy(device)]):
            await plugin.send(devices)
            await rig.manager.wait_for(RESOURCE, capacity=len(devices))
            assert await rig.refused(pod("p")) == kubelet_rejection("no_longer_healthy")
            with pytest.raises(DevicesNoLongerHealthy):
                await rig.start_container("p")
        assert rig.held() == {"p": {device}}


@pytest.mark.parametrize("first", [[], unhealthy("a")], ids=["an empty list", "a sick device"])
async def test_the_node_waits_for_a_plugin_with_an_incomplete_first_list(
    short_dir: Path, first: list[object]
) -> None:
    """Several plugins send an empty list, or unhealthy devices, before the real list."""
    async with RestartRig(short_dir, start_wait=20, admission_wait=20) as rig:
        await rig.plugin("a")
        await rig.admit("p")
        await rig.restart("rebooted")
        plugin = await rig.plugin(reports=False)
        await plugin.send(first)  # type: ignore[arg-type]
        await until(lambda: rig.manager.inventory.has_reported(RESOURCE))
        admission = asyncio.create_task(rig.admit("p"))
        start = asyncio.create_task(rig.start_container("p"))
        assert await still_waits(admission, start)
        await plugin.send(healthy("a"))
        assert await admission == await start == ("a",)


async def test_a_pod_released_while_its_start_waits_is_not_started(short_dir: Path) -> None:
    """The waiting caller gets an error at once: the container would start without its devices."""
    async with RestartRig(short_dir, start_wait=20) as rig:
        await rig.plugin("a")
        await rig.admit("p")
        await rig.restart("rebooted")
        start = asyncio.create_task(rig.start_container("p"))
        assert await still_waits(start)
        await rig.manager.release(UID)
        with pytest.raises(
            AdmissionRejected, match='released while its container "main" was being'
        ):
            await asyncio.wait_for(start, 5)


async def test_a_start_that_waits_ends_with_the_node(short_dir: Path) -> None:
    """The waiting caller gets an error."""
    async with RestartRig(short_dir, start_wait=60) as rig:
        await rig.plugin("a")
        await rig.admit("p")
        await rig.restart("rebooted")
        start = asyncio.create_task(rig.start_container("p"))
        assert await still_waits(start)
        await rig.manager.stop()
        with pytest.raises(PluginNotBack):
            await asyncio.wait_for(start, 5)


async def test_capacity_is_zero_until_the_plugin_registers(short_dir: Path) -> None:
    """The resource is known with 0 of 0. After the grace period it is removed, once."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a", "b", "c")
        rig.options["grace_period"] = 0.3
        await rig.restart()
        events = rig.manager.subscribe()
        assert rig.manager.get_capacity() == Capacity({RESOURCE: 0}, {RESOURCE: 0})
        assert rig.manager.inventory.is_known(RESOURCE)
        await until(lambda: events.backlog, what="nobody has to ask for it")
        assert [event.as_dict() for event in events.backlog] == [
            {"event": "removed", "resource": RESOURCE}
        ]
        assert rig.manager.get_capacity() == Capacity({}, {})
        await rig.restart()
        assert rig.manager.get_capacity() == Capacity({}, {})


async def test_a_plugin_that_registers_in_time_keeps_its_resource(short_dir: Path) -> None:
    """Its registration ends the grace period that began with the start."""
    async with RestartRig(short_dir) as rig:
        await rig.plugin("a")
        rig.options["grace_period"] = 0.3
        await rig.restart()
        plugin = await rig.plugin("a", reports=False)
        removed = asyncio.create_task(anext(rig.manager.subscribe()))
        done, _ = await asyncio.wait({removed}, timeout=0.4)
        assert not done
        removed.cancel()
        await plugin.send(healthy("a"))
        await rig.manager.wait_for(RESOURCE, allocatable=1)
