"""Requests and answers on a connection to the stand-in for an API server. asyncio.

h11 encodes and decodes HTTP/1.1. A connection can have any number of requests.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import h11

from kubedevices.errors import ApiRefused
from kubedevices.testing.api_server.faults import ApiFault
from kubedevices.testing.api_server.protobuf_bodies import CONTENT_TYPE, read_protobuf
from kubedevices.values.scheduling.kinds import ApiPath, Object, parse_path

_CHUNK = 65536
_OK = 200
_BODY_LIMIT = 3 * 2**20
"""Bytes of a request's body, as in Kubernetes: 3 MiB."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


class ApiRequest(NamedTuple):
    """A call, with verb and resource as RBAC rules name them; `place` is None for unknown paths.

    `body` is the JSON of the body, `{}` without one, None if it cannot be read. A body in protobuf
    is the JSON of the same object.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    token: str
    place: ApiPath | None
    accept: str = ""
    content_type: str = ""

    @property
    def resource(self) -> str:
        """For example `resourceslices` or `resourceclaims/status`."""
        if self.place is None:
            return ""
        return "/".join(filter(None, (self.place.plural, self.place.subresource)))

    @property
    def verb(self) -> str:
        """For example `watch`."""
        if self.place is None or self.place.name:
            return _VERBS.get(self.method, "")
        if self.method == "GET":
            return "watch" if self.query.get("watch") in ("1", "true") else "list"
        return "deletecollection" if self.method == "DELETE" else _VERBS.get(self.method, "")


Answer = tuple[int, Object | str] | AsyncIterator[Object | bytes]
"""Status and object or text, or the events of a watch: objects, or bytes as they are."""


async def serve(
    broken: Callable[[ApiRequest], ApiFault | None],
    answer: Callable[[ApiRequest], Awaitable[Answer]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Answer requests until the caller closes the connection; `answer` those without a fault."""
    http = h11.Connection(h11.SERVER)
    while (request := await _read(http, reader)) is not None:
        fault = broken(request)
        if fault is not None and fault.delay:
            await asyncio.sleep(fault.delay)
        if fault is not None and fault.status == _OK and not fault.raw:
            fault = None
        if fault is not None and (fault.status <= 0 or fault.raw):
            writer.write(fault.raw)
            await writer.drain()
            if fault.status < 0:
                await reader.read()  # until the caller closes the connection
            return
        if fault is not None and fault.status != _OK:
            headers = [] if fault.retry_after is None else [("Retry-After", f"{fault.retry_after}")]
            body = status_of(fault.status, fault.reason, fault.message)
            await _write(http, writer, fault.status, body, headers)
        else:
            await _answer(answer(request), http, writer)
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return
        http.start_next_cycle()


async def _answer(answering: Awaitable[Answer], http: Any, writer: asyncio.StreamWriter) -> None:
    try:
        answer = await answering
    except ApiRefused as error:
        body = status_of(error.status, error.reason, error.message)
        await _write(http, writer, error.status, body)
        return
    if isinstance(answer, tuple):
        await _write(http, writer, *answer)
        return
    headers = [("Content-Type", "application/json")]
    writer.write(http.send(h11.Response(status_code=200, headers=headers)) or b"")
    async for event in answer:
        data = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
        for part in (data[:7], data[7:]):  # in two parts: a client must be able to join a line
            writer.write(http.send(h11.Data(data=part)) or b"")
        await writer.drain()
    writer.write(http.send(h11.EndOfMessage()) or b"")
    await writer.drain()


async def _read(http: Any, reader: asyncio.StreamReader) -> ApiRequest | None:
    """Return the next request, None at the end of the connection."""
    head: Any = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data) and len(body) <= _BODY_LIMIT:
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return _request(head, bytes(body))
        else:
            return None


def _request(head: Any, body: bytes) -> ApiRequest:
    parts = urlsplit(head.target.decode())
    headers = dict(head.headers)
    token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
    query = dict(parse_qsl(parts.query))
    accept, content_type = (
        headers.get(name, b"").decode() for name in (b"accept", b"content-type")
    )
    return ApiRequest(
        head.method.decode(),
        parts.path,
        query,
        _content(body, content_type),
        token,
        parse_path(parts.path),
        accept,
        content_type.partition(";")[0].strip(),
    )


def _content(body: bytes, content_type: str) -> Any:
    if body and content_type.startswith(CONTENT_TYPE):
        return read_protobuf(body)
    try:
        return json.loads(body) if body else {}
    except ValueError:
        return None


async def _write(
    http: Any,
    writer: asyncio.StreamWriter,
    status: int,
    body: Object | str,
    headers: "list[tuple[str, str]] | None" = None,
) -> None:
    is_text = isinstance(body, str)
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/plain" if is_text else "application/json"
    sent = [("Content-Type", kind), ("Content-Length", str(len(data)))]
    for event in (
        h11.Response(status_code=status, headers=[*sent, *(headers or ())]),
        h11.Data(data=data),
        h11.EndOfMessage(),
    ):
        writer.write(http.send(event) or b"")
    await writer.drain()


def status_of(code: int, reason: str, message: str) -> Object:
    """Return a `Status` object of the API for an error."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def deleted(gone: Object, place: ApiPath) -> Object:
    """Return the `Status` object for a deleted object."""
    details = {"name": place.name, "kind": place.plural, "uid": gone["metadata"]["uid"]}
    about = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return about | {"details": details}


def accepts_json(accept: str) -> bool:
    """Return whether a caller takes JSON; there is no other form here."""
    return not accept or any(each in accept for each in ("json", "*/*", "application/*"))


def check_write(request: ApiRequest) -> None:
    """Refuse a body of another form, and a dry run, which writes nothing; raises `ApiRefused`."""
    kind = request.content_type
    is_protobuf = kind == CONTENT_TYPE
    if kind and "json" not in kind and "yaml" not in kind and not (is_protobuf and request.body):
        problem = f"the body of the request was in an unknown format - {kind}"
        raise ApiRefused("write", 415, "UnsupportedMediaType", problem)
    if request.body is None:
        raise ApiRefused("write", 400, "BadRequest", "the body of the request is no JSON")
    if "dryRun" in request.query:
        raise ApiRefused("write", 400, "BadRequest", "this stand-in knows no dry run")
