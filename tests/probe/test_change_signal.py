"""Waiting for a condition that somebody rings about."""

import asyncio

from kubedevices.probe.change_signal import ChangeSignal


async def test_a_condition_that_holds_needs_no_ring() -> None:
    """It is looked at before anything is waited for."""
    assert await ChangeSignal().until(lambda: True, 0.01)


async def test_a_ring_makes_everybody_look() -> None:
    """All who wait look again; only those whose condition holds go on."""
    change_signal, facts = ChangeSignal(), set[str]()
    first = asyncio.create_task(change_signal.until(lambda: "a" in facts, 5))
    second = asyncio.create_task(change_signal.until(lambda: "b" in facts, 0.2))
    await asyncio.sleep(0)
    facts.add("a")
    change_signal.notify()
    assert await first is True
    assert await second is False


async def test_a_condition_that_came_true_unnoticed_still_counts() -> None:
    """At the deadline it is looked at once more."""
    facts: list[int] = []
    asyncio.get_running_loop().call_later(0.01, facts.append, 1)
    assert await ChangeSignal().until(lambda: facts, 0.1)
