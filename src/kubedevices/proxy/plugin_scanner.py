"""The plugin of another vendor as a scanner: its lists become device trees, its calls abilities.

A resource has one scanner as long as the proxy runs, while instances of the plugin come and go. A
new instance replaces the older one when it has sent its first list, so that the kubelet gets no
empty list in between. While no instance is connected, the tree stays: this scanner is the one owner
of what the plugin said last, for every chain of rules over it. `hold` decides what a node gets.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from kubedevices.errors import ListsUseTooMuch, RegistrationError
from kubedevices.node.arrival.endpoint import (
    INSTANCE_LIMIT,
    Endpoint,
    PluginTimeouts,
)
from kubedevices.node.arrival.list_memory import KeptList, PluginLists
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.plugin import hook_threads
from kubedevices.plugin.device_list import MAX_LIST_SIZE
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner
from kubedevices.proxy.foreign_list import ForeignList, patch_list, read_list
from kubedevices.proxy.plugin_calls import CallLimits, PluginCalls
from kubedevices.rules.presence import Presence
from kubedevices.values.allocation import PluginOptions
from kubedevices.values.device import Device, ReportedDevice
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.resource_name import ResourceName
from kubedevices.wire.peers import NOBODY

_log = logging.getLogger(__name__)

_REOPEN_FOR = 300.0
"""Seconds for which a lost stream is opened again: the grace period of a kubelet."""

_LARGE_LIST = 256
"""Devices; longer lists are read in a thread."""


class PluginScanner(Scanner):
    """The lists and calls of the plugin of `resource`. For one event loop.

    `options_changed` is called when a new instance offers other calls than the older instance:
    only a new registration tells a kubelet. `list_changed` is called at each new list, and when the
    plugin leaves or returns. `is_useless` is called when no instance and no list is left,
    `has_first_list` when the first list arrives.
    """

    def __init__(
        self,
        resource: ResourceName,
        limits: CallLimits = CallLimits(),  # noqa: B008 - a frozen value
        *,
        lists: PluginLists | None = None,
    ) -> None:
        self.resource = resource
        self.options = PluginOptions()
        self.limits, self._lists = limits, lists or PluginLists()
        self.options_changed: Callable[[], None] = lambda: None
        self.list_changed: Callable[[], None] = lambda: None
        self.is_useless: Callable[[], None] = lambda: None
        self.has_first_list: Callable[[], None] = lambda: None
        self.peer = NOBODY
        """The process that served the newest instance."""

        self.is_repaired = self.has_options = True
        self.is_announced = False
        """Whether the proxy knows this scanner."""

        self.presence = Presence()
        self.has_list = False
        """Whether `list` and `options` are those of the plugin, from now or before a reboot."""

        self.list = ForeignList()
        self._message = b""
        self._listing: Endpoint | None = None
        self._instances: list[Endpoint] = []
        self._tasks: dict[Endpoint, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._notifier: Notifier | None = None
        self._generation = 0

    def __repr__(self) -> str:
        return f"<PluginScanner {self.resource} {'here' if self.is_here else 'away'}>"

    @property
    def is_here(self) -> bool:
        """Whether an instance of the plugin is connected and has sent its list."""
        return self._listing is not None

    def away_since(self, now: float) -> float:
        """Return since when the plugin is away, in the loop's time; `now` while it is connected."""
        since = self.presence.away_since(now)
        return now if since is None else since

    @property
    def socket(self) -> Path | None:
        """The socket of the instance that answers now."""
        current = self.current()
        return current.socket if current else None

    def current(self) -> Endpoint | None:
        """Return the instance that answers calls now: the newest that has sent a list.

        If no instance with a list is connected, return the newest instance, or None.
        """
        if self._listing is not None and not self._listing.is_stopped:
            return self._listing
        return next((each for each in reversed(self._instances) if not each.is_stopped), None)

    def restore(self, devices: Iterable[Device], options: PluginOptions) -> None:
        """Begin with a list from before a restart; the plugin counts as away."""
        self.list, self.options = ForeignList((), {each.id: each for each in devices}), options
        self.has_list = True
        kept = KeptList(self._lists, str(self.resource), NOBODY)
        kept.on_end = self._drop_restored
        self._lists.show(str(self.resource), kept)
        kept.disconnect()  # only this resource keeps it
        with contextlib.suppress(ListsUseTooMuch):  # then it was dropped
            kept.replace(sum(map(len, self.list.devices)), len(self.list.devices))

    # ------------------------------------------------------------ a scanner

    async def scan(self, notifier: Notifier) -> None:
        """Report the last list, then every new list; may be called again after it has ended."""
        self._notifier = notifier
        self._report()
        try:
            await notifier.wait_stopped()
        finally:
            if self._notifier is notifier:
                self._notifier = None

    def abilities_of(self, device_type: str) -> PluginCalls:
        """Return the calls that the plugin offers."""
        del device_type
        return PluginCalls(str(self.resource), self.options, self.current, self.limits)

    # ------------------------------------------------------------ instances

    async def connect(
        self,
        socket: Path,
        *,
        dial: float = 10,
        check: Callable[[Endpoint], None] = lambda _: None,
    ) -> None:
        """Connect to an instance that registered; raises `RegistrationError`.

        `check` may refuse the instance by an error. The older instance stays in use until this
        instance has sent a list.
        """
        allocate, preferred, pre_start = self.limits
        endpoint = Endpoint(
            str(self.resource),
            socket,
            timeouts=PluginTimeouts(dial, dial, preferred, allocate, pre_start),
            receive_limit=MAX_LIST_SIZE,
            lists=self._lists,
            needs_options=not self.is_repaired,
        )
        await endpoint.connect()
        try:
            check(endpoint)
        except RegistrationError:
            await endpoint.close()
            raise
        endpoint.kept.on_end = partial(self._drop, endpoint)
        self.peer = endpoint.peer
        self.has_options = endpoint.has_options
        if self.options != endpoint.options:
            self.options = endpoint.options
            self.options_changed()
        if any(map(endpoint.repeats, self._instances)):
            _log.info("%s: its plugin registered again at %s", self.resource, socket.name)
            await endpoint.close()
            return
        self._generation += 1
        endpoint.generation = self._generation
        self._instances.append(endpoint)
        self._tasks[endpoint] = asyncio.create_task(
            self._follow(endpoint), name=f"lists of {self.resource} inside"
        )
        _log.info("%s: its plugin registered at %s", self.resource, socket.name)
        for old in self._instances[:-INSTANCE_LIMIT]:
            _log.warning(
                "%s: more than %d instances, closing the oldest", self.resource, INSTANCE_LIMIT
            )
            self._retire(old)

    def disconnect(self, socket: Path) -> None:
        """Close every instance at `socket`, because its registration socket was removed."""
        for endpoint in [each for each in self._instances if each.socket == socket]:
            self.stream_ended(endpoint, "its socket was removed")
            self._retire(endpoint)

    def _drop(self, endpoint: Endpoint, reason: str) -> None:
        """Disconnect an instance whose list uses too much memory, and forget its devices."""
        _log.warning("%s", reason)
        if self._lists.is_shown(endpoint.kept):
            self._forget_list()
        self.stream_ended(endpoint, reason)
        self._retire(endpoint)

    def _drop_restored(self, reason: str) -> None:
        """Forget a list from before a restart, because it uses too much memory."""
        _log.warning("%s", reason)
        self._forget_list()
        if not self._instances:
            self.is_useless()

    def _forget_list(self) -> None:
        self._lists.forget(str(self.resource))
        self.list, self._message = ForeignList(), b""
        self._report()
        self.has_list = False

    def abandon(self) -> None:
        """Forget the list and every instance."""
        self._forget_list()
        for endpoint in [*self._instances]:
            self._retire(endpoint)

    async def _follow(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.follow(self, reopen_for=_REOPEN_FOR)
        except Exception as error:  # after a bug in this code, the plugin must not look healthy
            _log.exception("%r: reading its lists failed", endpoint)
            self.stream_ended(endpoint, f"internal error: {error}")
        self._retire(endpoint)

    async def list_received(
        self,
        endpoint: Endpoint,
        devices: tuple[ReportedDevice, ...],
        slices: LoopSlices,
        message: bytes,
    ) -> bool:
        """Use a new list, unless a newer instance has sent one; return whether it is news."""
        del slices
        if not self._may_replace_list(endpoint):
            return False
        read = patch_list(devices, self.list)
        if read is None and len(devices) > _LARGE_LIST:
            # If the instance is replaced or ends while the thread reads, this task is cancelled.
            read = await hook_threads.call(read_list, devices, self.list)
        elif read is None:
            read = read_list(devices, self.list)
        is_new, is_first = message != self._message, not self.has_list
        self.list, self._message, self._listing, self.has_list = read, message, endpoint, True
        self._lists.show(str(self.resource), endpoint.kept)
        # Only now, with the new list in force: the end of an older instance removes no device.
        for old in self._instances[: self._instances.index(endpoint)]:
            self._retire(old)
        self.presence.arrive()
        if is_first:
            self.has_first_list()
        self._report()
        return is_new

    def _may_replace_list(self, endpoint: Endpoint) -> bool:
        listing = self._listing
        return endpoint in self._instances and (
            listing is None or listing.generation <= endpoint.generation
        )

    def stream_ended(self, endpoint: Endpoint, reason: str) -> bool:
        """Note that `endpoint` has no stream; return whether the stream may be opened again."""
        # Also if it is not stopped yet, because we end it: it must not count as the current one.
        endpoint.is_stopped = True
        if endpoint is self._listing:
            self._listing = None
        if self._listing is None and self.current() is None and not self.presence.is_away:
            _log.warning("%s: its plugin is gone: %s", self.resource, reason)
            self.presence.leave()
            self._report()
        return endpoint in self._instances

    def _report(self) -> None:
        """Report the last list. Other middleware asks `presence` whether the plugin is away."""
        self.list_changed()
        if self._notifier is None or not self.has_list:
            return
        tree = DeviceTree()
        tree.put_list(self.resource.device_type, self.list.devices, self._message)
        self._notifier.notify(tree)

    def _retire(self, endpoint: Endpoint) -> None:
        """Remove `endpoint`, and close it when its open calls have ended."""
        if endpoint in self._instances:
            self._instances.remove(endpoint)
        task = self._tasks.pop(endpoint, None)
        if task is None:
            return
        if task is not asyncio.current_task():
            task.cancel()
        closing = asyncio.create_task(
            endpoint.close(grace=max(self.limits)), name=f"closing {endpoint!r}"
        )
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        if not self._instances and not self.has_list:
            self.is_useless()

    async def close(self) -> None:
        """Close every connection, and forget the list."""
        self._lists.forget(str(self.resource))
        endpoints, tasks = [*self._instances], [*self._tasks.values()]
        self._instances.clear()
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.end_closing()
        await asyncio.gather(*(each.close() for each in endpoints), return_exceptions=True)

    async def end_closing(self) -> None:
        """Close connections at once that wait for the end of their calls."""
        closing = [*self._closing]
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)
