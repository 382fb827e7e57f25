"""Several coroutines at once: all results in order, or the first error after a cancellation."""

import asyncio

import pytest

from kubedevices.node.admission.concurrency import concurrently
from tests.waiting import until


async def test_results_come_in_order() -> None:
    """The order of the arguments counts, not the order in which they end."""
    gate = asyncio.Event()

    async def second() -> int:
        gate.set()
        return 2

    async def first() -> int:
        await gate.wait()
        return 1

    assert await concurrently([first(), second()]) == [1, 2]


async def test_one_failure_cancels_the_others_and_is_raised() -> None:
    """The error is not in a group. The other coroutines have ended before it is raised."""
    ended = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("hang")

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await concurrently([hang(), fail()])
    assert ended == ["hang"]


async def test_of_several_failures_the_first_in_order_is_raised() -> None:
    """So the message for a pod does not depend on which plugin was faster."""

    async def fail(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ValueError, match="first"):
        await concurrently([fail("first"), fail("second")])


async def test_a_single_coroutine_is_awaited() -> None:
    """Its error is raised unchanged."""

    async def fail() -> None:
        raise ValueError("alone")

    with pytest.raises(ValueError, match="alone"):
        await concurrently([fail()])


async def test_a_cancelled_caller_cancels_all() -> None:
    """No coroutine runs on after its caller ended."""
    started, ended = [], []

    async def hang() -> None:
        started.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    both = asyncio.ensure_future(concurrently([hang(), hang()]))
    await until(lambda: len(started) == 2)
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
    assert len(ended) == 2
