"""A queue of the pods whose devices changed their health, for a reporter of pod statuses
(KEP-4680).

The kubelet finds the pods by device ID alone, in all resources. It reports nothing if a device
vanishes or if the plugin is lost. Here the resource counts too, and both are reported.
"""

import logging
from collections.abc import AsyncIterator, Iterable

from kubedevices.node.events import EventKind, EventSource, EventStream, NodeEvent
from kubedevices.node.pods.pod_devices import PodDevices

logger = logging.getLogger(__name__)

# The length of the kubelet's channel. The kubelet drops updates if the channel is full.
QUEUE_LIMIT = 100


class HealthUpdates:
    """Sets of pod uids, one per change of devices; `QUEUE_LIMIT` sets at most are stored."""

    def __init__(self, events: EventSource, pod_devices: PodDevices) -> None:
        self._pod_devices = pod_devices
        self._queue: list[frozenset[str]] = []
        self._events = events
        self._wake: EventStream = events.subscribe(1)
        events.listen(self._take)

    def __aiter__(self) -> AsyncIterator[frozenset[str]]:
        return self

    async def __anext__(self) -> frozenset[str]:
        while not self._queue:
            await anext(self._wake)
        return self._queue.pop(0)

    def close(self) -> None:
        """Stop following the events."""
        self._events.unlisten(self._take)
        self._wake.close()

    def _take(self, event: NodeEvent) -> None:
        pods = self._pod_devices.owners(event.resource, self._changed(event))
        if not pods:
            return
        if len(self._queue) >= QUEUE_LIMIT:
            logger.warning(
                "device update channel is full: no health update for pods %s", sorted(pods)
            )
            return
        self._queue.append(frozenset(pods))

    def _changed(self, event: NodeEvent) -> Iterable[str]:
        match event.kind:
            case EventKind.HEALTH_CHANGED:
                return list(event.details["devices"])
            case EventKind.LIST_CHANGED:
                return [*event.details["appeared"], *event.details["vanished"]]
            # No plugin lists the devices of the resource now. The kubelet reports nothing here.
            case EventKind.DISCONNECTED | EventKind.REMOVED:
                return self._pod_devices.reserved().get(event.resource, ())
        return ()
