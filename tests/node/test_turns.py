"""One thing after the other per key."""

import asyncio

import pytest

from kubedevices.node.turns import Turns
from tests.waiting import until


async def test_the_same_key_waits_and_another_does_not() -> None:
    """The second piece of work on a key starts when the first has ended."""
    turns, gate, log = Turns(), asyncio.Event(), []

    async def work(name: str) -> str:
        log.append(name)
        await gate.wait()
        return name

    tasks = [
        asyncio.ensure_future(turns.take(key, lambda name=name: work(name)))  # type: ignore[misc]
        for key, name in (("k", "first"), ("k", "second"), ("other", "third"))
    ]
    await until(lambda: len(log) == 2)
    assert log == ["first", "third"]
    assert turns.is_taken("k")
    gate.set()
    assert await asyncio.gather(*tasks) == ["first", "second", "third"]
    assert not turns.is_taken("k")


async def test_work_gives_way_only_if_it_said_so() -> None:
    """The caller of work that gave way sees a cancellation that was not its own."""
    turns, gate = Turns(), asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    stays = asyncio.ensure_future(turns.take("stays", work))
    goes = asyncio.ensure_future(turns.take("goes", work, gives_way=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for key in ("stays", "goes", "nobody"):
        turns.make_way(key)
    with pytest.raises(asyncio.CancelledError):
        await goes
    gate.set()
    assert await stays == "done"


async def test_cancelling_the_caller_ends_the_work() -> None:
    """The turn is free only when the work has ended."""
    turns, ended = Turns(), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    task = asyncio.ensure_future(turns.take("k", work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
    assert not turns.is_taken("k")


async def test_everything_can_be_cancelled() -> None:
    """For the end of the device manager."""
    turns = Turns()
    await turns.cancel_all()
    tasks = [asyncio.ensure_future(turns.take(key, asyncio.Event().wait)) for key in ("a", "b")]
    await asyncio.sleep(0)
    await turns.cancel_all()
    for task in tasks:
        with pytest.raises(asyncio.CancelledError):
            await task
