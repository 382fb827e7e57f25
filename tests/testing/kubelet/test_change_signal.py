"""`ChangeSignal`: waiting for a condition until somebody calls `notify`."""

import asyncio

from kubedevices.testing.kubelet.change_signal import ChangeSignal


async def test_a_true_condition_needs_no_notification() -> None:
    """The condition is evaluated before the wait."""
    assert await ChangeSignal().until(lambda: True, 0.01)


async def test_a_notification_wakes_all_waiting_tasks() -> None:
    """All waiting tasks evaluate their conditions; only those with a true condition continue."""
    change_signal, facts = ChangeSignal(), set[str]()
    first = asyncio.create_task(change_signal.until(lambda: "a" in facts, 5))
    second = asyncio.create_task(change_signal.until(lambda: "b" in facts, 0.2))
    await asyncio.sleep(0)
    facts.add("a")
    change_signal.notify()
    assert await first is True
    assert await second is False


async def test_a_condition_that_became_true_without_a_notification_counts() -> None:
    """The condition is evaluated once more at the deadline."""
    facts: list[int] = []
    asyncio.get_running_loop().call_later(0.01, facts.append, 1)
    assert await ChangeSignal().until(lambda: facts, 0.1)


async def test_a_condition_that_nobody_notifies_is_looked_at_from_time_to_time() -> None:
    """Long before the deadline, which is longer than the limit of a test."""
    facts: list[int] = []
    asyncio.get_running_loop().call_later(0.01, facts.append, 1)
    assert await ChangeSignal(look_every=0.01).until(lambda: facts, 1000)
