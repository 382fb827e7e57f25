"""Ready scanners: `periodic` calls a function, `static` has one tree, `merge` joins scanners.

For plugins that need no class of their own, or that have several sources.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable

from kubedevices.errors import UsageError
from kubedevices.plugin import hook_threads
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.polled_scanner import OnError, PolledScanner
from kubedevices.plugin.scanner import Scanner
from kubedevices.values.device_tree import DeviceTree

_log = logging.getLogger(__name__)


def periodic(
    interval: float,
    find: Callable[[], DeviceTree | Awaitable[DeviceTree]],
    *,
    on_error: OnError = "keep",
    jitter: float = 0.0,
) -> PolledScanner:
    """Return a scanner that calls `find` every `interval` seconds, and at once on `trigger()`.

    `on_error` and `jitter` (seconds) mean the same as in `PolledScanner`.
    """
    return _Periodic(interval, find, on_error, jitter)


class _Periodic(PolledScanner):
    def __init__(
        self,
        interval: float,
        find: Callable[[], DeviceTree | Awaitable[DeviceTree]],
        on_error: OnError,
        jitter: float,
    ) -> None:
        self.interval, self.on_error, self.jitter = interval, on_error, jitter
        self._find = find

    def list_devices(self) -> DeviceTree | Awaitable[DeviceTree]:
        return self._find()


def static(tree: DeviceTree) -> Scanner:
    """Return a scanner that reports `tree` and never changes it."""
    return _Static(tree.snapshot())


class _Static(Scanner):
    def __init__(self, tree: DeviceTree) -> None:
        self._tree = tree

    async def scan(self, notifier: Notifier) -> None:
        notifier.notify(self._tree)
        await notifier.wait_stopped()


def merge(*scanners: Scanner) -> Scanner:
    """Return a scanner that reports the devices of all `scanners`, when each has reported once.

    Two scanners may report the same device type: the tree has the devices of both. If both have a
    device with the same ID, the device of the later scanner counts. The abilities of a type come
    from the first scanner that reports this type. If one scanner raises, all end. If one scanner
    returns, its devices stay.
    """
    if not scanners:
        raise UsageError("merge() needs at least one scanner")
    return _Merged(scanners)


class _Merged(Scanner):
    def __init__(self, scanners: tuple[Scanner, ...]) -> None:
        self._scanners = scanners
        self._trees: dict[int, DeviceTree] = {}
        self._doubles: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def abilities_of(self, device_type: str) -> object:
        for i, scanner in enumerate(self._scanners):
            if device_type in self._trees.get(i, ()):
                return scanner.abilities_of(device_type)
        return self

    async def scan(self, notifier: Notifier) -> None:
        tasks = [
            asyncio.create_task(
                hook_threads.call(scanner.scan, self._part_of(notifier, i)),
                name=f"scan {scanner.scanner_name}",
            )
            for i, scanner in enumerate(self._scanners)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _part_of(self, whole: Notifier, i: int) -> Notifier:
        def take() -> None:
            with self._lock:
                self._trees[i] = part.take()[0]
                if len(self._trees) == len(self._scanners):
                    whole.notify(self._merge())

        part = Notifier(take, whole.wait_stopped)
        return part

    def _merge(self) -> DeviceTree:
        trees = [tree for _, tree in sorted(self._trees.items())]
        merged = DeviceTree()
        for device_type in dict.fromkeys(name for tree in trees for name in tree):
            known = dict(trees[0].devices(device_type))
            for tree in trees[1:]:
                found = tree.devices(device_type)
                for device_id in found.keys() & known.keys():
                    self._warn_of_double(device_type, device_id)
                known.update(found)
            merged.declare(device_type)
            for device in known.values():
                merged.add(device_type, device)
        return merged

    def _warn_of_double(self, device_type: str, device_id: str) -> None:
        if (device_type, device_id) not in self._doubles:
            self._doubles.add((device_type, device_id))
            _log.warning(
                "%s: %s is reported by two scanners, the device of the later scanner counts",
                device_type,
                device_id,
            )
