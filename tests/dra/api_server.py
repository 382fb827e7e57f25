"""An API server for tests: nodes, claims and ResourceSlices over HTTP/1.1, with faults."""

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import h11

from kubedevices.dra.kubeconfig import ApiAccess

Object = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


class Fault(NamedTuple):
    """The answer of a broken call; status 0 closes the connection, -1 never answers."""

    status: int
    message: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class ApiServer:
    """Stores objects; `requests` are all calls, watches included.

    `raw(method, target)` is called first: the bytes that it returns are the answer, HTTP or not.
    Then `fault(method, path)` is called. `taken_in` changes a slice before it is stored, as a
    server with disabled feature gates does.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Object] = {"node1": {"metadata": {"uid": "node-uid"}}}
        self.claims: dict[str, Object] = {}
        self.slices: dict[str, Object] = {}
        self.requests: list[tuple[str, str]] = []
        self.authorizations: list[str] = []
        self.fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
        self.raw: Callable[[str, str], bytes | None] = lambda _method, _path: None
        self.taken_in: Callable[[Object], None] = lambda _made: None
        self.url = ""
        self.watches = 0
        self.node_changed = asyncio.Event()
        self.watch_ends: bytes | None = None
        """The last bytes of a watch of a node, when it shall end at the next change."""

        self._version = 100
        self._history: list[tuple[int, Object]] = []
        self._watches: set[asyncio.Queue[Object]] = set()

    @property
    def access(self) -> ApiAccess:
        return ApiAccess(self.url)

    @property
    def devices(self) -> list[list[str]]:
        """The names of the devices of each slice."""
        return [
            [each["name"] for each in self.slices[name]["spec"]["devices"]]
            for name in sorted(self.slices)
        ]

    @property
    def writes(self) -> list[str]:
        return [method for method, _ in self.requests if method != "GET"]

    def delete(self, name: str) -> None:
        """Delete a slice, as another client does."""
        self._version += 1
        self._tell("DELETED", self.slices.pop(name))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["ApiServer"]:
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await self._serve(reader, writer)
            except (ConnectionError, asyncio.CancelledError):
                pass
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    # ------------------------------------------------------------ HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        body = b""
        request: Any = None
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                return
        method, target = request.method.decode(), request.target.decode()
        parts = urlsplit(target)
        self.requests.append((method, parts.path))
        self.authorizations.append(dict(request.headers).get(b"authorization", b"").decode())
        if (raw := self.raw(method, target)) is not None:
            writer.write(raw)
            await writer.drain()
            return
        fault = self.fault(method, parts.path)
        if fault is not None and fault.status <= 0:
            if fault.status < 0:
                await reader.read()
            return
        query = parse_qs(parts.query)
        if fault is None and "watch" in query and parts.path == "/api/v1/nodes":
            name = query["fieldSelector"][0].partition("=")[2]
            await self._watch_node(http, writer, name, query.get("resourceVersion", [""])[0])
            return
        if fault is None and "watch" in query:
            await self._watch(http, writer, int(query["resourceVersion"][0]))
            return
        status, answer = (
            self._answer(method, parts.path, json.loads(body or b"{}"))
            if fault is None
            else (fault.status, {"reason": "Fault", "message": fault.message})
        )
        headers = [("Content-Type", "application/json"), *(fault.headers if fault else ())]
        data = json.dumps(answer).encode()
        headers.append(("Content-Length", str(len(data))))
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=data),
            h11.EndOfMessage(),
        ):
            writer.write(http.send(event) or b"")
        await writer.drain()

    def change_node(self, name: str) -> None:
        """Tell the watches of a node that somebody has changed it."""
        self._version += 1
        self.nodes[name]["metadata"]["resourceVersion"] = str(self._version)
        self.node_changed.set()
        self.node_changed = asyncio.Event()

    def end_node_watch(self, last: bytes) -> None:
        """End the watch of a node, after these bytes."""
        self.watch_ends = last
        self.node_changed.set()
        self.node_changed = asyncio.Event()

    async def _watch_node(
        self, http: Any, writer: asyncio.StreamWriter, name: str, seen: str
    ) -> None:
        writer.write(http.send(h11.Response(status_code=200, headers=[])) or b"")
        while self.watch_ends is None:
            changed, node = self.node_changed, self.nodes[name]
            if (version := node["metadata"].get("resourceVersion", "")) != seen:
                seen = version
                event = {"type": "MODIFIED", "object": node}
                writer.write(http.send(h11.Data(data=json.dumps(event).encode() + b"\n")) or b"")
            await writer.drain()
            await changed.wait()
        writer.write(http.send(h11.Data(data=self.watch_ends)) or b"")
        writer.write(http.send(h11.EndOfMessage()) or b"")
        self.watch_ends = None
        await writer.drain()

    async def _watch(self, http: Any, writer: asyncio.StreamWriter, version: int) -> None:
        events: asyncio.Queue[Object] = asyncio.Queue()
        for at, event in self._history:
            if at > version:
                events.put_nowait(event)
        self._watches.add(events)
        self.watches += 1
        try:
            writer.write(http.send(h11.Response(status_code=200, headers=[])) or b"")
            while True:
                data = json.dumps(await events.get()).encode() + b"\n"
                for part in (data[:7], data[7:]):
                    writer.write(http.send(h11.Data(data=part)) or b"")
                await writer.drain()
        finally:
            self._watches.discard(events)

    def _tell(self, kind: str, found: Object) -> None:
        event = {"type": kind, "object": copy.deepcopy(found)}
        self._history.append((self._version, event))
        for each in self._watches:
            each.put_nowait(event)

    # ------------------------------------------------------------ objects

    def _answer(self, method: str, path: str, body: Object) -> tuple[int, Object]:
        name = path.rpartition("/")[2]
        if path.startswith("/api/v1/nodes/"):
            return _found(self.nodes.get(name))
        if path == CLAIMS:
            items = [_named(claim, name) for name, claim in self.claims.items()]
            return 200, {"items": items, "metadata": {}}
        if "/resourceclaims/" in path:
            message = f'resourceclaims.resource.k8s.io "{name}" not found'
            found = self.claims.get(name)
            return _found(found and _named(found, name), message)
        if path == SLICES and method == "GET":
            version = {"resourceVersion": str(self._version)}
            return 200, {"items": copy.deepcopy([*self.slices.values()]), "metadata": version}
        if path == SLICES:
            prefix = body["metadata"]["generateName"]
            body["metadata"]["name"] = f"{prefix}{self._version:05}"
            return 201, self._store(body, "ADDED")
        if name not in self.slices:
            return _found(None)
        known = self.slices[name]["metadata"]
        given = body.get("preconditions") or body["metadata"]
        if given["resourceVersion"] != known["resourceVersion"]:
            return 409, {"reason": "Conflict", "message": "the object has been modified"}
        if method == "DELETE":
            self.delete(name)
            return 200, {"status": "Success"}
        return 200, self._store(body, "MODIFIED")

    def _store(self, made: Object, kind: str) -> Object:
        self.taken_in(made)
        self._version += 1
        name = made["metadata"]["name"]
        made["metadata"] |= {"resourceVersion": str(self._version), "uid": f"uid of {name}"}
        self.slices[name] = made
        self._tell(kind, made)
        return copy.deepcopy(made)


def _named(claim: Object, name: str) -> Object:
    return {**claim, "metadata": {"namespace": "default", "name": name, **claim["metadata"]}}


def _found(found: Object | None, message: str = "not found") -> tuple[int, Object]:
    if found is None:
        return 404, {"reason": "NotFound", "message": message}
    return 200, found


def claim_of(uid: str, *devices: str, driver: str = "example.com", **more: Any) -> Object:
    """Return a claim to which devices of the request `gpu` are allocated."""
    results = [
        {"request": "gpu", "driver": driver, "pool": "node1", "device": each, **more}
        for each in devices
    ]
    return {"metadata": {"uid": uid}, "status": {"allocation": {"devices": {"results": results}}}}
