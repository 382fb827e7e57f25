"""What happens on a node, as values, and the streams that carry them to whoever listens.

For `kubedevices node`, `devices --watch` and tests. A listener that does not read loses the oldest
events and is told how many; it never holds up the device manager.
"""

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

# Events that a slow listener may be behind: a bound, because nobody waits for a listener.
BACKLOG = 10_000


class EventKind(enum.StrEnum):
    """Every kind of event, in the words of the output."""

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
    """One event; `details` holds what the kind has beside the resource or the pod, JSON-ready."""

    kind: EventKind
    resource: str = ""
    pod: str = ""
    details: Mapping[str, Any] = MappingProxyType({})

    def as_dict(self) -> dict[str, Any]:
        """Return the event as JSON would have it; what is empty is left out."""
        parts = {"event": str(self.kind), "resource": self.resource, "pod": self.pod}
        return {key: value for key, value in parts.items() if value} | {**self.details}


class EventStream:
    """The events from the moment it was made until it or its source is closed.

    `backlog` holds what has arrived and was not read yet.
    """

    def __init__(self, source: "EventSource", backlog: int) -> None:
        self._source, self._limit = source, backlog
        self.backlog: deque[NodeEvent] = deque()
        self._missed = 0
        self._arrived = asyncio.Event()
        self._closed = False

    def put(self, event: NodeEvent) -> None:
        """Take an event; the oldest goes when the reader is too far behind."""
        if len(self.backlog) >= self._limit:
            self.backlog.popleft()
            self._missed += 1
        self.backlog.append(event)
        self._arrived.set()

    def clear(self) -> None:
        """Forget what has arrived, for a reader that looks at the present anyway."""
        self.backlog.clear()
        self._missed = 0

    def close(self) -> None:
        """End the iteration after what has already arrived."""
        self._closed = True
        self._source.remove(self)
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[NodeEvent]:
        """Iterate over the events as they come."""
        return self

    async def __anext__(self) -> NodeEvent:
        # Asked before `_closed`: what has arrived is still given out after the end.
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
    """Hands every event to every open stream, and calls every listener."""

    def __init__(self) -> None:
        self._streams: set[EventStream] = set()
        self._listeners: list[Callable[[NodeEvent], None]] = []

    def listen(self, listener: Callable[[NodeEvent], None]) -> None:
        """Call `listener` with every event, before the streams get it."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[NodeEvent], None]) -> None:
        """Do so no longer."""
        self._listeners.remove(listener)

    def publish(self, event: NodeEvent) -> None:
        """Give `event` to every stream that is open now."""
        # A copy: a listener may end its own listening while it is called.
        for listener in [*self._listeners]:
            listener(event)
        for stream in self._streams:
            stream.put(event)

    def subscribe(self, backlog: int = BACKLOG) -> EventStream:
        """Return a stream of everything from now on."""
        stream = EventStream(self, backlog)
        self._streams.add(stream)
        return stream

    def remove(self, stream: EventStream) -> None:
        """Forget `stream`; harmless when it is unknown."""
        self._streams.discard(stream)

    def close(self) -> None:
        """End every stream."""
        for stream in tuple(self._streams):
            stream.close()
