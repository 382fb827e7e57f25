"""The stand-in answers as a real API server; what it is told to break is broken."""

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import ApiRefused
from kubedevices.testing.api_server import ApiFault, ApiServer
from kubedevices.testing.api_server.http import ApiRequest
from kubedevices.testing.api_server.patches import JSON_PATCH, STRATEGIC, applied, patched
from kubedevices.testing.api_server.watching import Watches
from kubedevices.values.scheduling.kinds import ApiPath
from tests.testing.api_server import corpus
from tests.waiting import until

ANSWERS = Path(corpus.__file__).with_suffix(".json")
"""The answers of a kube-apiserver 1.36; `tests/kubernetes/test_api_server.py` compares them."""


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as running:
        yield running


def call(port: int, *request: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    return corpus.ask(connection, *request)


async def asked(server: ApiServer, method: str, path: str, body: Any = None, **headers: str) -> Any:
    port = int(server.url.rpartition(":")[2])
    data = b"" if body is None else json.dumps(body).encode()
    return await asyncio.to_thread(call, port, method, path, headers, data)


async def test_it_answers_a_corpus_as_a_real_api_server(server: ApiServer) -> None:
    """Each verb, selectors, pages, watches, patches, limits, conflicts."""
    port = int(server.url.rpartition(":")[2])
    found = await asyncio.to_thread(corpus.run, lambda *request: call(port, *request))
    right = json.loads(ANSWERS.read_text())
    assert found.keys() == right.keys()
    for step, answer in json.loads(json.dumps(found)).items():
        assert answer == right[step], step


async def test_what_it_does_not_know_is_refused(server: ApiServer) -> None:
    """A dry run would write; protobuf cannot be read."""
    made = {"metadata": {"name": "n"}}
    status, answer = await asked(server, "POST", "/api/v1/nodes?dryRun=All", made)
    assert (status, answer["message"]) == (400, "this stand-in knows no dry run")
    protobuf = {"Accept": "application/vnd.kubernetes.protobuf"}
    assert (await asked(server, "GET", "/api/v1/nodes", **protobuf))[0] == 406
    kind = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    assert (await asked(server, "POST", "/api/v1/nodes", made, **kind))[0] == 415
    assert not server.find("nodes")


async def test_leases_and_events_are_stored(server: ApiServer) -> None:
    """A driver elects a leader, and writes events."""
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert (await asked(server, "POST", path, lease))[0] == 201
    event = {"metadata": {"generateName": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}}
    await asked(server, "POST", "/api/v1/namespaces/default/events", event)
    query = "fieldSelector=involvedObject.name=p,involvedObject.kind=Pod"
    _, found = await asked(server, "GET", f"/api/v1/events?{query}")
    assert len(found["items"]) == 1


async def test_an_answer_may_come_late(server: ApiServer) -> None:
    """After the delay it is the right answer."""
    server.put("nodes", {"metadata": {"name": "n"}})
    server.fault = lambda _request: ApiFault(200, delay=0.2)
    loop = asyncio.get_running_loop()
    before = loop.time()
    status, found = await asked(server, "GET", "/api/v1/nodes/n")
    assert (status, found["metadata"]["name"]) == (200, "n")
    assert loop.time() - before >= 0.2


async def test_an_answer_may_be_any_bytes(server: ApiServer) -> None:
    """The connection is closed after them."""
    server.fault = lambda _request: ApiFault(200, raw=b"\x00 no HTTP")
    reader, writer = await asyncio.open_connection(*server.url.removeprefix("http://").split(":"))
    writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await asyncio.wait_for(reader.read(), 60) == b"\x00 no HTTP"
    writer.close()


async def test_a_page_of_a_forgotten_version_is_gone(server: ApiServer) -> None:
    """The client has to begin again."""
    for name in "ab":
        server.put("nodes", {"metadata": {"name": name}})
    _, first = await asked(server, "GET", "/api/v1/nodes?limit=1")
    server.put("nodes", {"metadata": {"name": "c"}})
    server.forget_events()
    token = first["metadata"]["continue"]
    status, answer = await asked(server, "GET", f"/api/v1/nodes?limit=1&continue={token}")
    assert (status, answer["reason"]) == (410, "Expired")


async def test_a_watch_ends_as_it_is_told(server: ApiServer) -> None:
    """With a part of a line, as when a proxy gives up."""
    watch = asyncio.create_task(asked(server, "GET", "/api/v1/nodes?watch=1&timeoutSeconds=60"))
    await until(lambda: server.watches, 60)
    server.end_watch("nodes", b'{"type": "ERROR", "object": {}}\n')
    assert await watch == (200, [{"type": "ERROR", "object": {}}])


async def test_a_watch_has_bookmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a client knows a version that is not too old when it begins again."""
    monkeypatch.setattr("kubedevices.testing.api_server.watching._BOOKMARK_SECONDS", 0.01)
    server = ApiServer()
    made = server.put("nodes", {"metadata": {"name": "n"}})
    query = {"allowWatchBookmarks": "true", "resourceVersion": made["metadata"]["resourceVersion"]}
    place = ApiPath("nodes", "", "")
    request = ApiRequest("GET", "/api/v1/nodes", query, {}, "", place)
    events = Watches(lambda: server.store).events(request, place)
    found: Any = await asyncio.wait_for(anext(events), 60)
    assert found["type"] == "BOOKMARK"
    assert found["object"]["metadata"]["resourceVersion"] == query["resourceVersion"]


@pytest.mark.parametrize(
    ("steps", "right"),
    [
        ([{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3]}),
        ([{"op": "add", "path": "/a/0", "value": 0}], {"a": [0, 1, 2]}),
        ([{"op": "remove", "path": "/a/1"}], {"a": [1]}),
        ([{"op": "replace", "path": "/a/1", "value": 5}], {"a": [1, 5]}),
        ([{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1, 2], "b": [1, 2]}),
        ([{"op": "move", "from": "/a/0", "path": "/b"}], {"a": [2], "b": 1}),
        ([{"op": "add", "path": "/x~1y", "value": 1}], {"a": [1, 2], "x/y": 1}),
        ([{"op": "replace", "path": "/b", "value": 5}], None),
        ([{"op": "remove", "path": "/b"}], None),
        ([{"op": "test", "path": "/a/0", "value": 2}], None),
        ([{"op": "new", "path": "/a"}], None),
    ],
    ids=str,
)
def test_a_json_patch_follows_its_rfc(steps: list[Any], right: Any) -> None:
    """RFC 6902; a step that fails is an error of the whole patch."""
    if right is None:
        with pytest.raises(ApiRefused) as refused:
            patched({"a": [1, 2]}, steps, JSON_PATCH)
        assert refused.value.status == 422
    else:
        assert patched({"a": [1, 2]}, steps, JSON_PATCH) == right


def test_a_strategic_patch_may_replace_an_object() -> None:
    """By its directive."""
    patch = {"spec": {"$patch": "replace", "b": 1}}
    assert patched({"spec": {"a": 1}}, patch, STRATEGIC) == {"spec": {"b": 1}}


def test_an_apply_takes_back_what_its_manager_leaves_out() -> None:
    """But not what others have written."""
    before = {"metadata": {"labels": {"mine": "1", "more": "1"}}}
    found = {"metadata": {"name": "x", "labels": {"mine": "1", "more": "1", "other": "2"}}}
    now = {"metadata": {"labels": {"mine": "3"}}}
    assert applied(found, before, now) == {
        "metadata": {"name": "x", "labels": {"mine": "3", "other": "2"}}
    }


async def test_a_stop_closes_what_nobody_reads_and_what_has_just_come() -> None:
    """No socket stays open behind the server."""
    async with ApiServer().running() as server:
        for number in range(300):  # more than a socket buffers
            server.put("nodes", {"metadata": {"name": f"n{number}", "labels": {"x": "y" * 60_000}}})
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readexactly(1)
        _, late = await asyncio.open_connection(host, int(port))
        seen = [*server._transports]
    assert seen
    assert all(each.is_closing() and each.get_extra_info("socket").fileno() < 0 for each in seen)
    for each in (writer, late):
        each.close()


@pytest.mark.parametrize("turns", range(6))
async def test_a_stop_closes_a_connection_that_is_being_accepted(turns: int) -> None:
    """Of a caller that gave up while it asked for several things at once."""
    server = ApiServer()
    await server.start()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as caller:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        with contextlib.suppress(ConnectionResetError):
            assert caller.recv(1) == b""
