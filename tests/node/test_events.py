"""Every listener gets every event, and no listener blocks the node."""

import asyncio

from kubedevices.node.events import EventKind, EventSource, NodeEvent


def event(n: int) -> NodeEvent:
    return NodeEvent(EventKind.LIST_CHANGED, f"example.com/r{n}")


async def test_a_stream_has_every_event_since_its_subscription() -> None:
    """Two listeners each get all events, and no event from before their subscription."""
    source = EventSource()
    source.publish(event(0))
    with source.subscribe() as first, source.subscribe() as second:
        source.publish(event(1))
        source.publish(event(2))
        for stream in (first, second):
            assert [await anext(stream), await anext(stream)] == [event(1), event(2)]


async def test_a_new_event_wakes_a_waiting_reader() -> None:
    """The reader waits before the event is published."""
    source = EventSource()
    with source.subscribe() as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert not waiting.done()
        source.publish(event(1))
        assert await asyncio.wait_for(waiting, 5) == event(1)


async def test_a_slow_reader_loses_the_oldest_events_and_gets_their_number() -> None:
    """This bounds the memory, and the reader knows how many events are missing."""
    source = EventSource()
    with source.subscribe(backlog=2) as stream:
        for n in range(5):
            source.publish(event(n))
        assert await anext(stream) == NodeEvent(EventKind.MISSED, details={"events": 3})
        assert [await anext(stream), await anext(stream)] == [event(3), event(4)]


async def test_a_stream_ends_after_its_last_event_when_the_source_is_closed() -> None:
    """A listener that iterates ends when the node stops."""
    source = EventSource()
    stream = source.subscribe()
    source.publish(event(1))
    source.close()
    source.publish(event(2))
    assert [e async for e in stream] == [event(1)]


def test_an_event_as_json_has_no_empty_fields() -> None:
    """`-o json` prints kind, resource or pod, and the details of the kind."""
    made = NodeEvent(EventKind.RELEASED, pod="default/p", details={"devices": 2})
    assert made.as_dict() == {"event": "released", "pod": "default/p", "devices": 2}
