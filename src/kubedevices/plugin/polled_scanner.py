"""Calls the author's function again and again: `PolledScanner`, with pauses and failures."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable
from typing import Literal, TypeAlias, get_args

from kubedevices.errors import NotADeviceTree, ScanFailed, UsageError
from kubedevices.host import deadlines
from kubedevices.plugin import hook_threads
from kubedevices.plugin.author_errors import describe
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.stoppable import call_on
from kubedevices.values.device_tree import DeviceTree

OnError: TypeAlias = Literal["keep", "empty", "raise"]

_CONSEQUENCES = {
    "keep": "the devices found before stay",
    "empty": "no device is left until it works again",
}

_log = logging.getLogger(__name__)


class PolledScanner(Scanner):
    """Calls `list_devices` every `interval` seconds.

    If the first call of `list_devices` fails, the plugin ends with its error. `on_error` says what
    happens after later failures. They are counted in `failed_scans` and logged ever more rarely.
    """

    interval: float = 5.0
    """Seconds between the end of one scan and the start of the next."""

    jitter: float = 0.0
    """Up to so many seconds are added at random, so that nodes do not scan at the same time."""

    on_error: OnError = "keep"
    """After a failure, `keep` the devices found before, report every type `empty`, or `raise`."""

    slow_scan: float = 60.0
    """Seconds after which the log says that a scan still runs."""

    failed_scans: int = 0
    """Number of scans that failed."""

    last_scan_seconds: float | None = None
    """How long the last successful scan took."""

    # Class attributes, because a subclass need not call our constructor.
    _loop: asyncio.AbstractEventLoop | None = None
    _wake: asyncio.Event | None = None
    _types: tuple[str, ...] = ()

    @abstractmethod
    def list_devices(self) -> DeviceTree | Awaitable[DeviceTree]:
        """Return all devices that are present now. May block; an `async def` must not."""

    def trigger(self) -> None:
        """Scan again at once, before the end of the interval. From any thread."""
        if self._wake is not None:
            call_on(self._loop, self._wake.set)

    async def scan(self, notifier: Notifier) -> None:
        """Scan until cancelled."""
        self._check_interval()
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        failures = 0
        while True:
            self._wake.clear()
            try:
                await self._scan_once(notifier)
            except Exception as error:
                if not notifier.has_tree or self.on_error == "raise":
                    raise ScanFailed(type(self).__name__, describe(error)) from error
                failures += 1
                self.failed_scans += 1
                self._log_failure(failures, error)
                if self.on_error == "empty":
                    notifier.notify(DeviceTree(dict.fromkeys(self._types, ())))
            else:
                if failures:
                    _log.info("%s works again (%d had failed)", type(self).__name__, failures)
                failures = 0
            await self._pause(self._wake)

    async def _scan_once(self, notifier: Notifier) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        slow = loop.call_later(self.slow_scan, self._log_slow, notifier.has_tree)
        try:
            tree: object = await hook_threads.call(self.list_devices)
        finally:
            slow.cancel()
        self.last_scan_seconds = loop.time() - started
        if not isinstance(tree, DeviceTree):
            raise NotADeviceTree(f"{type(self).__name__}.list_devices()", tree)
        # For `on_error="empty"`: a type must stay in the tree, else it is not served any more.
        self._types = tuple(tree)
        # In a thread: the comparison of two large trees takes a while, too.
        await hook_threads.call(notifier.notify, tree)

    async def _pause(self, wake: asyncio.Event) -> None:
        pause = self.interval
        if self.jitter:
            from random import uniform  # noqa: PLC0415 - needs memory, and few scanners have a jitter

            pause += uniform(0, self.jitter)
        await deadlines.within(pause, wake.wait())

    def _check_interval(self) -> None:
        name = type(self).__name__
        if not isinstance(self.interval, int | float) or not self.interval > 0:
            raise UsageError(f"{name}.interval must be more than 0 seconds, not {self.interval!r}")
        if self.on_error not in get_args(OnError):
            raise UsageError(f"{name}.on_error must be keep, empty or raise, not {self.on_error!r}")
        if not isinstance(self.jitter, int | float) or not self.jitter >= 0:
            raise UsageError(f"{name}.jitter must be 0 seconds or more, not {self.jitter!r}")

    def _log_slow(self, has_devices: bool) -> None:
        _log.warning(
            "%s.list_devices() has been running for %g s: %s",
            type(self).__name__, self.slow_scan,
            _CONSEQUENCES["keep"] if has_devices else "nothing is served until it returns",
        )  # fmt: skip

    def _log_failure(self, failures: int, error: Exception) -> None:
        if failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, 8th … in a row
            _log.warning(
                "%s failed (%d in a row), %s: %s",
                type(self).__name__, failures, _CONSEQUENCES[self.on_error], describe(error),
            )  # fmt: skip
