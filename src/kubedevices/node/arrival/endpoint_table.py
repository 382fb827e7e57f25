"""Every connected plugin instance, from its registration to the end of its stream.

The table connects to plugins, owns the task that reads each stream, and reports lists and losses to
the inventory and as events. The key of an instance is its resource and its generation, so a
replaced instance cannot change the state of the instance that replaced it.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from kubedevices.errors import ListAndWatchEnded, TooManyPlugins
from kubedevices.errors.words import counted, some_of
from kubedevices.node.arrival.endpoint import (
    INSTANCE_LIMIT,
    Endpoint,
    PluginTimeouts,
)
from kubedevices.node.arrival.list_memory import PluginLists
from kubedevices.node.events import EventKind, EventSource, NodeEvent
from kubedevices.node.inventory.inventory import Inventory
from kubedevices.node.inventory.list_plan import NO_CHANGE, ListChange, ListPlan
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.values.device import Health, ReportedDevice
from kubedevices.wire.unix_grpc import Peer

logger = logging.getLogger(__name__)

PLUGIN_LIMIT, PLUGINS_OF_PEER = 400, 200
"""Connections in all, and with one process or container. Each connection needs two open files; many
processes may open 1,024.
"""

# Seconds. An event loop may run a timer early by the resolution of its clock, but the inventory
# removes a resource only if more than the grace period has passed.
_AFTER_GRACE = 0.005
_PLANS = 3
"""How often a list is compared in slices if the devices change during the comparison."""


class EndpointTable:
    """The endpoints of one node. The table is the `EndpointListener` of each endpoint."""

    def __init__(
        self,
        inventory: Inventory,
        events: EventSource,
        *,
        expire: Callable[[], object],
        timeouts: PluginTimeouts,
        receive_limit: int,
    ) -> None:
        self._inventory, self._events, self._expire = inventory, events, expire
        self._timeouts, self._receive_limit = timeouts, receive_limit
        self._lists = PluginLists()
        self._endpoints: dict[tuple[str, int], Endpoint] = {}
        self._readers: dict[Endpoint, asyncio.Task[None]] = {}
        # New instance → the older instances that are closed when its first list has arrived.
        self._replaced: dict[Endpoint, list[Endpoint]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._expiries: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._readers)

    def find(self, resource: str) -> Endpoint | None:
        """Return the endpoint to call for `resource`, None if no instance is connected."""
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
        """Add a resource from before the start; its plugin may register within the grace period."""
        now = asyncio.get_running_loop().time()
        self._inventory.restore(resource, now)
        self._schedule_expiry(resource, now)

    async def connect(self, resource: str, socket: Path) -> None:
        """Connect to a plugin that registered; raises `RegistrationError`.

        The older instance stays until the new instance has answered.
        """
        self._check_room(resource)
        endpoint = Endpoint(
            resource,
            socket,
            timeouts=self._timeouts,
            receive_limit=self._receive_limit,
            lists=self._lists,
        )
        await endpoint.connect()
        try:
            # Again: only now we know its process, and others may have connected meanwhile.
            self._check_room(resource, endpoint.peer)
        except TooManyPlugins:
            await endpoint.close()
            raise
        if any(map(endpoint.repeats, self._at(resource, socket))):
            logger.info("%s: registered again, %s", resource, socket.name)
            await endpoint.close()
            return
        # No await from here to the start of the reader: every instance in the inventory must have a
        # reader, which reports its end.
        connected = self._inventory.connect(resource, endpoint.options, str(socket))
        endpoint.generation = connected.generation
        for generation in connected.replaced:
            if old := self._endpoints.pop((resource, generation), None):
                self._replace(old, endpoint)
        self._endpoints[resource, endpoint.generation] = endpoint
        endpoint.kept.on_end = partial(self._drop, endpoint)
        self._readers[endpoint] = asyncio.create_task(
            self._read(endpoint), name=f"lists of {resource} #{endpoint.generation}"
        )
        self._close_oldest(resource)
        logger.info("%s: registered, %s", resource, socket.name)
        self._events.publish(
            NodeEvent(EventKind.REGISTERED, resource, details={"socket": socket.name})
        )

    def _check_room(self, resource: str, peer: Peer | None = None) -> None:
        # A known resource is accepted: its plugin restarts, and its older connection ends. But a
        # process with many resources does not get those of others too.
        if self._inventory.record(resource) is None and len(self._endpoints) >= PLUGIN_LIMIT:
            raise TooManyPlugins(resource, PLUGIN_LIMIT)
        if peer is not None and peer.is_known:
            same = [
                name for (name, _), each in self._endpoints.items() if each.peer.key == peer.key
            ]
            if len(same) >= PLUGINS_OF_PEER and resource not in same:
                raise TooManyPlugins(resource, PLUGINS_OF_PEER, " of one process")

    def _replace(self, old: Endpoint, new: Endpoint) -> None:
        """Close `old` after the first list of `new`: some plugins exit when they have no stream.

        An instance that has sent no list is closed at once.
        """
        heirs = self._replaced.setdefault(new, [])
        heirs += self._replaced.pop(old, [])
        if old.has_listed:
            heirs.append(old)
        else:
            self._close(old)

    def _close_oldest(self, resource: str) -> None:
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
        """Apply a list of `endpoint`. Lists of replaced instances are ignored."""
        plan = await self._plan(endpoint.resource, devices, slices)
        is_news = self._take(endpoint, devices, plan)
        if plan is not None and plan.change is not NO_CHANGE:
            await slices.run(plan.free_old())
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
        # Before the report, which sets `is_listed`.
        is_first = record is None or not record.is_listed
        change = self._inventory.report(resource, endpoint.generation, devices, plan)
        for old in self._replaced.pop(endpoint, ()):
            self._close(old)
        if change is None:
            return False
        self._lists.show(resource, endpoint.kept)
        # The plan was stale, because the devices changed after it was made: the list was compared
        # again in one step.
        if plan is None or plan.change is not change:
            plan = None
        if not change.is_empty:
            words = plan.words if plan else {device.health for device in devices}
            _warn_of_mistakes(resource, change, words)
        self._publish(resource, change, plan.healths if plan else None, is_first=is_first)
        return is_first or not change.is_empty

    def stream_ended(self, endpoint: Endpoint, reason: str) -> bool:
        """Record that the stream of `endpoint` ended; return whether it may open a new stream."""
        logger.info("%s", ListAndWatchEnded(endpoint.resource, reason))
        self._lose(endpoint, reason)
        return self._endpoints.get((endpoint.resource, endpoint.generation)) is endpoint

    def _lose(self, endpoint: Endpoint, reason: str) -> None:
        """Record a lost instance; only the loss of the last instance changes the devices."""
        resource = endpoint.resource
        now = asyncio.get_running_loop().time()
        change = self._inventory.disconnect(resource, endpoint.generation, now)
        if change is None:
            logger.debug("%r ended: %s", endpoint, reason)
            return
        logger.info("%s: disconnected, %s", resource, reason)
        record = self._inventory.record(resource)
        if record is not None and record.serving is not None and record.serving.is_live:
            heir = self._endpoints[resource, record.serving.generation]
            self._lists.show(resource, heir.kept)
        if record is None or record.stopped_at is None:  # another instance serves the resource
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
        """Publish a change; `healths` has the health of each `change.changed` device, if known."""
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
        """Close every instance at `socket`; other instances of the resource stay connected."""
        for endpoint in self._at(resource, socket):
            self._lose(endpoint, reason)
            self._close(endpoint)

    def _drop(self, endpoint: Endpoint, reason: str) -> None:
        """Disconnect an instance whose list uses too much memory, and forget its devices."""
        logger.warning("%s", reason)
        self._lose(endpoint, reason)
        self._close(endpoint)
        record = self._inventory.record(endpoint.resource)
        if record is not None and record.stopped_at is not None:
            record.stopped_at = -math.inf  # else its devices stay for the grace period
            self._expire_now(endpoint.resource)

    async def _read(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.follow(self, reopen_for=self._inventory.grace_period)
        except Exception as error:  # a defect of ours must not leave a plugin that looks healthy
            logger.exception("%r: reading its lists failed", endpoint)
            self._lose(endpoint, f"internal error: {error}")
        self._close(endpoint)

    def _close(self, endpoint: Endpoint) -> None:
        """Remove `endpoint`, and close its connection when its calls have ended."""
        key = (endpoint.resource, endpoint.generation)
        # Remove it from the table first, so that the instance gets no new calls.
        if self._endpoints.get(key) is endpoint:
            del self._endpoints[key]
            self._inventory.forget(*key)
        for old in self._replaced.pop(endpoint, ()):
            self._close(old)
        reader = self._readers.pop(endpoint, None)
        if reader is None:
            return
        # If `_read` is the caller, its task ends anyway; `cancel` would cancel this call.
        if reader is not asyncio.current_task():
            reader.cancel()
        closing = asyncio.create_task(
            endpoint.close(grace=self._timeouts.allocate), name=f"closing {endpoint!r}"
        )
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every connection; then the devices of all plugins are unhealthy."""
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
        self._cancel_expiry(resource)
        self._expire()
        if self._inventory.record(resource) is None:
            self._lists.forget(resource)

    def _cancel_expiry(self, resource: str) -> None:
        if timer := self._expiries.pop(resource, None):
            timer.cancel()


def _warn_of_mistakes(resource: str, change: ListChange, words: Collection[str]) -> None:
    if change.duplicates:
        twice = counted(change.duplicates, "device")
        logger.warning("%s: the list names %s twice", resource, twice)
    if unknown := {*words} - set(Health):
        logger.warning(
            "%s: health %s counts as %s; the kubelet knows %s",
            resource,
            some_of(sorted(map(repr, unknown))),
            Health.UNHEALTHY,
            " and ".join(Health),
        )
