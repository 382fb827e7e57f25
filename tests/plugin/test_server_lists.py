"""ListAndWatch of one resource, read directly."""

import asyncio

import kubedevices as kd
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from tests.server_rig import UNHEALTHY, Reader, Served, reading, widgets
from tests.waiting import until


async def test_a_stream_begins_with_the_whole_list() -> None:
    """The first message is the real list, and there is no empty one before it."""
    served = Served(devices=widgets("w1", "w2"))
    async with reading(served.server) as reader:
        await until(lambda: reader.seen)
        assert reader.seen == [{"w1": "Healthy", "w2": "Healthy"}]


async def test_every_stream_has_its_own_cursor() -> None:
    """Two streams opened at different times each get the current list and every newer one."""
    served = Served(devices=widgets("w1"))
    async with reading(served.server) as first:
        await until(lambda: len(first.seen) == 1)
        served.publish(*widgets("w1", "w2"))
        await until(lambda: len(first.seen) == 2)
        async with reading(served.server) as second:
            await until(lambda: len(second.seen) == 1)
            served.publish(*widgets("w1", health=UNHEALTHY))
            await until(lambda: len(first.seen) == 3 and len(second.seen) == 2)
            last = {"w1": "Unhealthy"}
            assert first.seen[-1] == second.seen[-1] == last
            assert len(second.seen) == 2


async def test_a_slow_reader_skips_what_is_out_of_date() -> None:
    """A stream that is read late gets the newest list, not those in between."""
    served = Served(devices=widgets("w0"))
    stream = served.server.list_and_watch()
    assert len(device_list_from_wire(await anext(stream))) == 1
    for count in range(2, 50):
        served.publish(*widgets(*(f"w{n}" for n in range(count))))
    assert len(device_list_from_wire(await anext(stream))) == 49


async def test_an_equal_list_is_not_sent_again() -> None:
    """What the node cannot see (paths, environment, reason) or what changed back sends nothing."""
    served = Served(devices=widgets("w1"))
    async with reading(served.server) as reader:
        await until(lambda: len(reader.seen) == 1)
        served.publish(kd.Device("w1", env={"NEW": "1"}))
        served.publish(kd.Device("w1", reason="new"))
        served.publish(*widgets("w1", health=UNHEALTHY))
        served.publish(*widgets("w1"))  # before the stream had time to send the one before
        await asyncio.sleep(0.05)
        served.publish(*widgets("w2"))
        await until(lambda: len(reader.seen) == 2)
        assert reader.seen == [{"w1": "Healthy"}, {"w2": "Healthy"}]
    assert served.server.counts["lists_sent"] == 2


async def test_bursts_are_merged_when_asked_for() -> None:
    """With an interval, the first list goes at once and a burst becomes one message."""
    served = Served(devices=widgets("w0"), min_update_interval=0.2)
    loop = asyncio.get_running_loop()
    started = loop.time()  # before the first list: on a busy machine it is read late
    async with reading(served.server) as reader:
        await until(lambda: len(reader.seen) == 1)
        for n in range(1, 20):
            served.publish(*widgets(f"w{n}"))
            await asyncio.sleep(0.001)
        await until(lambda: reader.seen[-1] == {"w19": "Healthy"})
        took = loop.time() - started
        assert took > 0.1
        assert reader.seen[0] == {"w0": "Healthy"}
        # Two lists, unless a busy machine needs more than an interval for the burst.
        assert len(reader.seen) <= 2 + took // 0.2


async def test_the_end_of_one_stream_changes_nothing_for_another() -> None:
    """A stream that is cancelled takes no update away from the others."""
    served = Served(devices=widgets("w0"))
    async with reading(served.server) as staying:
        for n in range(1, 6):
            leaving = Reader(served.server)
            await until(lambda r=leaving: r.seen)  # type: ignore[misc]
            await leaving.close()
            served.publish(*widgets(f"w{n}"))
            await until(lambda n=n: len(staying.seen) == n + 1)  # type: ignore[misc]
        assert len(served.server.streams) == 1
    assert len(served.server.streams) == 0
    assert served.server.streams.opened == 6


async def test_the_server_can_end_streams() -> None:
    """When the socket is given up every open stream ends by itself; a later one is not affected."""
    served = Served(devices=widgets("w0"))
    old = served.server.list_and_watch()
    await anext(old)
    waiting = asyncio.ensure_future(anext(old, b"end"))
    await asyncio.sleep(0)
    served.server.end_streams()
    new = served.server.list_and_watch()
    assert len(device_list_from_wire(await anext(new))) == 1
    assert await waiting == b"end"
    served.publish(*widgets("w1", "w2"))
    assert len(device_list_from_wire(await anext(new))) == 2


async def test_a_stream_that_holds_back_updates_ends_as_quickly() -> None:
    """Or a kubelet would see the old stream end after the new registration, and drop that."""
    served = Served(devices=widgets("w0"), min_update_interval=60)
    async with reading(served.server) as reader:
        await until(lambda: reader.seen)
        served.publish(*widgets("w1"))
        served.server.end_streams()
        await until(lambda: not len(served.server.streams), 5)
        assert reader.seen == [{"w0": "Healthy"}]


async def test_streams_are_counted_from_a_mark() -> None:
    """Streams opened before a registration do not count for it; each change is told."""
    served = Served(devices=widgets("w0"))
    streams = served.server.streams
    told = []
    streams.on_change = lambda: told.append(len(streams))
    async with reading(served.server) as old:
        await until(lambda: old.seen)
        mark = streams.opened
        assert streams.count_after(mark) == 0
        async with reading(served.server) as new:
            await until(lambda: new.seen)
            assert streams.count_after(mark) == 1
            assert streams.count_after(0) == 2
        assert streams.count_after(mark) == 0
    assert told == [1, 2, 1, 0]
