"""Steps that change the checkpoint share writes; each has its own result."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubedevices.dra.claims import Result
from kubedevices.dra.shared_writes import SharedWrites, WriteStep
from kubedevices.errors import PreparedUnwritable
from tests.dra.test_preparation import FIRST, ONE, SECOND, TWO, Rig
from tests.waiting import until


class Disk:
    """Counts the writes; a write waits for `is_free`."""

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.is_free = threading.Event()
        self.shared = SharedWrites(self.together)

    def together(self, steps: Sequence[WriteStep[Any]]) -> None:
        self.writes.append(len(steps))
        self.is_free.wait(60)
        for each in steps:
            each.run()


async def started(disk: Disk, *functions: Any) -> list[asyncio.Task[Any]]:
    """Start a step for each function; return after the first write has begun."""
    tasks = [asyncio.create_task(disk.shared.do(each)) for each in functions]
    await until(lambda: disk.writes)
    return tasks


async def test_steps_that_come_during_a_write_share_the_next() -> None:
    """They run in their order."""
    disk, order = Disk(), list[int]()
    tasks = await started(disk, *(partial(order.append, n) for n in range(9)))
    disk.is_free.set()
    await asyncio.gather(*tasks)
    assert order == [*range(9)]
    assert disk.writes == [1, 8]


async def test_an_error_belongs_to_its_step() -> None:
    """The other steps of the write have their results."""
    disk = Disk()
    tasks = await started(disk, lambda: 1, lambda: 1 // 0, lambda: 3)
    disk.is_free.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [found[0], type(found[1]), found[2]] == [1, ZeroDivisionError, 3]


async def test_a_cancelled_step_is_not_run() -> None:
    """The steps after it are."""
    disk, order = Disk(), list[int]()
    first, second, third = await started(disk, *(partial(order.append, n) for n in range(3)))
    second.cancel()
    await asyncio.wait({second})
    disk.is_free.set()
    await asyncio.gather(first, third)
    assert order == [0, 2]


def begin(rig: Rig, claim: Any, result: Result) -> WriteStep[None]:
    return WriteStep(partial(rig.now.begin, claim, (result,), rig.offered()))


def test_two_claims_of_one_write_do_not_get_the_same_device(tmp_path: Path) -> None:
    """The second claim sees the first, which is not on disk yet."""
    rig = Rig(tmp_path)
    steps = [begin(rig, ONE, FIRST), begin(rig, TWO, FIRST)]
    rig.now.together(steps)
    steps[0].result()
    with pytest.raises(Exception, match="still holds device gpu-0"):
        steps[1].result()
    assert [each.reference for each in rig.now.claims] == [ONE]


def test_a_device_can_pass_to_the_next_claim_in_one_write(tmp_path: Path) -> None:
    """The first claim is unprepared in the same write."""
    rig = Rig(tmp_path)
    rig.prepare(ONE, FIRST)
    steps: list[WriteStep[None]] = [
        WriteStep(partial(rig.now.remove, ONE.uid)),
        begin(rig, TWO, FIRST),
    ]
    rig.now.together(steps)
    for each in steps:
        each.result()
    assert [each.reference for each in rig.now.claims] == [TWO]


def test_a_claim_that_cannot_be_written_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, where the file may still shrink."""
    rig = Rig(tmp_path)
    rig.prepare(ONE, FIRST)
    write = rig.now._claims._write

    def full(claims: Any) -> None:
        if TWO.uid in claims:
            raise PreparedUnwritable("prepared.json", "No space left on device")
        write(claims)

    monkeypatch.setattr(rig.now._claims, "_write", full)
    steps: list[WriteStep[None]] = [
        begin(rig, TWO, SECOND),
        WriteStep(partial(rig.now.remove, ONE.uid)),
    ]
    rig.now.together(steps)
    with pytest.raises(PreparedUnwritable, match="No space"):
        steps[0].result()
    steps[1].result()
    assert not rig.now.claims
    assert not rig.files
