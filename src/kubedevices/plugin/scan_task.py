"""Runs one scanner on the event loop: `scan` is its task, `TreeUpdates` waits for its trees.

For the code that runs a plugin: the runner, the DRA driver, the proxy and `kubedevices scan`.
`notifier` is a module of its own because it is pure and scanners call it from any thread.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from kubedevices.errors import InvalidDevice, KubedevicesError, ScanFailed, UsageError
from kubedevices.plugin import hook_threads
from kubedevices.plugin.author_errors import describe
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.stoppable import call_on
from kubedevices.values.device_tree import DeviceTree, TreeChange

_log = logging.getLogger(__name__)


class TreeUpdates:
    """Connects the `notifier` of a scanner with one consumer. Create it on the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._is_first = True
        self.notifier = Notifier(self._wake, self._stopped.wait)

    async def next(self) -> tuple[DeviceTree, TreeChange]:
        """Wait until the tree differs from the tree returned last; return the tree and the change.

        The first tree counts as a change even if it is empty: files of an earlier process may have
        to be removed. Cancelling loses nothing: the next call returns the change.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            # Cleared before the take: a tree that arrives in between sets the event again.
            tree, change = self.notifier.take()
            if self._is_first or not change.is_empty:
                self._is_first = False
                return tree, change

    async def first_tree(self) -> DeviceTree:
        """Wait for the first tree, even if it is empty. Do not call both this and `next`."""
        await self._changed.wait()
        return self.notifier.take()[0]

    def stop(self) -> None:
        """Let `Notifier.wait_stopped` return. Call it on the loop."""
        self._stopped.set()

    def _wake(self) -> None:
        # The scanner's thread calls this, and only the loop's thread may set an asyncio.Event.
        call_on(self._loop, self._changed.set)


def check_scanner(scanner: object) -> None:
    """Raise `UsageError` if `scanner` is not a `Scanner` object."""
    if not isinstance(scanner, Scanner):
        hint = f": write {scanner.__name__}()" if isinstance(scanner, type) else ""
        raise UsageError(f"a plugin needs a Scanner object, not {scanner!r}{hint}")


async def scan(scanner: Scanner, notifier: Notifier) -> None:
    """Run `scanner.scan` to its end. Raises `ScanFailed` if the author's code raises."""
    try:
        await hook_threads.call(scanner.scan, notifier)  # in a thread if it is a plain `def`
    except Exception as error:
        # `InvalidDevice` is a mistake of the author's code. Our other errors already say what is
        # wrong.
        if isinstance(error, KubedevicesError) and not isinstance(error, InvalidDevice):
            raise
        name = scanner.scanner_name
        raise ScanFailed(name, describe(error)) from error


@contextlib.asynccontextmanager
async def scanning(
    scanner: Scanner, grace: float
) -> AsyncIterator[tuple[TreeUpdates, "asyncio.Task[None]"]]:
    """Run `scan` as a task while the context lasts; yield its trees, and the task.

    At the end wait for it up to `grace` seconds, and log a scan that goes on.
    """
    updates = TreeUpdates()
    task = asyncio.create_task(scan(scanner, updates.notifier), name="scan")
    try:
        yield updates, task
    finally:
        updates.stop()
        task.cancel()
        await _await_end(task, scanner, grace)


async def end_of(task: "asyncio.Task[None]") -> None:
    """Wait for the end of a scan; a cancellation of this wait does not cancel the scan."""
    await asyncio.shield(task)


async def _await_end(task: "asyncio.Task[None]", scanner: Scanner, grace: float) -> None:
    await asyncio.wait({task}, timeout=grace)
    if not task.done():
        name = scanner.scanner_name
        _log.warning("%s.scan goes on although it was cancelled: not waiting for it", name)
    elif not task.cancelled() and (error := task.exception()):
        _log.debug("the scanner ended with an error", exc_info=error)
