"""Admissions that wait for plugins after a restart (`--admission-wait`)."""

import asyncio
import signal
from pathlib import Path

import pytest

from kubedevices.errors import AdmissionRejected
from tests.cli.commands import run, running
from tests.fake_plugin import RESOURCE, FakePlugin, healthy
from tests.restart_rig import ENDS, End, RestartRig, pod, still_waits
from tests.waiting import until

GADGET = "example.com/gadget"
LONG = 20.0


@pytest.mark.parametrize("end", ENDS)
async def test_a_new_pod_waits_for_a_plugin_that_is_late(short_dir: Path, end: End) -> None:
    """And then gets a device that no pod holds."""
    async with RestartRig(short_dir, admission_wait=LONG) as rig:
        await rig.plugin("a", "b")
        (held,) = await rig.admit("p")
        await rig.restart(end)
        admission = asyncio.create_task(rig.admit("q"))
        assert await still_waits(admission)
        await rig.plugin("a", "b")
        (device,) = await admission
        assert {held, device} == {"a", "b"}


async def test_a_pod_waits_for_a_resource_without_held_devices_too(short_dir: Path) -> None:
    """The ledger remembers that the resource had a plugin."""
    async with RestartRig(short_dir, admission_wait=LONG) as rig:
        await rig.plugin("a")
        await rig.restart()
        admission = asyncio.create_task(rig.admit("p"))
        assert await still_waits(admission)
        await rig.plugin("a")
        assert await admission == ("a",)


async def test_a_pod_waits_for_the_first_list_of_a_registered_plugin(short_dir: Path) -> None:
    """Between registration and first list a kubelet starts pods without their devices."""
    async with RestartRig(short_dir, admission_wait=LONG) as rig:
        plugin = await rig.plugin(reports=False)
        admission = asyncio.create_task(rig.admit("p"))
        assert await still_waits(admission)
        await plugin.send([])
        assert await still_waits(admission)
        await plugin.send(healthy("a"))
        assert await admission == ("a",)


async def test_a_pod_does_not_wait_longer_than_the_limit(
    short_dir: Path,
) -> None:
    """The rejection has the text of a node that does not wait."""
    async with RestartRig(short_dir, admission_wait=0.2) as rig:
        await rig.plugin("a", "b")
        await rig.admit("p")
        await rig.restart()
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(AdmissionRejected, match="no healthy devices present"):
            await rig.admit("q")
        assert loop.time() - began >= 0.2
        rig.options["admission_wait"] = 0
        await rig.restart()
        with pytest.raises(AdmissionRejected, match="no healthy devices present"):
            await rig.admit("q")


async def test_a_pod_that_has_its_devices_does_not_wait(short_dir: Path) -> None:
    """After a restart and after a reboot: its containers may run, or will wait when they start."""
    async with RestartRig(short_dir, admission_wait=LONG) as rig:
        await rig.plugin("a")
        await rig.admit("p")
        for end in ENDS:
            await rig.restart(end)
            assert await asyncio.wait_for(rig.admit("p"), 5) == ("a",)


async def test_a_pod_does_not_wait_for_an_unknown_resource(short_dir: Path) -> None:
    """As in the kubelet, a resource that no plugin ever offered does not matter for the node."""
    async with RestartRig(short_dir, admission_wait=LONG) as rig:
        await rig.plugin("a")
        unknown = await asyncio.wait_for(rig.manager.allocate(pod("p", resource=GADGET)), 5)
        assert unknown == {}
        assert await asyncio.wait_for(rig.manager.allocate(pod("q", 0)), 5) == {}
        await rig.admit("r")
        with pytest.raises(AdmissionRejected, match="Requested: 1, Available: 0"):
            await asyncio.wait_for(rig.admit("s"), 5)


async def test_the_release_of_a_waiting_pod_ends_its_wait(short_dir: Path) -> None:
    """The release does not wait for the admission."""
    async with RestartRig(short_dir, admission_wait=LONG) as rig:
        await rig.plugin("a")
        await rig.restart()
        admission = asyncio.create_task(rig.admit("p"))
        assert await still_waits(admission)
        await asyncio.wait_for(rig.manager.release(pod("p").uid), 5)
        with pytest.raises(AdmissionRejected, match="the pod was released"):
            await admission
        await rig.plugin("a")
        assert await rig.admit("q") == ("a",)


async def test_a_node_that_stops_does_not_wait(short_dir: Path) -> None:
    """The callers get an error with the reason."""
    async with RestartRig(short_dir, admission_wait=LONG) as rig:
        await rig.plugin("a")
        await rig.restart()
        admission = asyncio.create_task(rig.admit("p"))
        assert await still_waits(admission)
        await asyncio.wait_for(rig.manager.stop(), 5)
        with pytest.raises(AdmissionRejected, match="the node was stopped"):
            await admission


async def test_waiting_pods_share_the_devices_of_the_late_plugin(short_dir: Path) -> None:
    """Each device goes to one pod; the other pods are rejected."""
    async with RestartRig(short_dir, admission_wait=LONG) as rig:
        await rig.plugin("a", "b", "c")
        await rig.admit("p")
        await rig.restart("rebooted")
        waiting = [asyncio.create_task(rig.admit(f"q{n}")) for n in range(4)]
        assert await still_waits(waiting[0])
        await rig.plugin("a", "b", "c")
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        given = [device for each in outcomes if isinstance(each, tuple) for device in each]
        assert len(given) == len({*given}) == 2
        assert {*given} | rig.held()["p"] == {"a", "b", "c"}


async def test_a_pod_waits_with_admission_wait_on_the_command_line(short_dir: Path) -> None:
    """`node --admission-wait` is killed with a pod and started again; then the plugin registers."""
    sockets = short_dir / "p"
    where = ["--socket-dir", sockets]
    node = ["node", "--admission-wait", str(LONG), "--log-level", "info", *where]
    with running(node, log=short_dir / "log") as process:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        async with FakePlugin(sockets, devices=healthy("a", "b")) as plugin:
            await plugin.register()
            request = ["allocate", f"{RESOURCE}=1", "--pod-name", "first", *where]
            first = await asyncio.to_thread(run, *request)
            assert first.returncode == 0, first.stderr
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)
    with running(node, log=short_dir / "log") as process:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        request = ["allocate", f"{RESOURCE}=1", "--pod-name", "second", *where]
        waiting = asyncio.create_task(asyncio.to_thread(run, *request))
        log = short_dir / "log"
        await until(lambda: "waits for" in log.read_text(), what="it to wait")
        async with FakePlugin(sockets, devices=healthy("a", "b")) as plugin:
            await plugin.register()
            second = await waiting
        assert second.returncode == 0, second.stderr
        held = (await asyncio.to_thread(run, "devices", *where)).stdout
        assert "default/first" in held
        assert "default/second" in held
