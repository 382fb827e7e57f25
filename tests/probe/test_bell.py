"""Waiting for a condition that somebody rings about."""

import asyncio

from kubedevices.probe.bell import Bell


async def test_a_condition_that_holds_needs_no_ring() -> None:
    """It is looked at before anything is waited for."""
    assert await Bell().until(lambda: True, 0.01)


async def test_a_ring_makes_everybody_look() -> None:
    """All who wait look again; only those whose condition holds go on."""
    bell, facts = Bell(), set[str]()
    first = asyncio.create_task(bell.until(lambda: "a" in facts, 5))
    second = asyncio.create_task(bell.until(lambda: "b" in facts, 0.2))
    await asyncio.sleep(0)
    facts.add("a")
    bell.ring()
    assert await first is True
    assert await second is False


async def test_a_condition_that_came_true_unnoticed_still_counts() -> None:
    """At the deadline it is looked at once more."""
    facts: list[int] = []
    asyncio.get_running_loop().call_later(0.01, facts.append, 1)
    assert await Bell().until(lambda: facts, 0.1)
