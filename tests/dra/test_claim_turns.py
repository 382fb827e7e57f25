"""Turns of one process: claims work together, calls for one claim one after the other."""

import asyncio
from pathlib import Path

import pytest

from kubedevices.dra import claim_turns
from kubedevices.dra.claim_lock import ClaimLock
from kubedevices.dra.claim_turns import ClaimTurns
from tests.waiting import until


class Instance:
    """One process; counts how often it got the lock."""

    def __init__(self, directory: Path) -> None:
        self.begun = 0
        self.turns = ClaimTurns(ClaimLock(directory / "lock"), self.begin)

    async def begin(self) -> None:
        self.begun += 1


async def test_claims_share_the_lock_of_their_process(tmp_path: Path) -> None:
    """Another process waits for the last of them."""
    first, second = Instance(tmp_path), Instance(tmp_path)
    async with first.turns.of("1"):
        async with first.turns.of("2"):
            other = asyncio.create_task(anext_turn(second))
            await until(second.turns._door.locked)
        assert not other.done()
        assert first.begun == 1
    await other
    assert second.begun == 1


async def anext_turn(instance: Instance, uid: str = "9") -> None:
    async with instance.turns.of(uid):
        pass


async def test_calls_for_one_claim_come_one_after_the_other(tmp_path: Path) -> None:
    """In their order; nothing of a claim is kept afterwards."""
    instance, order = Instance(tmp_path), list[str]()

    async def use(name: str) -> None:
        async with instance.turns.of("1"):
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)

    await asyncio.gather(*(use(f"{n}") for n in range(5)))
    assert order == [f"{n // 2}" for n in range(10)]
    assert not instance.turns._locks
    assert not instance.turns._calls


async def test_a_long_turn_ends_for_another_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that come without a pause do not keep the lock for ever."""
    monkeypatch.setattr(claim_turns, "TURN_LIMIT", 0.0)
    monkeypatch.setattr(claim_turns, "_PAUSE", 0.0)
    first, second = Instance(tmp_path), Instance(tmp_path)
    inside, leave = asyncio.Event(), asyncio.Event()

    async def use() -> None:
        async with first.turns.of("1"):
            inside.set()
            await leave.wait()

    using = asyncio.create_task(use())
    await inside.wait()
    other = asyncio.create_task(anext_turn(second))
    late = asyncio.create_task(anext_turn(first, "2"))
    await until(lambda: first.turns._door.locked() and second.turns._door.locked())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not late.done(), "it waits for the next turn"
    monkeypatch.undo()
    leave.set()
    await other
    await asyncio.gather(using, late)
    assert first.begun == 2


async def test_an_error_at_the_begin_of_a_turn_releases_the_lock(tmp_path: Path) -> None:
    """The next call tries again."""
    instance = Instance(tmp_path)

    async def fail() -> None:
        raise OSError("not now")

    instance.turns._begin = fail
    with pytest.raises(OSError, match="not now"):
        await anext_turn(instance)
    instance.turns._begin = instance.begin
    await anext_turn(instance)
    assert instance.begun == 1
