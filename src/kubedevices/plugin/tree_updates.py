"""The event loop's end of a `Notifier`: waits for the next change. For the runner and `scan`.

Apart from `notifier`, because that one is pure and may be called from any thread.
"""

import asyncio

from kubedevices.device_tree import DeviceTree, TreeChange
from kubedevices.plugin.notifier import Notifier


class TreeUpdates:
    """Made on the running loop; gives `notifier` to a scanner and its changes to one consumer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._is_first = True
        self.notifier = Notifier(self._wake, self._stopped.wait)

    async def next(self) -> tuple[DeviceTree, TreeChange]:
        """Wait until the tree differs from the tree returned last; return the tree and the change.

        The first tree counts as news even if it is empty: there may be something to tidy up.

        Cancelling loses nothing: the change is there for the next call.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            # Cleared before the take: a tree that arrives in between wakes us again.
            tree, change = self.notifier.take()
            if self._is_first or not change.is_empty:
                self._is_first = False
                return tree, change

    async def first_tree(self) -> DeviceTree:
        """Wait for the first tree, even an empty one. Instead of `next`, not beside it."""
        await self._changed.wait()
        return self.notifier.take()[0]

    def stop(self) -> None:
        """Let `Notifier.wait_stopped` return. On the loop."""
        self._stopped.set()

    def _wake(self) -> None:
        try:
            # Called in the scanner's thread, where an asyncio.Event must not be set.
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:  # the loop is closed: a scan that was left behind has come to an end
            return
