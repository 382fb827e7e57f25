"""The loop's end of a notifier."""

import asyncio
import threading

import pytest

from kubedevices.plugin.scan_task import TreeUpdates
from kubedevices.values.device_tree import DeviceTree, TreeChange
from tests.widgets import tree_of


async def test_a_report_from_a_thread_wakes_the_consumer() -> None:
    """A thread notifies in a way the loop notices, and the consumer gets tree and change."""
    asyncio.get_running_loop().set_debug(True)  # refuses what is not thread-safe
    updates = TreeUpdates()
    waiting = asyncio.create_task(updates.next())
    await asyncio.sleep(0)
    thread = threading.Thread(target=updates.notifier.notify, args=(tree_of("w"),))
    thread.start()
    tree, change = await asyncio.wait_for(waiting, 10)
    thread.join()
    assert (tree, change) == (tree_of("w"), TreeChange(added=("widget",)))


async def test_only_changes_are_returned() -> None:
    """An empty first tree is to be known once; a way there and back is nothing to act upon."""
    updates = TreeUpdates()
    updates.notifier.notify(DeviceTree())
    assert await asyncio.wait_for(updates.next(), 10) == (DeviceTree(), TreeChange())
    waiting = asyncio.create_task(updates.next())
    await asyncio.sleep(0)
    updates.notifier.notify(tree_of("w"))
    updates.notifier.notify(DeviceTree())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    updates.notifier.notify(tree_of("w"))
    assert (await asyncio.wait_for(waiting, 10))[1] == TreeChange(added=("widget",))


async def test_cancelling_loses_nothing() -> None:
    """A change that was announced to a cancelled consumer is there for the next."""
    updates = TreeUpdates()
    waiting = asyncio.create_task(updates.next())
    await asyncio.sleep(0)
    updates.notifier.notify(tree_of("w"))
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (await asyncio.wait_for(updates.next(), 10))[0] == tree_of("w")


async def test_the_first_tree_may_be_empty() -> None:
    """Whoever wants one scan only gets it even when nothing was found."""
    updates = TreeUpdates()
    updates.notifier.notify(DeviceTree())
    assert await asyncio.wait_for(updates.first_tree(), 10) == DeviceTree()


async def test_stopping_releases_the_scanner() -> None:
    """A scanner with nothing more to say waits until the plugin ends."""
    updates = TreeUpdates()
    waiting = asyncio.create_task(updates.notifier.wait_stopped())
    await asyncio.sleep(0)
    assert not waiting.done()
    updates.stop()
    await asyncio.wait_for(waiting, 10)


def test_a_report_after_the_loop_is_gone_is_ignored() -> None:
    """A scan that was left behind may still report."""

    async def make() -> TreeUpdates:
        return TreeUpdates()

    updates = asyncio.run(make())
    updates.notifier.notify(tree_of("w"))
    assert updates.notifier.has_tree


@pytest.mark.parametrize("devices", [8])
async def test_a_thousand_reports_do_not_stop_the_loop(devices: int) -> None:
    """While one consumer does not look, reports go on and the latest one is there."""
    updates = TreeUpdates()
    for turn in range(1000):
        updates.notifier.notify(tree_of(*(f"w{turn}-{n}" for n in range(devices))))
    tree, _ = await asyncio.wait_for(updates.next(), 10)
    assert "w999-0" in tree.devices("widget")
