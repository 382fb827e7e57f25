"""Whatever an API server answers, the driver lives, and recovers after the next right answer."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from kubedevices.dra import api_client
from kubedevices.dra.api_answers import LONGEST_WAIT, readable, seconds_to_wait
from kubedevices.dra.api_client import ApiClient
from kubedevices.dra.claims import configuration_of, results_of
from kubedevices.dra.kubeconfig import ApiAccess
from kubedevices.dra.metadata import names_of
from kubedevices.dra.publisher import Publisher, PublishTiming
from kubedevices.errors import ApiRefused, ApiUnreachable, ClaimRefused
from kubedevices.testing.api_server import ApiFault
from kubedevices.testing.api_server.http import ApiRequest
from kubedevices.values.allocation import ClaimReference
from tests.dra.cluster import OneNode, claim_of
from tests.waiting import until

CLAIM = ClaimReference("default", "uid-1", "one")


def http(
    body: bytes | str, status: int = 200, headers: str = "", length: int | None = None
) -> bytes:
    data = body if isinstance(body, bytes) else body.encode()
    size = len(data) if length is None else length
    return f"HTTP/1.1 {status} Text\r\nContent-Length: {size}\r\n{headers}\r\n".encode() + data


def a_list(*items: Any) -> str:
    return json.dumps({"metadata": {"resourceVersion": "7"}, "items": items})


def a_slice(**spec: Any) -> dict[str, Any]:
    pool = {"name": "node1", "generation": 1, "resourceSliceCount": 1}
    metadata = {"name": "00000-x", "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"pool": pool, "devices": []} | spec}


WRONG: dict[str, bytes] = {
    "deep": http("[" * 25_000),
    "deep in an object": http('{"metadata":' * 5000),
    "deep and balanced": http('{"metadata": {"uid": "u"}, "x": ' + "[" * 500 + "]" * 500 + "}"),
    "empty object": http("{}"),
    "empty list": http("[]"),
    "null": http("null"),
    "text": http('"text"'),
    "number": http("42"),
    "nothing": http(""),
    "no JSON": http("<html>"),
    "NaN": http("NaN"),
    "no UTF-8": http(b'{"metadata": "\xff"}'),
    "half a surrogate pair": http('{"metadata": {"uid": "\\ud800", "resourceVersion": "1"}}'),
    "null metadata": http('{"metadata": null, "items": null, "spec": null}'),
    "list as metadata": http('{"metadata": [], "spec": []}'),
    "numbers as text": http('{"metadata": {"uid": 7, "name": 7, "resourceVersion": 7}}'),
    "object as items": http('{"metadata": {"resourceVersion": "7", "uid": {}}, "items": {}}'),
    "null items": http(a_list(None)),
    "texts as items": http(a_list("x")),
    "empty items": http(a_list({})),
    "null spec": http(a_list({"metadata": {"name": "n"}, "spec": None})),
    "null pool": http(a_list(a_slice(pool=None))),
    "text as generation": http(a_list(a_slice(pool={"name": "node1", "generation": "x"}))),
    "huge generation": http(
        a_list(a_slice(pool={"name": "n", "generation": 10**40, "resourceSliceCount": 1}))
    ),
    "object as devices": http(a_list(a_slice(devices={}))),
    "null devices": http(a_list(a_slice(devices=[None]))),
    "null taints": http(a_list(a_slice(devices=[{"name": "a", "taints": [None]}]))),
    "cut off": http("{", length=100),
    "no HTTP": b"\x00\x01garbage\r\n\r\n",
    "endless header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "redirect": http("", 302, "Location: http://127.0.0.1:1/\r\n"),
    "list as status": http("[]", 500),
    "deep status": http("[" * 25_000, 500),
    "wait a negative time": http("{}", 429, "Retry-After: -5\r\n"),
    "wait no number": http("{}", 429, "Retry-After: nan\r\n"),
    "wait a word": http("{}", 503, "Retry-After: soon\r\n"),
    "invalid": http("{}", 422),
}

REQUESTS = [
    ("get", "nodes"),
    *((verb, "resourceslices") for verb in ("list", "watch", "create", "update", "delete")),
]


@contextlib.asynccontextmanager
async def publishing(server: OneNode) -> AsyncIterator[Publisher]:
    timing = PublishTiming(0.005, 0.02, 0.05)
    publisher = Publisher(ApiClient(server.access), "example.com", "node1", timing)
    task = asyncio.create_task(publisher.run(), name="publisher")
    try:
        yield publisher
        assert not task.done(), "the publisher has ended"
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()


async def served(server: OneNode, publisher: Publisher) -> None:
    """Wait until the server has what the publisher wants it to have."""
    wanted = [[each["name"] for each in part] for part in publisher.wanted]
    await until(lambda: publisher.is_published and server.devices == wanted)


@pytest.mark.parametrize("wrong", WRONG)
async def test_the_publisher_outlives_each_wrong_answer(server: OneNode, wrong: str) -> None:
    """After two wrong answers to each kind of request, the server has the wanted slices."""
    left = dict.fromkeys(REQUESTS, 2)

    def answer(request: ApiRequest) -> ApiFault | None:
        kind = (request.verb, request.resource)
        if not left.get(kind):
            return None
        left[kind] -= 1
        return ApiFault(200, raw=WRONG[wrong])

    server.fault = answer
    async with publishing(server) as publisher:
        for names in (["a", "b"], ["a", "c"], ["c"]):  # creates two, updates one, deletes one
            publisher.publish([[{"name": name}] for name in names])
            await served(server, publisher)
        await until(lambda: not left["watch", "resourceslices"])
    assert left.pop(("delete", "resourceslices")) < 2, "an answer of any kind may do for one"
    assert not any(left.values()), left


CLAIMS = {
    "null status": {"metadata": {"uid": "uid-1"}, "status": None},
    "list as status": {"metadata": {"uid": "uid-1"}, "status": []},
    "null allocation": {"metadata": {"uid": "uid-1"}, "status": {"allocation": None}},
    "text as allocation": {"metadata": {"uid": "uid-1"}, "status": {"allocation": "x"}},
    "null results": claim_of("uid-1") | {"status": {"allocation": {"devices": {"results": None}}}},
    "null result": {
        "metadata": {"uid": "uid-1"},
        "status": {"allocation": {"devices": {"results": [None]}}},
    },
    "number as request": claim_of("uid-1", "a") | {"spec": None},
    "list as parameters": {
        "metadata": {"uid": "uid-1", "annotations": []},
        "status": {"allocation": {"devices": {"config": [{"opaque": {"parameters": []}}]}}},
    },
    "null opaque": {
        "metadata": {"uid": "uid-1", "annotations": None},
        "status": {
            "allocation": {
                "devices": {
                    "config": [{"opaque": None, "requests": None}],
                    "results": claim_of("x", "a")["status"]["allocation"]["devices"]["results"],
                }
            }
        },
    },
}


@pytest.mark.parametrize("wrong", [*WRONG, *CLAIMS])
async def test_a_wrong_claim_is_a_refusal(server: OneNode, wrong: str) -> None:
    """Reading a claim raises only errors that the driver answers to the kubelet with."""
    answer = WRONG.get(wrong) or http(json.dumps(CLAIMS[wrong]))
    server.fault = lambda _request: ApiFault(200, raw=answer)
    with contextlib.suppress(ApiRefused, ApiUnreachable, ClaimRefused):
        claim = await ApiClient(server.access).get_claim(CLAIM)
        results_of(claim, CLAIM, "example.com")
        configuration_of(claim, "example.com")
        names_of(claim, CLAIM, "example.com")


async def test_the_same_wrong_answer_is_logged_once(
    server: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Twenty refused answers give one line, and the pause between two calls grows."""
    caplog.set_level(logging.INFO)
    server.fault = lambda _request: ApiFault(200, raw=http("{}"))
    async with publishing(server) as publisher:
        publisher.publish([[{"name": "a"}]])
        await until(lambda: publisher.errors >= 20)
        told = [each.getMessage() for each in caplog.records if each.levelno >= logging.INFO]
        problem = "cannot get nodes: the answer.metadata must be given"
        assert told == [f"example.com: devices are not published: {problem}"]


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_without_a_pause(
    server: OneNode,
) -> None:
    """Each round pauses, as after an error."""
    ended = ApiFault(200, raw=http(""))
    server.fault = lambda request: ended if request.verb == "watch" else None
    timing = PublishTiming(0.2, 30)
    publisher = Publisher(ApiClient(server.access), "example.com", "node1", timing)
    publisher.publish([[]])
    task = asyncio.create_task(publisher.run(), name="publisher")
    await until(lambda: publisher.is_published)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await task
    task.cancel()
    await asyncio.wait({task})
    assert len(server.requests) < 20


NOW = 1_000_000_000.0


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("-5", 0),
        ("86400", LONGEST_WAIT),
        ("inf", LONGEST_WAIT),
        ("1e999", LONGEST_WAIT),
        ("-inf", 0),
        ("nan", None),
        ("", None),
        ("soon", None),
        ("\u00b2", None),
        (format_datetime(datetime.fromtimestamp(NOW + 20, UTC), usegmt=True), 20),
        (format_datetime(datetime.fromtimestamp(NOW - 20, UTC), usegmt=True), 0),
        (format_datetime(datetime.fromtimestamp(NOW + 9999, UTC), usegmt=True), LONGEST_WAIT),
        ("Wed, 99 Foo 9999999 00:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", LONGEST_WAIT),
    ],
)
def test_a_wait_is_between_nothing_and_a_minute(value: str, wait: float | None) -> None:
    """Retry-After is a number or a date; other values have no meaning."""
    assert seconds_to_wait(value.encode("latin-1"), NOW) == wait


async def test_a_long_wait_is_logged(server: OneNode, caplog: pytest.LogCaptureFixture) -> None:
    """The log says how long the driver waits, and why: at most 60 s."""
    caplog.set_level(logging.INFO)
    late = ApiFault(200, raw=http("{}", 429, "Retry-After: 86400\r\n"))
    server.fault = lambda _request: late
    async with publishing(server) as publisher:
        publisher.publish([[]])
        await until(lambda: "waits 60 s, as the API server asks for" in caplog.text)


async def watched(api: ApiClient) -> list[Any]:
    async with contextlib.aclosing(api.watch_slices("example.com", "node1", "1")) as events:
        return [each async for each in events]


async def test_a_line_of_a_watch_has_a_limit(
    server: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends when a line has more bytes than the limit; whole lines are read."""
    monkeypatch.setattr(api_client, "_LINE_LIMIT", 1000)
    api = ApiClient(server.access)
    server.fault = lambda _request: ApiFault(200, raw=http('{"a": 1}\n' * 1000))
    assert len(await watched(api)) == 1000
    server.fault = lambda _request: ApiFault(200, raw=http('{"a": "' + "x" * 100_000))
    with pytest.raises(ApiUnreachable, match="a line of its watch has more than 1000 bytes"):
        await watched(api)


async def test_an_answer_has_a_limit(server: OneNode) -> None:
    """Reading ends at the limit of the call."""
    long = ApiFault(200, raw=http(" " * (api_client._OBJECT_LIMIT + 100_000)))
    server.fault = lambda _request: long
    with pytest.raises(ApiUnreachable, match="its answer has more than"):
        await ApiClient(server.access).get_node("node1")


@pytest.mark.parametrize("is_watch", [False, True])
async def test_single_bytes_do_not_keep_a_call_open(
    monkeypatch: pytest.MonkeyPatch, is_watch: bool
) -> None:
    """The deadline counts from the start of the call, however often a byte comes."""
    monkeypatch.setattr(api_client, "WATCH_SECONDS", 0)

    ended = asyncio.Event()

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        ended.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    access = ApiAccess(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    api = ApiClient(access, timeout=0.3)
    call = watched(api) if is_watch else api.get_node("node1")
    try:
        with pytest.raises(ApiUnreachable, match=r"no answer in 0\.3 s"):
            await call
        await asyncio.wait_for(ended.wait(), 60)
    finally:
        server.close()


def test_a_text_of_the_server_is_one_short_line() -> None:
    """A log line of ours never has a line break or an escape sequence of the server."""
    assert readable("a\n\x1b[31mb\u202e") == "a [31mb"
    assert len(readable("x" * 10_000)) == 501
