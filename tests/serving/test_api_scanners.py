"""The scanner of each API: what it reports, and which Allocate calls it refuses."""

import asyncio
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import AllocationRefused, StatusCode
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.serving.api_scanners import ApiScanner, PluginApiScanner
from kubedevices.serving.handover import Handover, HandoverTiming
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from tests.widgets import Widgets

KEYS = [("widget", "a"), ("widget", "b")]


class Answering(Widgets, kd.Allocator):
    """Notes each call, and fails if it is told to."""

    def __init__(self) -> None:
        super().__init__(widget=[])
        self.asked: list[tuple[str, ...]] = []
        self.is_broken = False

    async def allocate(self, request: kd.AllocateRequest) -> Any:
        self.asked += [each.device_ids for each in request.containers]
        if self.is_broken:
            raise RuntimeError("broken")
        return kd.USE_DEFAULT


def move(handover: Handover, *to_dra: str) -> None:
    """Offer all devices but those, which leave for DRA."""
    handover.decide(KEYS, lambda key: key[1] in to_dra, lambda _: "", lambda *_: "", 0)


def asking(*containers: tuple[str, ...]) -> AllocateRequest:
    return AllocateRequest(tuple(map(ContainerAllocateRequest, containers)))


async def test_a_device_that_was_just_withdrawn_is_refused() -> None:
    """The kubelet chose it from the list of before; the author's code is not asked."""
    whole, handover = Answering(), Handover(HandoverTiming())
    hooks = Hooks(PluginApiScanner(whole, handover).abilities_of("widget"))
    move(handover)
    await hooks.allocate(asking(("a",), ("b",)))
    move(handover, "b")
    with pytest.raises(AllocationRefused, match="b") as refused:
        await hooks.allocate(asking(("a",), ("b",)))
    assert refused.value.code is StatusCode.FAILED_PRECONDITION
    assert whole.asked == [("a",), ("b",)]
    move(handover)
    await hooks.allocate(asking(("b",)))
    assert whole.asked[2:] == [("b",)]


async def test_an_allocation_that_fails_holds_no_device() -> None:
    """Otherwise no claim would ever get the device."""
    whole, handover = Answering(), Handover(HandoverTiming())
    hooks = Hooks(PluginApiScanner(whole, handover).abilities_of("widget"))
    move(handover)
    whole.is_broken = True
    with pytest.raises(RuntimeError, match="broken"):
        await hooks.allocate(asking(("a",)))
    move(handover, "b")
    with pytest.raises(AllocationRefused):
        await hooks.allocate(asking(("a",), ("b",)))
    move(handover, "a", "b")
    later = asyncio.get_running_loop().time() + 3600
    assert [handover.kept_by_plugin(key, later, later) for key in KEYS] == ["", ""]


class Noting(Notifier):
    """Notes the device IDs of each tree."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.stopped = asyncio.Event()
        super().__init__(wait_stopped=self.stopped.wait)

    def notify(self, tree: kd.DeviceTree) -> None:
        self.seen.append([*tree.devices("widget")])


async def test_each_scan_begins_with_the_last_tree() -> None:
    """Also with one from before it, and when the device plugin or the driver starts again."""
    scanner = ApiScanner(Widgets(widget=[]))
    for first, second in (("a", "b"), ("c", "d")):
        scanner.report(kd.DeviceTree({"widget": [kd.Device(first)]}))
        notifier = Noting()
        scan = asyncio.create_task(scanner.scan(notifier))
        await asyncio.sleep(0)
        scanner.report(kd.DeviceTree({"widget": [kd.Device(second)]}))
        notifier.stopped.set()
        await scan
        assert notifier.seen == [[first], [second]]
