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
from kubedevices.testing.api_server.kinds import ApiPath, Object, parse_path

_CHUNK = 65536
_BODY_LIMIT = 3 * 2**20
"""Bytes of a request's body, as in Kubernetes: 3 MiB."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


class ApiRequest(NamedTuple):
    """A call, with verb and resource as RBAC rules name them; `place` is None for unknown paths."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Object
    token: str
    place: ApiPath | None

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


class ApiFault(NamedTuple):
    """The answer of a broken call; `status` 0 closes the connection, -1 never answers.

    `retry_after` is the header Retry-After in seconds.
    """

    status: int
    message: str = ""
    reason: str = ""
    retry_after: int | None = None


HANG_UP = ApiFault(0)
SILENCE = ApiFault(-1)

Answer = tuple[int, Object] | AsyncIterator[Object]
"""Status and object, or the events of a watch."""


class Handler(NamedTuple):
    """The functions for a request: `fault` is called first; `answer` if there is no fault."""

    fault: Callable[[ApiRequest], ApiFault | None]
    answer: Callable[[ApiRequest], Awaitable[Answer]]


async def serve(
    handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer requests until the caller closes the connection."""
    http = h11.Connection(h11.SERVER)
    while (request := await _read(http, reader)) is not None:
        fault = handler.fault(request)
        if fault is not None and fault.status <= 0:
            if fault.status < 0:
                await reader.read()  # until the caller closes the connection
            return
        if fault is not None:
            headers = [] if fault.retry_after is None else [("Retry-After", f"{fault.retry_after}")]
            body = status_of(fault.status, fault.reason, fault.message)
            await _write(http, writer, fault.status, body, headers)
        else:
            await _answer(handler, request, http, writer)
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return
        http.start_next_cycle()


async def _answer(
    handler: Handler, request: ApiRequest, http: Any, writer: asyncio.StreamWriter
) -> None:
    try:
        answer = await handler.answer(request)
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
        data = json.dumps(event).encode() + b"\n"
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
    content = json.loads(body) if body else {}
    return ApiRequest(
        head.method.decode(), parts.path, query, content, token, parse_path(parts.path)
    )


async def _write(
    http: Any,
    writer: asyncio.StreamWriter,
    status: int,
    body: Object,
    headers: "list[tuple[str, str]] | None" = None,
) -> None:
    data = json.dumps(body).encode()
    sent = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
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
