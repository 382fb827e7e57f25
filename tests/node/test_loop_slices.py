"""Long work on the event loop runs in slices; other tasks run between two slices."""

import asyncio
import itertools
import json
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from kubedevices.kubelet_api import device_lists
from kubedevices.node import loop_slices
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.inventory import list_plan
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.node.overview import encode_node
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.turns import Turns

DEVICES = 20_000


async def test_threads_and_other_tasks_run_after_each_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`seconds` counts the time of the slices only, without the time of the other tasks.

    For threads there is a real pause: how long they starve without it differs from run to run.
    """
    clock = itertools.count()
    turns = []

    def work() -> Generator[None, None, str]:
        for slice_ in range(3):
            turns.append(f"slice {slice_}")
            yield
        return "done"

    async def other() -> None:
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    monkeypatch.setattr(time, "sleep", lambda _: turns.append("threads"))
    slices = LoopSlices(clock=lambda: float(next(clock)))
    task = asyncio.create_task(other())
    assert await slices.run(work()) == "done"
    task.cancel()
    assert turns == [
        *("slice 0", "threads", "other"),
        *("slice 1", "threads", "other"),
        *("slice 2", "threads", "other"),
    ]
    assert slices.seconds == 4


async def test_short_steps_share_a_slice() -> None:
    """A slice has a minimum length in time: a pass of the loop costs more than a short step."""
    now, turns = 0.0, []

    def work() -> Generator[None, None, None]:
        nonlocal now
        for step in range(4):
            turns.append(f"step {step}")
            now += 0.6 * loop_slices.SLICE
            yield

    async def other() -> None:
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await LoopSlices(clock=lambda: now).run(work())
    task.cancel()
    assert turns == ["step 0", "step 1", "other", "step 2", "step 3", "other"]


async def test_other_tasks_run_while_a_huge_list_is_processed(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is read, compared and freed in slices. Other tasks run between any two slices."""
    turns = Turns()
    slices: list[int] = []
    run = LoopSlices.run

    def counted(work: Generator[None, None, object]) -> Generator[None, None, object]:
        while True:
            slices.append(turns.count)
            try:
                next(work)
            except StopIteration as end:
                return end.value
            yield

    async def run_counted(self: LoopSlices, work: Generator[None, None, object]) -> object:
        return await run(self, counted(work))

    monkeypatch.setattr(LoopSlices, "run", run_counted)
    monkeypatch.setattr(loop_slices, "SLICE", 0)
    ids = [f"device-{n}" for n in range(DEVICES)]
    directory = short_dir / "p"
    async with turns, DeviceManager(directory) as manager, FakePlugin(directory) as plugin:
        await plugin.send(healthy(*ids))
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=DEVICES, timeout=60)
        first = len(slices)
        await plugin.send([*unhealthy(*ids[::2]), *healthy(*ids[1::2])])
        await manager.wait_for(RESOURCE, allocatable=DEVICES // 2, timeout=60)
    passes = DEVICES / device_lists.DEVICES_AT_ONCE + 3 * DEVICES / list_plan.AT_ONCE
    assert first >= passes
    assert len(slices) - first >= passes
    # No other task runs between two generators in sequence.
    joints = sum(a == b for a, b in itertools.pairwise(slices))
    assert joints <= 8


async def test_an_answer_with_many_devices_is_encoded_in_slices(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks for the devices of a node does not delay the admission of pods."""
    monkeypatch.setattr(loop_slices, "SLICE", 0)
    ids = [f"device-{n}" for n in range(DEVICES)]
    directory = short_dir / "p"
    async with DeviceManager(directory) as manager, FakePlugin(directory) as plugin:
        await plugin.send(healthy(*ids))
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=DEVICES, timeout=60)
        async with Turns() as turns:
            answer = await LoopSlices().run(encode_node(manager, resource=RESOURCE))
    (told,) = json.loads(answer)["resources"]
    assert [each["id"] for each in told["devices"]] == ids
    assert turns.count >= 2 * DEVICES / list_plan.AT_ONCE
