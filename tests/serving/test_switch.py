"""A node changes its mode while it serves: held devices stay, and no device is in both APIs."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.dra.state_files import StateFiles
from kubedevices.errors import RpcError, UsageError
from kubedevices.host import deadlines
from kubedevices.serving import switch as switch_module
from kubedevices.serving.modes import run_until_signal
from kubedevices.testing.api_server import HANG_UP
from tests.serving.node_rig import BOTH, DOMAIN, RESOURCE, NodeRig, Widgets
from tests.waiting import until


def offered(rig: NodeRig) -> set[str]:
    return set(rig.pods.offered)


async def choose_dra_beside_a_pod(rig: NodeRig) -> None:
    """Let a pod hold w-0 of the device plugin; only w-1 changes to DRA."""
    await rig.allocate("w-0", "old")
    rig.choose("dra")
    await until(lambda: rig.published == {"w-1"})


async def test_the_mode_file_is_followed_without_a_restart(rig: NodeRig) -> None:
    """There and back, and once more."""
    async with rig.serving():
        for _ in range(2):
            await until(lambda: offered(rig) == BOTH)
            assert not rig.published
            rig.choose("dra")
            await until(lambda: rig.published == BOTH)
            assert not offered(rig)
            rig.choose("device-plugin")
        await until(lambda: offered(rig) == BOTH)
        assert not rig.api.slices, "a node without the driver's devices has no slices of it"


async def test_a_plugin_that_never_switches_asks_no_api_server(rig: NodeRig) -> None:
    """It does not ask the kubelet either, and has no sockets of a driver."""
    async with rig.settled() as switch:
        assert switch.has_started
        assert not rig.api.requests
        assert not rig.pods.questions
        assert not rig.service.exists()


@pytest.mark.parametrize("mode", ["device-plugin", "dra"])
async def test_a_node_at_rest_decides_nothing(
    rig: NodeRig, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Only a device that waits is looked at again and again."""
    within, pauses = deadlines.within, list[float | None]()

    async def noting(seconds: float | None, waiting: Awaitable[object]) -> bool:
        task = asyncio.current_task()
        if task is not None and task.get_name() == "handover":
            pauses.append(seconds)
        return await within(seconds, waiting)

    monkeypatch.setattr(deadlines, "within", noting)
    async with rig.settled(mode):
        await until(lambda: pauses[-1] is None)


async def test_a_driver_has_started_when_its_sockets_exist(rig: NodeRig) -> None:
    """And not earlier, between the first tree and the decision that a driver is needed for it."""
    rig.choose("dra")
    async with rig.serving() as switch, asyncio.timeout(60):
        while not switch.has_started:  # noqa: ASYNC110 - each step of the loop is looked at
            await asyncio.sleep(0)
        assert rig.service.exists()


async def test_a_device_that_a_pod_holds_is_withheld_until_it_is_free(rig: NodeRig) -> None:
    """The other device changes at once."""
    async with rig.settled():
        await choose_dra_beside_a_pod(rig)
        rig.give("1", "w-0")
        assert "device w-0 cannot be used: " in (await rig.prepare("1"))["1"]
        await rig.asked_again(4)
        assert rig.published == {"w-1"}
        del rig.pods.held["w-0"]
        await until(lambda: rig.published == BOTH)
        assert not (await rig.prepare("1"))["1"]


async def test_a_plugin_stays_registered_while_a_pod_holds_a_device_of_it(rig: NodeRig) -> None:
    """It has no devices. Without a plugin the kubelet would restart no container of the pod."""
    async with rig.settled():
        await choose_dra_beside_a_pod(rig)
        await until(lambda: rig.kubelet.connected(RESOURCE) and not rig.kubelet.devices(RESOURCE))
        del rig.pods.held["w-0"]
        await until(lambda: rig.published == BOTH)
        await until(lambda: not rig.kubelet.connected(RESOURCE))


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that gives the host another boot ID."""

    def change() -> None:
        monkeypatch.setattr(switch_module, "read_boot_id", lambda: "the-next-boot")

    return change


async def held_over_a_reboot(rig: NodeRig, reboot: Callable[[], None]) -> None:
    """Let a pod hold w-0 of the device plugin in mode dra, reboot, and break the kubelet."""
    async with rig.settled():
        await choose_dra_beside_a_pod(rig)
    reboot()
    rig.pods.is_broken = True


async def test_a_pod_of_the_device_plugin_is_admitted_again_after_a_reboot(
    rig: NodeRig, reboot: Callable[[], None]
) -> None:
    """The kubelet admits it only if a plugin lists its device; then DRA waits again."""
    await held_over_a_reboot(rig, reboot)
    async with rig.serving():
        await until(lambda: offered(rig) == {"w-0"})
        await rig.asked_again(3)
        assert rig.published == {"w-1"}
        rig.pods.is_broken = False
        await until(lambda: not offered(rig))
        await until(lambda: rig.kubelet.connected(RESOURCE))  # its containers may start again
        assert rig.published == {"w-1"}
        del rig.pods.held["w-0"]
        await until(lambda: rig.published == BOTH)


async def test_after_a_reboot_dra_gets_the_device_of_a_deleted_pod(
    rig: NodeRig, reboot: Callable[[], None]
) -> None:
    """The pod was deleted while the node was down. After the next reboot there is nothing to do."""
    await held_over_a_reboot(rig, reboot)
    async with rig.serving():
        await until(lambda: offered(rig) == {"w-0"})
        rig.pods.held.clear()
        rig.pods.is_broken = False
        await until(lambda: rig.published == BOTH)
    note = rig.directory / "k" / "plugins" / DOMAIN / "held-by-plugin.json"
    assert not note.exists()


async def test_dra_waits_until_the_kubelet_can_know_its_pods(
    rig: NodeRig, reboot: Callable[[], None]
) -> None:
    """After a reboot without an API server, the kubelet cannot have admitted them."""
    await held_over_a_reboot(rig, reboot)
    fault, rig.api.fault = rig.api.fault, lambda _request: HANG_UP
    async with rig.serving():
        await until(lambda: offered(rig) == {"w-0"})
        rig.pods.held.clear()
        rig.pods.is_broken = False
        await rig.asked_again(30)
        assert offered(rig) == {"w-0"}
        rig.pods.held["w-0"] = "old"
        await until(lambda: not offered(rig))
        rig.api.fault = fault
        await until(lambda: rig.published == {"w-1"})


async def test_dra_waits_until_the_kubelet_streams_the_list(
    rig: NodeRig, reboot: Callable[[], None]
) -> None:
    """The kubelet has just started, although its socket is old."""
    await held_over_a_reboot(rig, reboot)
    rig.pods.is_broken = False
    rig.pods.held.clear()
    timing = rig.options["handover_timing"]._replace(returning=3600)
    async with rig.serving(handover_timing=timing) as switch:
        await until(lambda: offered(rig) == {"w-0"} and switch.driver.publisher.is_published)
        await rig.asked_again(3)
        assert offered(rig) == {"w-0"}
        assert rig.published == {"w-1"}


async def test_a_restart_of_the_process_is_no_reboot(rig: NodeRig) -> None:
    """The pod runs on, so the plugin need not list its device."""
    async with rig.settled():
        await choose_dra_beside_a_pod(rig)
    rig.pods.is_broken = True
    async with rig.serving():
        await rig.asked_again(3)
        assert not offered(rig)
        rig.pods.is_broken = False
        await until(lambda: rig.kubelet.connected(RESOURCE))
        assert not offered(rig)


async def test_a_device_of_a_claim_is_withheld_until_the_claim_is_unprepared(rig: NodeRig) -> None:
    """The driver stays for the claim, and Prepare is still answered, as after a kubelet restart."""
    async with rig.settled("dra"):
        rig.give("1", "w-1")
        assert not (await rig.prepare("1"))["1"]
        rig.choose("device-plugin")
        await until(lambda: offered(rig) == {"w-0"})
        assert not (await rig.prepare("1"))["1"]
        with pytest.raises(RpcError):
            await rig.allocate("w-1", "thief")
        assert offered(rig) == {"w-0"}
        await rig.end("1")
        await until(lambda: offered(rig) == BOTH)


async def test_a_claim_allocated_just_before_the_switch_gets_its_device(rig: NodeRig) -> None:
    """The scheduler chose a published device; the pod must not hang."""
    async with rig.settled(
        "dra", handover_timing=rig.options["handover_timing"]._replace(drain=3600)
    ):
        rig.give("1", "w-1")
        rig.choose("device-plugin")
        await until(lambda: not rig.api.slices)
        assert not (await rig.prepare("1"))["1"]
        assert rig.claimed == {"w-1"}


async def test_a_claim_that_comes_too_late_is_refused(rig: NodeRig) -> None:
    """The device plugin has the device, so the claim must not get it."""
    async with rig.settled("dra"):
        rig.choose("device-plugin")
        await until(lambda: offered(rig) == BOTH)
        rig.give("1", "w-1")
        assert "w-1 cannot be used: the device plugin offers it" in (await rig.prepare("1"))["1"]
        assert not rig.claimed


class Slow(Widgets, kd.Allocator):
    """Waits for an event in Allocate."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def allocate(self, request: kd.AllocateRequest) -> Any:
        self.is_asked.set()
        await self.may_answer.wait()
        return kd.USE_DEFAULT


async def test_a_running_allocation_keeps_its_device(rig: NodeRig) -> None:
    """The kubelet does not report the device before the answer."""
    rig.scanner = slow = Slow()
    timing = rig.options["timing"]._replace(call_grace=60)
    async with rig.settled(timing=timing):
        pod = asyncio.create_task(rig.allocate("w-0", "starting"))
        await slow.is_asked.wait()
        rig.choose("dra")
        await until(lambda: rig.published)
        assert rig.published == {"w-1"}
        slow.may_answer.set()
        await pod
        await rig.asked_again(8)
        assert rig.published == {"w-1"}


async def test_split_gives_each_api_its_devices(rig: NodeRig) -> None:
    """By globs; the mode may change and change back."""
    async with rig.serving("split", dra_devices=["widget/*-1"]):
        await until(lambda: offered(rig) == {"w-0"} and rig.published == {"w-1"})
        rig.choose("dra")
        await until(lambda: rig.published == BOTH)
        rig.choose("split")
        await until(lambda: offered(rig) == {"w-0"} and rig.published == {"w-1"})
        rig.scanner.devices.append(kd.Device("x-1"))
        rig.scanner.trigger()
        await until(lambda: rig.published == {"w-1", "x-1"})


async def test_devices_of_a_foreign_device_plugin_are_withheld(rig: NodeRig) -> None:
    """Somebody started a driver beside it by accident."""
    rig.pods.others = frozenset({"w-0"})
    rig.choose("dra")
    async with rig.serving():
        await until(lambda: rig.published == {"w-1"})
        rig.pods.others = frozenset({"w-1"})
        await until(lambda: rig.published == {"w-0"})
        rig.pods.others = frozenset()
        await until(lambda: rig.published == BOTH)


async def test_a_driver_without_switch_withholds_devices_too(rig: NodeRig) -> None:
    """The next process has another mode: somebody changed its arguments."""
    rig.pods.held["w-0"] = "old"
    plain: dict[str, Any] = {
        key: rig.options[key]
        for key in ("kubelet_dir", "node_name", "kubeconfig", "cdi_dir", "guard_timing", "timing")
    }
    async with kd.serve(rig.scanner, domain=DOMAIN, mode="dra", **plain):
        await until(lambda: rig.published == {"w-1"})
        del rig.pods.held["w-0"]
        await until(lambda: rig.published == BOTH)


async def test_the_last_answer_of_a_silent_kubelet_counts(rig: NodeRig) -> None:
    """Shortly after its start it may not know its pods either."""
    rig.pods.held["w-0"] = "old"
    rig.choose("dra")
    async with rig.serving():
        await until(lambda: rig.published == {"w-1"})
        rig.pods.is_broken = True
        rig.pods.held.clear()
        await rig.asked_again(3)
        assert rig.published == {"w-1"}
        rig.pods.is_broken = False
        await until(lambda: rig.published == BOTH)


async def test_without_any_kubelet_answer_no_slices_are_written(rig: NodeRig) -> None:
    """The devices of its pods are unknown. Slices of an earlier process stay."""
    rig.pods.is_broken = True
    rig.choose("dra")
    async with rig.serving():
        await until(lambda: rig.pods.questions > 3)
        assert not rig.api.slices
        rig.pods.is_broken = False
        await until(lambda: rig.published == BOTH)


async def test_without_the_api_server_no_device_returns_to_the_plugin(rig: NodeRig) -> None:
    """Slices may still have it."""
    async with rig.settled("dra"):
        fault, rig.api.fault = rig.api.fault, lambda _request: HANG_UP
        rig.choose("device-plugin")
        seen = len(rig.api.requests)
        await until(lambda: len(rig.api.requests) > seen + 2)
        assert not offered(rig)
        rig.api.fault = fault
        await until(lambda: offered(rig) == BOTH)


@pytest.mark.parametrize("before", ["device-plugin", "dra"])
@pytest.mark.parametrize("after", ["device-plugin", "dra"])
async def test_a_switch_goes_on_after_the_process_ends(
    rig: NodeRig, before: str, after: str
) -> None:
    """The process ends in any step; the next process goes on, to either mode."""
    other = {"dra": "device-plugin", "device-plugin": "dra"}[before]
    for stage in range(6):
        rig.choose(before)
        async with rig.serving():
            await until(lambda: (offered(rig) or rig.published) == BOTH)
            rig.choose(other)
            await until(partial(rig.has_made, stage, since=rig.steps))
        rig.choose(after)
        async with rig.serving():
            await until(lambda: (rig.published if after == "dra" else offered(rig)) == BOTH)


async def test_the_next_process_waits_for_slices_and_claims_of_the_previous(rig: NodeRig) -> None:
    """It starts as a device plugin while the slices still exist."""
    rig.choose("dra")
    rig.give("1", "w-1")
    async with rig.serving():
        await until(lambda: rig.published == BOTH)
        assert not (await rig.prepare("1"))["1"]
    assert rig.published == BOTH
    rig.choose("device-plugin")
    async with rig.serving():
        await until(lambda: offered(rig) == {"w-0"})
        assert not rig.published
        await until(rig.service.exists)
        await rig.end("1")
        await until(lambda: offered(rig) == BOTH)
        state = StateFiles(rig.directory / "k" / "plugins" / DOMAIN)
        await until(lambda: not state.need_a_driver())  # noted after the devices are offered
    rig.api.requests.clear()
    async with rig.settled():
        assert not rig.api.requests, "nothing is left of the driver"


async def test_a_wrong_mode_changes_nothing(rig: NodeRig, caplog: pytest.LogCaptureFixture) -> None:
    """At the start it is an error, later a log line."""
    rig.choose("DRA")
    with pytest.raises(UsageError, match="must be one of 'device-plugin', 'dra', 'split'"):
        async with rig.serving():
            await asyncio.Event().wait()
    async with rig.settled("dra"):
        rig.choose("plugin")
        await until(lambda: "the mode stays dra" in caplog.text)
        rig.mode_file.unlink()
        assert rig.published == BOTH


@pytest.mark.parametrize(
    "options", [{"mode": "split"}, {"mode": "split", "dra_devices": "widget"}], ids=str
)
def test_a_split_needs_a_selector(options: dict[str, Any]) -> None:
    """Without it, use one of the other modes."""
    with pytest.raises(UsageError, match="dra_devices"):
        run_until_signal(Widgets(), domain=DOMAIN, **options)
