"""Devices that pods held before a restart: of the process, of the kubelet and of the host."""

import asyncio

import pytest

from kubedevices.serving import switch as switch_module
from tests.serving.node_rig import BOTH, NodeRig
from tests.serving.test_switch import choose_dra_beside_a_pod, offered
from tests.waiting import until


async def test_a_device_whose_pod_ended_between_two_processes_is_published(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """The file still has it for a moment, and the log says so."""
    caplog.set_level("INFO")
    async with rig.settled():
        await choose_dra_beside_a_pod(rig)
    rig.pods.held.clear()
    async with rig.serving():
        await until(lambda: rig.published == BOTH)
    assert "device w-0 is withheld: a pod held it until now" in caplog.text


async def test_a_device_is_published_when_it_is_out_of_the_file_of_held_devices(
    rig: NodeRig,
) -> None:
    """The switch looks again at once, and not only after the usual pause."""
    rig.pods.held["w-0"] = "old"
    rig.choose("dra")
    timing = rig.options["handover_timing"]._replace(look=3600.0)
    async with rig.serving(handover_timing=timing):
        await until(lambda: rig.published == {"w-1"})
        await rig.asked_again(4)
        rig.pods.held.clear()
        await until(lambda: rig.published == BOTH)


async def test_a_kubelet_that_restarts_has_the_whole_time_again_to_admit_its_pods(
    rig: NodeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reboot, the time of the stream before counts no more."""
    async with rig.settled():
        await choose_dra_beside_a_pod(rig)
    monkeypatch.setattr(switch_module, "read_boot_id", lambda: "the-next-boot")
    rig.pods.held.clear()
    timing = rig.options["handover_timing"]._replace(returning=3600.0)
    loop = asyncio.get_running_loop()
    now = loop.time
    async with rig.serving(handover_timing=timing) as switch:
        await until(lambda: switch.plugin.is_ready and switch.driver.publisher.is_published)
        await rig.asked_again(8)
        assert offered(rig) == {"w-0"}
        await rig.kubelet.stop(leave_socket=True)
        await until(lambda: not switch.plugin.is_ready)
        loop.time = lambda: now() + 7200.0  # type: ignore[method-assign]
        await rig.asked_again(3)
        await rig.kubelet.start()
        await until(lambda: offered(rig) == {"w-0"} and switch.driver.publisher.is_published)
        await rig.asked_again(30)
        assert offered(rig) == {"w-0"}
        assert rig.published == {"w-1"}
