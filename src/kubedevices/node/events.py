"""The events of a node, and the streams that bring events to their readers.

Readers are `kubedevices node`, `devices --watch` and tests. A slow reader never delays the device
manager: the reader loses the oldest events, and gets an event with their number.
"""

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

# Unread events of a stream at most, because the device manager never waits for a reader.
BACKLOG = 10_000


class EventKind(enum.StrEnum):
    """Every kind of event, as it is printed."""

    REGISTERED = "registered"
    REFUSED = "refused"
    LIST_CHANGED = "list changed"
    HEALTH_CHANGED = "health changed"
    ALLOCATED = "allocated"
    REJECTED = "rejected"
    RELEASED = "released"
    DISCONNECTED = "disconnected"
    REMOVED = "removed"
    DAMAGED = "damaged"
    MISSED = "missed"


class NodeEvent(NamedTuple):
    """One event. `details` has the further values of its kind, as values for JSON."""

    kind: EventKind
    resource: str = ""
    pod: str = ""
    details: Mapping[str, Any] = MappingProxyType({})

    def as_dict(self) -> dict[str, Any]:
        """Return the event as a JSON object, without empty values."""
        parts = {"event": str(self.kind), "resource": self.resource, "pod": self.pod}
        return {key: value for key, value in parts.items() if value} | {**self.details}


class EventStream:
    """The events from the creation of the stream until the stream or its source is closed.

    `backlog` has the events that were not read yet.
    """

    def __init__(self, source: "EventSource", backlog: int) -> None:
        self._source, self._limit = source, backlog
        self.backlog: deque[NodeEvent] = deque()
        self._missed = 0
        self._arrived = asyncio.Event()
        self._closed = False

    def put(self, event: NodeEvent) -> None:
        """Add an event; if the backlog is full, the oldest event is dropped."""
        if len(self.backlog) >= self._limit:
            self.backlog.popleft()
            self._missed += 1
        self.backlog.append(event)
        self._arrived.set()

    def clear(self) -> None:
        """Drop the unread events, for a reader that looks at the current state."""
        self.backlog.clear()
        self._missed = 0

    def close(self) -> None:
        """End the iteration after the unread events."""
        self._closed = True
        self._source.remove(self)
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[NodeEvent]:
        """Iterate over the events in the order of their arrival."""
        return self

    async def __anext__(self) -> NodeEvent:
        # The backlog is checked before `_closed`, so unread events are returned after the end.
        while not self.backlog:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        if self._missed:
            missed, self._missed = self._missed, 0
            return NodeEvent(EventKind.MISSED, details={"events": missed})
        return self.backlog.popleft()

    def __enter__(self) -> Self:
        """Use as a context manager, so that the stream is closed."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EventSource:
    """Gives every event to every open stream, and calls every listener."""

    def __init__(self) -> None:
        self._streams: set[EventStream] = set()
        self._listeners: list[Callable[[NodeEvent], None]] = []

    def listen(self, listener: Callable[[NodeEvent], None]) -> None:
        """Call `listener` with every event, before the streams get it."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[NodeEvent], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.remove(listener)

    def publish(self, event: NodeEvent) -> None:
        """Give `event` to every stream that is open now."""
        # A copy, because a listener may call `unlisten` for itself.
        for listener in [*self._listeners]:
            listener(event)
        for stream in self._streams:
            stream.put(event)

    def subscribe(self, backlog: int = BACKLOG) -> EventStream:
        """Return a stream of all events from now on."""
        stream = EventStream(self, backlog)
        self._streams.add(stream)
        return stream

    def remove(self, stream: EventStream) -> None:
        """Remove `stream`, if it is open."""
        self._streams.discard(stream)

    def close(self) -> None:
        """End every stream."""
        for stream in tuple(self._streams):
            stream.close()
