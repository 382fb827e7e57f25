"""Every connected plugin instance, from its registration to the end of its stream.

Makes the connections, owns the task that reads each stream, and tells the inventory and whoever
listens what happened. An instance is found by resource and generation: what an old one does after
it was replaced makes no difference to the new one.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from kubedevices.device import Health, ReportedDevice
from kubedevices.errors import ListAndWatchEnded, TooManyPlugins
from kubedevices.node.arrival.endpoint import (
    INSTANCE_LIMIT,
    RECEIVE_LIMIT,
    Endpoint,
    PluginTimeouts,
)
from kubedevices.node.events import EventKind, EventSource, NodeEvent
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.inventory.list_plan import NO_CHANGE, ListChange, ListPlan
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.words import counted, some_of

logger = logging.getLogger(__name__)

PLUGIN_LIMIT = 400
"""Connections in all. Every one takes two open files, of which a process often has 1,024."""

# Seconds. A loop may run a timer early by the resolution of its clock, and the inventory gives a
# resource up only after more than the grace period.
_AFTER_GRACE = 0.005
_PLANS = 3
"""How often a list is compared anew because the devices changed meanwhile."""


class EndpointTable:
    """The endpoints of one node. Listens to each of them (`EndpointListener`)."""

    def __init__(
        self,
        inventory: Inventory,
        events: EventSource,
        *,
        expire: Callable[[], object],
        timeouts: PluginTimeouts | None = None,
        receive_limit: int = RECEIVE_LIMIT,
    ) -> None:
        self._inventory, self._events, self._expire = inventory, events, expire
        self._timeouts = timeouts or PluginTimeouts()
        self._receive_limit = receive_limit
        self._endpoints: dict[tuple[str, int], Endpoint] = {}
        # Dials under way. They count towards the limit, or many at once would go beyond it.
        self._connecting = 0
        self._readers: dict[Endpoint, asyncio.Task[None]] = {}
        # By the new instance, the older ones that are closed when its first list has come.
        self._replaced: dict[Endpoint, list[Endpoint]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._expiries: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """How many connections there are."""
        return len(self._readers)

    def find(self, resource: str) -> Endpoint | None:
        """Return the endpoint that answers calls for `resource`, if it is connected."""
        instance = self._inventory.endpoint(resource)
        return self._endpoints.get((resource, instance.generation)) if instance else None

    def _at(self, resource: str, socket: Path) -> list[Endpoint]:
        return [
            endpoint
            for (name, _), endpoint in self._endpoints.items()
            if name == resource and endpoint.socket == socket
        ]

    # ------------------------------------------------------------ plugins come

    def expect(self, resource: str) -> None:
        """Know a resource from before our start: its plugin has the grace period to come back."""
        now = asyncio.get_running_loop().time()
        self._inventory.restore(resource, now)
        self._schedule_expiry(resource, now)

    async def connect(self, resource: str, socket: Path) -> None:
        """Connect to a plugin that registered; raises `RegistrationError`.

        Nothing changes for the older instance until the new instance has answered.
        """
        connections = len(self._endpoints) + self._connecting
        # A known resource passes: its plugin restarts, and the connection before goes.
        if connections >= PLUGIN_LIMIT and self._inventory.record(resource) is None:
            raise TooManyPlugins(resource, PLUGIN_LIMIT)
        self._connecting += 1
        try:
            endpoint = await Endpoint.connect(
                resource,
                socket,
                timeouts=self._timeouts,
                receive_limit=self._receive_limit,
            )
        finally:
            self._connecting -= 1
        # No await from here to the start of the reader: whatever counts in the inventory has a
        # reader.
        connected = self._inventory.connect(resource, endpoint.options, str(socket))
        endpoint.generation = connected.generation
        for generation in connected.replaced:
            if old := self._endpoints.pop((resource, generation), None):
                self._replace(old, endpoint)
        self._endpoints[resource, endpoint.generation] = endpoint
        self._readers[endpoint] = asyncio.create_task(
            self._read(endpoint), name=f"lists of {resource} #{endpoint.generation}"
        )
        self._bound(resource)
        logger.info("%s: registered, %s", resource, socket.name)
        self._events.publish(
            NodeEvent(EventKind.REGISTERED, resource, details={"socket": socket.name})
        )

    def _replace(self, old: Endpoint, new: Endpoint) -> None:
        """Close `old` after the first list of `new`: some plugins count their streams.

        An instance that never sent a list itself is closed at once.
        """
        heirs = self._replaced.setdefault(new, [])
        heirs += self._replaced.pop(old, [])
        if old.has_listed:
            heirs.append(old)
        else:
            self._close(old)

    def _bound(self, resource: str) -> None:
        generations = sorted(generation for name, generation in self._endpoints if name == resource)
        for generation in generations[:-INSTANCE_LIMIT]:
            logger.warning(
                "%s: more than %d instances, closing the oldest", resource, INSTANCE_LIMIT
            )
            endpoint = self._endpoints[resource, generation]
            self._lose(endpoint, "too many instances are registered")
            self._close(endpoint)

    # ------------------------------------------------------------ what they say

    async def list_received(
        self,
        endpoint: Endpoint,
        devices: tuple[ReportedDevice, ...],
        slices: LoopSlices,
        _message: bytes = b"",
    ) -> bool:
        """Take a list of `endpoint`; the lists of replaced instances are ignored."""
        plan = await self._plan(endpoint.resource, devices, slices)
        is_news = self._take(endpoint, devices, plan)
        if plan is not None and plan.change is not NO_CHANGE:
            await slices.run(plan.let_go())
        return is_news

    async def _plan(
        self, resource: str, devices: tuple[ReportedDevice, ...], slices: LoopSlices
    ) -> ListPlan | None:
        """Compare the list in slices; None if it has to be compared in one step."""
        plan = None
        for _ in range(_PLANS):
            record = self._inventory.record(resource)
            if record is None:
                return None
            plan = record.devices.plan(devices)
            await slices.run(plan.steps())
            if not plan.is_stale():
                break
        return plan

    def _take(
        self, endpoint: Endpoint, devices: tuple[ReportedDevice, ...], plan: ListPlan | None
    ) -> bool:
        resource = endpoint.resource
        record = self._inventory.record(resource)
        # Read before the report, which sets it.
        is_first = record is None or not record.is_listed
        change = self._inventory.report(resource, endpoint.generation, devices, plan)
        for old in self._replaced.pop(endpoint, ()):
            self._close(old)
        if change is None:
            return False
        # The devices changed after the plan was made, so the list was compared again in one piece.
        if plan is None or plan.change is not change:
            plan = None
        if not change.is_empty:
            words = plan.words if plan else {device.health for device in devices}
            _warn_of_oddities(resource, change, words)
        self._publish(resource, change, plan.healths if plan else None, is_first=is_first)
        return is_first or not change.is_empty

    def stream_ended(self, endpoint: Endpoint, reason: str) -> bool:
        """Take note that `endpoint` is gone; say whether it may come back by itself."""
        logger.info("%s", ListAndWatchEnded(endpoint.resource, reason))
        self._lose(endpoint, reason)
        return self._endpoints.get((endpoint.resource, endpoint.generation)) is endpoint

    def _lose(self, endpoint: Endpoint, reason: str) -> None:
        """Only the end of the last instance of a resource has consequences."""
        resource = endpoint.resource
        now = asyncio.get_running_loop().time()
        change = self._inventory.disconnect(resource, endpoint.generation, now)
        if change is None:
            logger.debug("%r ended: %s", endpoint, reason)
            return
        logger.info("%s: disconnected, %s", resource, reason)
        record = self._inventory.record(resource)
        if record is None or record.stopped_at is None:  # another instance took over
            self._publish(resource, change, is_first=False)
            return
        self._schedule_expiry(resource, record.stopped_at)
        self._events.publish(
            NodeEvent(
                EventKind.DISCONNECTED,
                resource,
                details={"reason": reason, "devices": len(change.changed)},
            )
        )

    def _publish(
        self,
        resource: str,
        change: ListChange,
        healths: Mapping[str, str] | None = None,
        *,
        is_first: bool,
    ) -> None:
        """Tell what changed; `healths` are those of `change.changed`, if they are known."""
        record = self._inventory.record(resource)
        if record is None:
            return
        totals = {"capacity": record.devices.capacity, "allocatable": record.devices.allocatable}
        if is_first or change.appeared or change.vanished or change.moved:
            lists = {
                "appeared": list(change.appeared),
                "vanished": list(change.vanished),
                "moved": list(change.moved),
            }
            details: dict[str, object] = {**totals, **lists}
            self._events.publish(NodeEvent(EventKind.LIST_CHANGED, resource, details=details))
        if change.changed:
            if healths is None:
                healths = {each: str(record.devices.health(each)) for each in change.changed}
            details = {**totals, "devices": healths}
            self._events.publish(NodeEvent(EventKind.HEALTH_CHANGED, resource, details=details))

    # ------------------------------------------------------------ plugins go

    def disconnect(self, resource: str, socket: Path, reason: str = "its socket is gone") -> None:
        """Close every instance at `socket`; other instances of the resource stay."""
        for endpoint in self._at(resource, socket):
            self._lose(endpoint, reason)
            self._close(endpoint)

    async def _read(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.follow(self, reopen_for=self._inventory.grace_period)
        except Exception as error:  # a bug of ours must not look like a healthy plugin
            logger.exception("%r: reading its lists failed", endpoint)
            self._lose(endpoint, f"internal error: {error}")
        self._close(endpoint)

    def _close(self, endpoint: Endpoint) -> None:
        """Let go of `endpoint` for good, after the calls it is still answering."""
        key = (endpoint.resource, endpoint.generation)
        # Out of the table first: no new call reaches an instance that only finishes its old ones.
        if self._endpoints.get(key) is endpoint:
            del self._endpoints[key]
            self._inventory.forget(*key)
        for old in self._replaced.pop(endpoint, ()):
            self._close(old)
        reader = self._readers.pop(endpoint, None)
        if reader is None:
            return
        # `_read` ends here by itself: to cancel it would cancel this very call.
        if reader is not asyncio.current_task():
            reader.cancel()
        closing = asyncio.create_task(
            endpoint.close(grace=self._timeouts.allocate), name=f"closing {endpoint!r}"
        )
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every connection; the devices of all plugins are unhealthy from now on."""
        readers, self._readers = self._readers, {}
        for endpoint, reader in readers.items():
            reader.cancel()
            self._lose(endpoint, "the node stops")
        for resource in [*self._expiries]:
            self._cancel_expiry(resource)
        self._endpoints.clear()
        self._replaced.clear()
        closing = [*self._closing]
        for task in closing:
            task.cancel()
        await asyncio.gather(
            *readers.values(),
            *closing,
            *(endpoint.close() for endpoint in readers),
            return_exceptions=True,
        )

    # ------------------------------------------------------------ the grace period

    def _schedule_expiry(self, resource: str, stopped_at: float) -> None:
        self._cancel_expiry(resource)
        when = stopped_at + self._inventory.grace_period + _AFTER_GRACE
        loop = asyncio.get_running_loop()
        self._expiries[resource] = loop.call_at(when, self._expire_now, resource)

    def _expire_now(self, resource: str) -> None:
        del self._expiries[resource]
        self._expire()

    def _cancel_expiry(self, resource: str) -> None:
        if timer := self._expiries.pop(resource, None):
            timer.cancel()


def _warn_of_oddities(resource: str, change: ListChange, words: Collection[str]) -> None:
    if change.duplicates:
        twice = counted(change.duplicates, "device")
        logger.warning("%s: the list names %s twice", resource, twice)
    if odd := {*words} - set(Health):
        logger.warning(
            "%s: health %s counts as %s, a kubelet knows %s",
            resource,
            some_of(sorted(map(repr, odd))),
            Health.UNHEALTHY,
            " and ".join(Health),
        )
