"""Takes device trees from a scanner and says what changed. `Scanner.scan` gets a `Notifier`.

Pure: it uses no event loop. `plugin.scan_task` connects it with the event loop.
"""

import logging
import threading
from collections.abc import Awaitable, Callable

from kubedevices.errors import NotADeviceTree
from kubedevices.values.device_tree import DeviceTree, TreeChange, compare_trees

ID_LIMIT = 63
"""Most characters of a device ID by the device plugin API; no kubelet enforces this limit."""

_log = logging.getLogger(__name__)


class Notifier:
    """Stores the newest tree until the framework takes it; never waits for the framework.

    `on_change` is called in the notifying thread when a new tree can be taken (`take`), once until
    it is taken. Without `wait_stopped`, as in a test of a scanner, the plugin counts as stopped.
    """

    def __init__(
        self,
        on_change: Callable[[], None] | None = None,
        wait_stopped: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._on_change, self._wait_stopped = on_change, wait_stopped
        self._lock = threading.Lock()
        # The scanner's thread writes `_latest`; only the event loop's thread uses `_taken`.
        self._latest: DeviceTree | None = None
        self._taken = DeviceTree()
        self._is_announced = False
        self._long_ids: frozenset[tuple[str, str]] = frozenset()

    def notify(self, tree: DeviceTree) -> None:
        """Report all devices that are present now. From any thread; returns at once.

        The tree is copied, so the caller may change it afterwards. An equal tree changes nothing.
        """
        if not isinstance(tree, DeviceTree):
            raise NotADeviceTree("notify()", tree)
        with self._lock:
            before = self._latest
            # Equal devices stay the same objects, which makes later comparisons quick.
            latest = tree.snapshot(reuse=before)
            if before is not None and latest == before:
                return
            if not latest.is_notified:  # else the notifier of an inner scanner warned already
                self._warn_of_long_ids(latest)
                latest.is_notified = True
            self._latest = latest
        # After `_latest` is set: a `take` in between gets the new tree, and at worst `on_change`
        # is called once more.
        if not self._is_announced:
            self._is_announced = True
            if self._on_change is not None:
                self._on_change()

    @property
    def has_tree(self) -> bool:
        """Whether the scanner has reported a tree, also an empty tree."""
        return self._latest is not None

    def take(self) -> tuple[DeviceTree, TreeChange]:
        """Return the newest tree and what changed since the last `take`. For one caller only.

        The first change is relative to an empty tree. Trees in between are skipped.
        """
        self._is_announced = False
        # The flag is cleared before the tree is read: a tree that comes in between causes another
        # `on_change`.
        before, latest = self._taken, self._latest
        if latest is not None:
            self._taken = latest
        return self._taken, compare_trees(before, self._taken)

    async def wait_stopped(self) -> None:
        """Wait until the plugin stops; for a scanner that has nothing more to report."""
        if self._wait_stopped is not None:
            await self._wait_stopped()

    def _warn_of_long_ids(self, tree: DeviceTree) -> None:
        """Warn of each ID that is longer than the API allows, once while the device exists."""
        long_ids = frozenset(
            (device_type, device_id)
            for device_type in tree
            if max(map(len, tree.devices(device_type)), default=0) > ID_LIMIT
            for device_id in tree.devices(device_type)
            if len(device_id) > ID_LIMIT
        )
        for device_type, device_id in sorted(long_ids - self._long_ids):
            _log.warning(
                "%s: the ID %r has %d characters; the device plugin API says at most %d",
                device_type, device_id, len(device_id), ID_LIMIT,
            )  # fmt: skip
        self._long_ids = long_ids
