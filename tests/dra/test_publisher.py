"""The publisher keeps the slices on the API server as the driver wants them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from kubedevices.dra import publisher as publisher_module
from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.publisher import Publisher, PublishTiming
from kubedevices.testing.api_server import ApiFault
from kubedevices.testing.api_server.http import ApiRequest
from kubedevices.values.scheduling.kinds import Object
from tests.dra.cluster import OneNode
from tests.waiting import until


def slices(*parts: str) -> list[list[Object]]:
    return [[{"name": name} for name in part.split()] for part in parts]


@contextlib.asynccontextmanager
async def publishing(
    server: OneNode, *parts: str, timing: PublishTiming | None = None
) -> AsyncIterator[Publisher]:
    publisher = Publisher(
        ApiClient(server.access), "example.com", "node1", timing or PublishTiming(0.01, 0.05)
    )
    if parts:
        publisher.publish(slices(*parts))
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()


async def test_unchanged_slices_are_written_once(server: OneNode) -> None:
    """One list confirms them, then one watch follows; there are no more reads and writes."""
    async with publishing(server, "a b", "c") as publisher:
        await until(lambda: server.watches)
        assert server.devices == [["a", "b"], ["c"]]
        assert len(server.requests) == 6
        assert server.writes == ["create", "create"]
        publisher.publish(slices("a b", "c"))  # the same again
        await asyncio.sleep(0)
        assert len(server.requests) == 6
        publisher.publish(slices("a b", "d"))
        await until(lambda: server.devices == [["a", "b"], ["d"]])
        await until(lambda: publisher.is_published)
        assert server.writes == ["create", "create", "update"]


async def test_obsolete_slices_are_deleted_before_others_change(server: OneNode) -> None:
    """One of the highest generation would count as a part of the pool."""
    async with publishing(server, "a", "b") as publisher:
        await until(lambda: publisher.is_published)
        publisher.publish(slices("c"))
        await until(lambda: publisher.is_published)
    assert server.devices == [["c"]]
    assert server.writes[2:] == ["delete", "update"]


async def test_a_device_may_be_in_a_slice_from_its_first_write_to_its_removal(
    server: OneNode,
) -> None:
    """The device plugin of the same scanner gets no device that a scheduler may still choose."""
    async with publishing(server) as publisher:
        assert publisher.may_have("any")
        publisher.assume_only(["old"])
        publisher.publish(slices("a"))
        assert [*map(publisher.may_have, ("old", "a", "b"))] == [True, True, False]
        await until(lambda: publisher.is_published)
        assert [*map(publisher.may_have, ("old", "a", "b"))] == [False, True, False]
        publisher.publish(slices("b"))
        assert [*map(publisher.may_have, ("old", "a", "b"))] == [False, True, True]
        await until(lambda: publisher.is_published)
        assert [*map(publisher.may_have, ("old", "a", "b"))] == [False, False, True]


async def test_nothing_is_published_before_the_first_tree(server: OneNode) -> None:
    """An empty tree counts: one empty slice says that the driver runs."""
    async with publishing(server) as publisher:
        await asyncio.sleep(0)
        assert not server.requests
        publisher.publish(slices(""))
        await until(lambda: publisher.is_published)
        assert server.devices == [[]]


async def test_slices_that_others_delete_are_created_again(server: OneNode) -> None:
    """A kubelet deletes them when it starts."""
    async with publishing(server, "a", "b") as publisher:
        await until(lambda: publisher.is_published)
        server.delete_slices_of_all()
        await until(lambda: server.devices == [["a"], ["b"]])


async def test_a_failed_call_is_tried_again(server: OneNode) -> None:
    """Conflicts, server errors, closed connections: one after the other, each logged once."""
    faults = [ApiFault(status) for status in (500, 0, 409, 404, 503, 500)]

    def fault(request: ApiRequest) -> ApiFault | None:
        return faults.pop() if faults and request.method in ("GET", "POST") else None

    server.fault = fault
    async with publishing(server, "a") as publisher:
        await until(lambda: publisher.is_published)
        assert server.devices == [["a"]]


async def test_retries_slow_down_while_the_server_is_unreachable(
    server: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    """The pause doubles up to its limit, and the same error is logged once."""
    server.fault = lambda _request: ApiFault(500, "no")
    async with publishing(server, "a") as publisher:
        await until(lambda: len(server.requests) > 10)
        server.fault = lambda _request: None
        await until(lambda: publisher.is_published)
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 1


@pytest.mark.parametrize(("retry_after", "pause"), [(1000, 0.01), (0, 1000)])
async def test_a_retry_waits_at_least_as_long_as_the_server_says(
    server: OneNode, retry_after: int, pause: float
) -> None:
    """429 with Retry-After: there is no call before, and none before the usual time."""
    server.fault = lambda _request: ApiFault(429, "slow down", retry_after=retry_after)
    async with publishing(server, "a", timing=PublishTiming(pause, pause)):
        await until(lambda: server.requests)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert len(server.requests) == 1


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Let no pause grow; return all so far: their length, and the failures before each."""
    found: list[tuple[float, int]] = []

    def note(first: float, _last: float, failures: int) -> float:
        found.append((first, failures))
        return first

    monkeypatch.setattr(publisher_module, "back_off", note)
    return found


RETRY, INVALID = 0.01, 0.02
BOTH = PublishTiming(RETRY, invalid=INVALID)


async def test_each_failure_in_a_row_makes_the_pause_longer(
    server: OneNode, pauses: list[tuple[float, int]]
) -> None:
    """Refusals and closed connections count together; after a quiet time they count anew."""
    faults = [ApiFault(500), ApiFault(0), ApiFault(500), ApiFault(0)]
    server.fault = lambda _request: faults.pop() if faults else None
    async with publishing(server, "a", timing=BOTH) as publisher:
        await until(lambda: server.watches == 1)
        assert pauses == [(RETRY, number) for number in range(4)]
        for watches, name in enumerate("bc", start=2):
            faults.append(ApiFault(500))
            pauses.clear()
            publisher.publish(slices(name))
            await until(lambda: server.watches == watches)  # noqa: B023
            assert pauses == [(RETRY, 0)]


async def test_each_change_by_another_client_in_a_row_makes_the_pause_longer(
    server: OneNode, pauses: list[tuple[float, int]]
) -> None:
    """Two clients that write the same slices would otherwise keep the server busy.

    A change after a long quiet time has a pause too: it may be a change on all nodes.
    """
    async with publishing(server, "a", timing=BOTH._replace(last_retry=0.0)):
        for number in range(3):
            await until(lambda: server.devices and server.watches > number)  # noqa: B023
            server.delete_slices_of_all()
        await until(lambda: len(pauses) == 3)
    assert pauses == [(RETRY, number) for number in range(3)]


async def test_each_invalid_answer_in_a_row_makes_the_long_pause_longer(
    server: OneNode, pauses: list[tuple[float, int]]
) -> None:
    """After a success it is the shortest again."""
    faults = [ApiFault(422), ApiFault(422)]

    def fault(request: ApiRequest) -> ApiFault | None:
        return faults.pop() if faults and request.method != "GET" else None

    server.fault = fault
    async with publishing(server, "a", timing=BOTH) as publisher:
        await until(lambda: publisher.is_published)
        faults.append(ApiFault(422))
        publisher.publish(slices("b"))
        await until(lambda: publisher.is_published)
    assert [number for kind, number in pauses if kind == INVALID] == [0, 1, 0]


LONG = PublishTiming(0.01, 0.05, invalid=3600, last_invalid=3600)


async def test_an_invalid_slice_is_sent_again_after_a_long_pause(
    server: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    """An administrator may have changed a policy. Other devices are sent at once."""
    caplog.set_level(logging.INFO)
    server.refuse("create", "resourceslices", 422, "too odd")
    async with publishing(server, "a", timing=LONG) as publisher:
        await until(lambda: server.watches)
        server.fault = lambda _request: None
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert server.writes == ["create"]
        publisher.publish(slices("b"))
        await until(lambda: server.devices == [["b"]])
    server.delete_slices_of_all()
    server.refuse("create", "resourceslices", 422, "too odd")
    quick = PublishTiming(0.01, 0.05, invalid=0.01, last_invalid=0.02)
    async with publishing(server, "a", timing=quick):
        await until(lambda: server.writes.count("create") > 6)
        server.fault = lambda _request: None
        await until(lambda: server.devices == [["a"]])
    assert caplog.text.count("too odd") == 2, "the same error again is not logged"


async def test_after_an_invalid_update_the_log_says_what_is_still_published(
    server: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Slices that others delete meanwhile are noticed."""
    async with publishing(server, "a b", timing=LONG) as publisher:
        await until(lambda: publisher.is_published)
        publisher.forget_server_state()
        server.refuse("update", "resourceslices", 422, "too odd")
        publisher.publish(slices("a c"))
        left = "the API server still has 1 slice with 2 devices from before"
        await until(lambda: left in caplog.text)
        assert [*map(publisher.may_have, "abcd")] == [True, True, True, False]
        server.delete_slices_of_all()
        await until(lambda: server.devices == [["a", "c"]])


async def test_what_is_left_on_the_server_is_logged_once_for_each_refused_change(
    server: OneNode, pauses: list[tuple[float, int]], caplog: pytest.LogCaptureFixture
) -> None:
    """Not at each attempt, but again after a success in between."""
    async with publishing(server, "a", timing=BOTH) as publisher:
        await until(lambda: publisher.is_published)
        for times, name in enumerate("bc", start=1):
            server.refuse("update", "resourceslices", 422, "too odd")
            publisher.publish(slices(name))
            await until(lambda: (INVALID, 3) in pauses)
            server.answer_all()
            await until(lambda: publisher.is_published)
            assert caplog.text.count("still has 1 slice with 1 device from before") == times
            pauses.clear()


async def test_slices_that_others_delete_while_ours_are_refused_cost_a_pause(
    server: OneNode, pauses: list[tuple[float, int]]
) -> None:
    """As after any change by another client: the server refuses the next attempt, too."""
    long = PublishTiming(RETRY, invalid=3600, last_invalid=3600)
    async with publishing(server, "a", timing=long) as publisher:
        await until(lambda: server.watches == 1)
        server.refuse("update", "resourceslices", 422, "too odd")
        publisher.publish(slices("b"))
        await until(lambda: server.watches == 2)
        pauses.clear()
        server.delete_slices_of_all()
        await until(lambda: server.devices == [["b"]])
        assert pauses == [(RETRY, 0)]


async def test_a_dropped_field_is_logged_once_and_not_sent_again(
    server: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    """The server drops fields of a feature gate that is off."""

    def drop_taints(_plural: str, made: Object) -> None:
        for each in made["spec"]["devices"]:
            each.pop("taints", None)

    server.store.admit = drop_taints
    taint = {"key": "k", "effect": "NoSchedule"}
    async with publishing(server) as publisher:
        for name in ("a", "b"):
            publisher.publish([[{"name": name, "taints": [taint]}]])
            await until(lambda: publisher.is_published)
            assert server.devices == [[name]]
    assert server.writes == ["create", "update"]
    assert caplog.text.count("dropped taints") == 1


async def test_a_recreated_node_object_owns_the_slices(server: OneNode) -> None:
    """Kubernetes would delete slices that the old node object owns."""
    async with publishing(server, "a") as publisher:
        await until(lambda: publisher.is_published)
        server.delete("nodes", "node1")
        server.put("nodes", {"metadata": {"name": "node1", "uid": "another"}})
        await until(lambda: server.devices == [["a"]])
        (found,) = server.slices
        assert found["metadata"]["ownerReferences"][0]["uid"] == "another"
