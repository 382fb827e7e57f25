"""Events reach every listener, and no listener holds up the source."""

import asyncio

from kubedevices.node.events import EventKind, EventSource, NodeEvent


def event(n: int) -> NodeEvent:
    return NodeEvent(EventKind.LIST_CHANGED, f"example.com/r{n}")


async def test_every_stream_gets_every_event_from_its_subscription_on() -> None:
    """Two listeners each get all events, none from before."""
    source = EventSource()
    source.publish(event(0))
    with source.subscribe() as first, source.subscribe() as second:
        source.publish(event(1))
        source.publish(event(2))
        for stream in (first, second):
            assert [await anext(stream), await anext(stream)] == [event(1), event(2)]


async def test_a_reader_that_waits_is_woken() -> None:
    """An event published later ends the wait."""
    source = EventSource()
    with source.subscribe() as stream:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert not waiting.done()
        source.publish(event(1))
        assert await asyncio.wait_for(waiting, 5) == event(1)


async def test_a_slow_reader_loses_the_oldest_and_is_told_how_many() -> None:
    """Memory stays bounded, and the gap is visible."""
    source = EventSource()
    with source.subscribe(backlog=2) as stream:
        for n in range(5):
            source.publish(event(n))
        assert await anext(stream) == NodeEvent(EventKind.MISSED, details={"events": 3})
        assert [await anext(stream), await anext(stream)] == [event(3), event(4)]


async def test_a_closed_source_ends_its_streams_after_what_arrived() -> None:
    """A listener that iterates comes to an end when the node stops."""
    source = EventSource()
    stream = source.subscribe()
    source.publish(event(1))
    source.close()
    source.publish(event(2))
    assert [e async for e in stream] == [event(1)]


def test_an_event_as_json_leaves_out_what_is_empty() -> None:
    """`-o json` prints kind, resource or pod, and the details of the kind."""
    made = NodeEvent(EventKind.RELEASED, pod="default/p", details={"devices": 2})
    assert made.as_dict() == {"event": "released", "pod": "default/p", "devices": 2}
