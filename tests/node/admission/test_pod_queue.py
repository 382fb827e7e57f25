"""The work for one key runs in sequence."""

import asyncio

import pytest

from kubedevices.errors import GivenUp
from kubedevices.node.admission.concurrency import PodQueue, to_its_end
from tests.waiting import until


async def test_work_on_the_same_key_waits_and_on_another_key_does_not() -> None:
    """The second piece of work on a key starts when the first has ended."""
    queue, gate, log = PodQueue(), asyncio.Event(), []

    async def work(name: str) -> str:
        log.append(name)
        await gate.wait()
        return name

    tasks = [
        asyncio.ensure_future(queue.take(key, lambda name=name: work(name)))  # type: ignore[misc]
        for key, name in (("k", "first"), ("k", "second"), ("other", "third"))
    ]
    await until(lambda: len(log) == 2)
    assert log == ["first", "third"]
    assert queue.is_taken("k")
    gate.set()
    assert await asyncio.gather(*tasks) == ["first", "second", "third"]
    assert not queue.is_taken("k")


async def test_only_cancellable_work_is_cancelled() -> None:
    """The caller of cancelled work gets GivenUp, because the caller itself was not cancelled."""
    queue, gate = PodQueue(), asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    stays = asyncio.ensure_future(queue.take("stays", work))
    goes = asyncio.ensure_future(queue.take("goes", work, can_be_cancelled=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for key in ("stays", "goes", "nobody"):
        queue.cancel_current(key)
    with pytest.raises(GivenUp):
        await goes
    gate.set()
    assert await stays == "done"


async def test_cancelling_the_caller_ends_the_work() -> None:
    """The key is free only when the work has ended."""
    queue, ended = PodQueue(), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    task = asyncio.ensure_future(queue.take("k", work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended
    assert not queue.is_taken("k")


async def test_close_cancels_all_work_until_open() -> None:
    """Work that runs, waits or comes later ends with GivenUp, until the queue is opened again."""
    queue = PodQueue()
    await queue.close()
    queue.open()
    tasks = [
        asyncio.ensure_future(queue.take(key, asyncio.Event().wait)) for key in ("a", "a", "b")
    ]
    await asyncio.sleep(0)
    await queue.close()
    for waiting in [*tasks, queue.take("c", asyncio.Event().wait)]:
        with pytest.raises(GivenUp):
            await waiting
    queue.open()
    assert await queue.take("a", lambda: asyncio.sleep(0, "done")) == "done"


@pytest.mark.parametrize("end", ["cancel_current", "close"])
async def test_work_that_ends_in_spite_of_a_cancel_is_answered(end: str) -> None:
    """The cancellation came too late: the caller gets the result."""
    queue, gate = PodQueue(), asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    task = asyncio.ensure_future(queue.take("k", lambda: to_its_end(work()), can_be_cancelled=True))
    await until(lambda: queue.is_taken("k"))
    await asyncio.sleep(0)
    closing = None
    if end == "close":
        closing = asyncio.ensure_future(queue.close())
    else:
        queue.cancel_current("k")
    await asyncio.sleep(0)
    gate.set()
    assert await task == "done"
    if closing is not None:
        await closing


async def test_a_cancelled_caller_gets_only_its_cancellation() -> None:
    """The caller gets CancelledError when the work has ended, also after several cancellations."""
    queue, gate, done = PodQueue(), asyncio.Event(), []

    async def work() -> None:
        await gate.wait()
        done.append(1)

    task = asyncio.ensure_future(queue.take("k", lambda: to_its_end(work())))
    await until(lambda: queue.is_taken("k"))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done
    assert not queue.is_taken("k")


async def test_work_that_cancels_itself_raises_the_cancellation() -> None:
    """At the end of the event loop no work can be finished any more."""

    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await to_its_end(give_up())
