"""The calls to the API server, of a DRA driver and of `explain`, over HTTP/1.1. asyncio.

h11 encodes and decodes the protocol. A driver makes a few dozen calls an hour, so each call opens a
new connection. Replaced tokens and certificates count at once, and no idle connection can be dead
unnoticed.
"""

import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import h11

from kubedevices.config.documents.shape import Shape
from kubedevices.dra.api_answers import (
    ANY_OBJECT,
    CLAIM,
    CLAIMS,
    NODE,
    SLICE,
    SLICES,
    read_answer,
    read_refusal,
    readable,
    seconds_to_wait,
)
from kubedevices.dra.kubeconfig import ApiAccess
from kubedevices.dra.secret import Secret
from kubedevices.dra.slice_writes import Object
from kubedevices.errors import ApiRefused, ApiUnreachable, UnusableCredentials
from kubedevices.host import deadlines
from kubedevices.values.allocation import ClaimReference

TIMEOUT = 10.0
"""The deadline of a call, in seconds."""

WATCH_SECONDS = 300
"""The driver asks the server to end a watch after this time."""

_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_PAGE = 500
# Largest answers in bytes: an endless answer must not fill the memory.
_LIST_LIMIT = 64 * 2**20
_OBJECT_LIMIT = 4 * 2**20  # an API server stores objects of at most 1.5 MiB
_LINE_LIMIT = 4 * 2**20
_REFUSAL_LIMIT = 64 * 2**10
_CHUNK = 65536


class _Call(NamedTuple):
    """A request, and its verb and resource as RBAC rules name them."""

    method: str
    path: str
    verb: str
    resource: str
    query: Mapping[str, str] = {}
    body: Object | None = None
    shape: Shape = ANY_OBJECT
    limit: int = _OBJECT_LIMIT

    @property
    def what(self) -> str:
        return f"{self.verb} {self.resource}"

    @property
    def rule(self) -> str:
        group = "resource.k8s.io" if self.path.startswith("/apis/") else ""
        return f'{{apiGroups: ["{group}"], resources: [{self.resource}], verbs: [{self.verb}]}}'


class ApiClient:
    """Calls one API server. Every call raises `ApiRefused` or `ApiUnreachable`."""

    def __init__(self, access: ApiAccess, *, timeout: float = TIMEOUT) -> None:
        self._access, self._timeout = access, timeout
        parts = urlsplit(access.server)
        self._host = parts.hostname or ""
        self._port = parts.port or (80 if parts.scheme == "http" else 443)
        self._prefix, self._authority = parts.path.rstrip("/"), parts.netloc
        self._token = Secret("")  # of the last call
        self.requests: Counter[tuple[str, str]] = Counter()
        """The number of calls, by verb and resource."""

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._access.server

    # ------------------------------------------------------------ the calls

    async def get_node(self, name: str) -> Object:
        """Return a Node."""
        call = _Call("GET", f"/api/v1/nodes/{quote(name)}", "get", "nodes", shape=NODE)
        return await self._do(call)

    async def get_claim(self, claim: ClaimReference) -> Object:
        """Return a ResourceClaim."""
        place = f"namespaces/{quote(claim.namespace)}/resourceclaims/{quote(claim.name)}"
        path = f"/apis/resource.k8s.io/v1/{place}"
        return await self._do(_Call("GET", path, "get", "resourceclaims", shape=CLAIM))

    def claim_pages(self) -> AsyncGenerator[list[Object], None]:
        """Yield all ResourceClaims of the cluster, some at a time."""
        return self.pages(_CLAIMS, CLAIMS)

    async def pages(
        self, path: str, shape: Shape, *, page: int = _PAGE, fields: str = ""
    ) -> AsyncGenerator[list[Object], None]:
        """Yield all objects of the list at a URL path, `page` at a time; `shape` is of the list.

        `fields` is a field selector.
        """
        query = {"limit": str(page), **({"fieldSelector": fields} if fields else {})}
        resource = path.rpartition("/")[2]
        call = _Call("GET", path, "list", resource, query, shape=shape, limit=_LIST_LIMIT)
        while True:
            answer = await self._do(call)
            yield answer.get("items") or []
            if not (rest := (answer.get("metadata") or {}).get("continue")):
                return
            call = call._replace(query={**query, "continue": rest})

    async def list_slices(self, driver: str, node: str) -> tuple[list[Object], str]:
        """Return the slices of a driver on a node, and the version from which to watch."""
        query = _selector(driver, node)
        call = _Call("GET", _SLICES, "list", "resourceslices", query, None, SLICES, _LIST_LIMIT)
        answer = await self._do(call)
        return answer.get("items") or [], answer["metadata"]["resourceVersion"]

    async def create_slice(self, made: Object) -> Object:
        """Create a slice; return it as the server stored it."""
        call = _Call("POST", _SLICES, "create", "resourceslices", body=made, shape=SLICE)
        return await self._do(call)

    async def update_slice(self, made: Object) -> Object:
        """Replace a slice; return it as the server stored it."""
        path = f"{_SLICES}/{quote(made['metadata']['name'])}"
        call = _Call("PUT", path, "update", "resourceslices", body=made, shape=SLICE)
        return await self._do(call)

    async def delete_slice(self, found: Object) -> None:
        """Delete this version of a slice; the server refuses the call if the slice has changed."""
        metadata = found["metadata"]
        # If another client has changed the slice since the list, the driver must decide again.
        body = {"preconditions": {key: metadata[key] for key in ("uid", "resourceVersion")}}
        path = f"{_SLICES}/{quote(metadata['name'])}"
        await self._do(_Call("DELETE", path, "delete", "resourceslices", body=body))

    def watch_slices(self, driver: str, node: str, version: str) -> AsyncGenerator[Object, None]:
        """Yield events until the server ends the watch, after some minutes."""
        call = _Call("GET", _SLICES, "watch", "resourceslices", _selector(driver, node))
        return self._events(call, version)

    def watch_node(self, name: str, version: str) -> AsyncGenerator[Object, None]:
        """Yield events of one Node until the server ends the watch, after some minutes."""
        query = {"fieldSelector": f"metadata.name={name}"}
        return self._events(_Call("GET", "/api/v1/nodes", "watch", "nodes", query), version)

    async def _events(self, call: _Call, version: str) -> AsyncGenerator[Object, None]:
        wanted = {"resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        call = call._replace(query={**call.query, "watch": "true", **wanted})
        # The server ends the watch after `timeoutSeconds`. If the watch takes longer, the
        # connection is dead, or somebody keeps it open with single bytes.
        end = asyncio.get_running_loop().time() + WATCH_SECONDS + self._timeout
        rest = bytearray()
        with self._translated(WATCH_SECONDS + self._timeout):
            async with self._answer(call) as parts:
                while True:
                    async with deadlines.timeout_at(end):
                        part = await anext(parts, b"")
                    if not part:
                        return
                    *lines, last = part.split(b"\n")
                    for line in lines:
                        rest += line
                        if rest:
                            what, limit = call.what, _LINE_LIMIT
                            yield read_answer(
                                bytes(rest), ANY_OBJECT, what, self._token, limit=limit
                            )
                        rest.clear()
                    rest += last
                    if len(rest) > _LINE_LIMIT:
                        raise EOFError(f"a line of its watch has more than {_LINE_LIMIT} bytes")

    # ------------------------------------------------------------ one exchange

    async def _do(self, call: _Call) -> Object:
        with self._translated(self._timeout):
            async with deadlines.timeout(self._timeout), self._answer(call) as parts:
                data = await _joined(parts, call.limit)
                return read_answer(data, call.shape, call.what, self._token, limit=call.limit)

    async def _refusal(self, call: _Call, response: Any, parts: AsyncIterator[bytes]) -> ApiRefused:
        """Return the server's `Status` object as an error."""
        async with deadlines.timeout(self._timeout):
            data = await _beginning(parts)
        reason, message = read_refusal(data, self._token, limit=_REFUSAL_LIMIT)
        is_policy = "ValidatingAdmissionPolicy" in message
        headers = {bytes(name).lower(): bytes(value) for name, value in response.headers}
        return ApiRefused(
            call.what,
            response.status_code,
            reason,
            message,
            retry_after=seconds_to_wait(headers.get(b"retry-after", b""), time.time()),
            # A policy refuses a request that RBAC permits: another rule would not help.
            missing_rule=call.rule if response.status_code == 403 and not is_policy else "",
        )

    @contextlib.contextmanager
    def _translated(self, seconds: float) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise ApiUnreachable(self._access.server, f"no answer in {seconds:g} s") from None
        except h11.RemoteProtocolError as error:
            problem = "its answer is not HTTP, as from a server that wants https: "
            problem += readable(self._token.hide_in(str(error)))
            raise ApiUnreachable(self._access.server, problem) from None
        except UnusableCredentials as error:  # the file with the token was replaced
            raise ApiUnreachable(self._access.server, str(error)) from error
        except (OSError, EOFError) as error:
            raise ApiUnreachable(self._access.server, _words_of(error)) from error

    @contextlib.asynccontextmanager
    async def _answer(self, call: _Call) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a request and yield the parts of the answer's body; raises `ApiRefused`."""
        self.requests[call.verb, call.resource] += 1
        body = b"" if call.body is None else json.dumps(call.body).encode()
        headers = [("Host", self._authority), ("Accept", "application/json")]
        headers += [("User-Agent", "kubedevices"), ("Connection", "close")]
        # The token's file is read for each call: the kubelet replaces the token about once an hour.
        if token := self._access.read_token():
            self._token = token
            headers.append(("Authorization", f"Bearer {token.reveal()}"))
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        query = f"?{urlencode(call.query)}" if call.query else ""
        async with deadlines.timeout(self._timeout):
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._access.tls(), limit=_CHUNK
            )
        try:
            http = h11.Connection(h11.CLIENT)
            target = f"{self._prefix}{call.path}{query}"
            request = h11.Request(method=call.method, target=target, headers=headers)
            for event in (request, h11.Data(data=body), h11.EndOfMessage()):
                writer.write(http.send(event) or b"")
            async with deadlines.timeout(self._timeout):
                await writer.drain()
                response = await _head(http, reader)
            parts = _body(http, reader)
            if response.status_code >= 300:
                raise await self._refusal(call, response, parts)
            yield parts
        finally:
            # Not close(): close() would wait for the end of the TLS session.
            writer.transport.abort()


async def _head(http: Any, reader: asyncio.StreamReader) -> Any:
    event = await _next_event(http, reader)
    if isinstance(event, h11.Response):
        return event
    raise EOFError("it closed the connection")


async def _next_event(http: Any, reader: asyncio.StreamReader) -> Any:
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_CHUNK))
        elif not isinstance(event, h11.InformationalResponse):
            return event


async def _body(http: Any, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while isinstance(event := await _next_event(http, reader), h11.Data):
        yield bytes(event.data)


async def _joined(parts: AsyncIterator[bytes], limit: int) -> bytes:
    data = bytearray()
    async for part in parts:
        data += part
        if len(data) > limit:
            raise EOFError(f"its answer has more than {limit} bytes")
    return bytes(data)


async def _beginning(parts: AsyncIterator[bytes]) -> bytes:
    data = b""
    async for part in parts:
        data += part
        if len(data) > _REFUSAL_LIMIT:
            break
    return data[:_REFUSAL_LIMIT]


def _selector(driver: str, node: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.driver={driver},spec.nodeName={node}"}


def _words_of(error: OSError | EOFError) -> str:
    """Return what went wrong with a connection, in the words of the system."""
    if isinstance(error, ConnectionResetError):
        return "it closed the connection"
    text = getattr(error, "strerror", None) or str(error)
    if "Connect call failed" in text and isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return text or type(error).__name__
