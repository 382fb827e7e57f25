"""`ApiServer`: the stand-in for an API server, on a port of the loopback address. asyncio."""

import asyncio
import contextlib
import json
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Self

from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.testing.api_server.certificate import server_context
from kubedevices.testing.api_server.discovery import discovered
from kubedevices.testing.api_server.faults import ApiFault
from kubedevices.testing.api_server.http import (
    Answer,
    ApiRequest,
    accepts_json,
    check_write,
    deleted,
    serve,
)
from kubedevices.testing.api_server.patches import APPLY, applied, patched
from kubedevices.testing.api_server.selections import field_selector, page, selection
from kubedevices.testing.api_server.store import Store
from kubedevices.testing.api_server.watching import Watches, check_watch
from kubedevices.values.allocation import ClaimReference
from kubedevices.values.scheduling import scheduler
from kubedevices.values.scheduling.kinds import KINDS, POD_GROUP, ApiPath, Object

_STEPS = 6
"""Turns of the loop from accepting a connection until its transport is here, and some more."""


class ApiServer:
    """Stores objects and serves them over HTTP, with `tls` at a second port over TLS as well.

    Set `fault` to break calls. `requests` are all calls, watches included. A test calls `get`,
    `put`, `delete` and `find` directly, without HTTP and without faults.
    """

    def __init__(self, *, tls: bool = False) -> None:
        self.store = Store()
        self.requests: list[ApiRequest] = []
        self.fault: Callable[[ApiRequest], ApiFault | None] = lambda _request: None
        self.token = ""
        """If not empty, requests without this token are refused."""

        self._watches = Watches(lambda: self.store)
        self._applied: dict[tuple[ApiPath, str], Object] = {}
        self._port = self.tls_port = 0
        self._has_tls = tls
        self._server: asyncio.Server | None = None
        self._tls_server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<ApiServer {self.url} {len(self.requests)} requests>"

    # ------------------------------------------------------------ start and stop

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Serve in this context."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        """Listen, after a `stop` at the same address again."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        if self._has_tls:
            self._tls_server = await asyncio.start_server(
                self._accept, "127.0.0.1", self.tls_port, ssl=server_context()
            )
            self.tls_port = self._tls_server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections and refuse new connections. Objects stay."""
        servers = [each for each in (self._server, self._tls_server) if each is not None]
        # First no new connections: asyncio loses one that it accepts while a server closes.
        for listening in (each for server in servers for each in server.sockets):
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(_STEPS):
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        self._server = self._tls_server = None
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # `close` waits until the caller has read all, who may be gone.
        for transport in [*self._transports]:
            transport.abort()
        await asyncio.sleep(0)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._port}"

    def kubeconfig(self, token: str = "") -> str:
        """Return the text of a kubeconfig file for this server."""
        user = {"token": token or self.token or "none"}
        context = {"name": "stub", "context": {"cluster": "stub", "user": "stub"}}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "stub",
                "contexts": [context],
                "clusters": [{"name": "stub", "cluster": {"server": self.url}}],
                "users": [{"name": "stub", "user": user}],
            }
        )

    # ------------------------------------------------------------ calls of a test

    def get(self, plural: str, name: str, namespace: str = "default") -> Object:
        """Return an object, for example of `nodes`; raises `ApiRefused`, not found."""
        return self.store.get(ApiPath(plural, namespace, name))

    def find(self, plural: str, selector: str = "") -> list[Object]:
        """Return all objects of a kind, or the objects that a field selector matches."""
        return self.store.select(ApiPath(plural, "", ""), field_selector(plural, selector))

    def put(self, plural: str, made: Object) -> Object:
        """Create an object, or replace it, status included; raises `ApiRefused`, invalid."""
        metadata = made.get("metadata", {})
        name, namespace = metadata.get("name", ""), metadata.get("namespace", "default")
        place = ApiPath(plural, namespace if KINDS[plural].is_namespaced else "", name)
        try:
            self.store.get(place)
        except ApiRefused:
            stored = self.store.create(place._replace(name=""), made, _now())
        else:
            stored = self.store.update(place, made, _now())
            if KINDS[plural].has_status and "status" in made:
                status = {"metadata": {"name": name}, "status": made["status"]}
                stored = self.store.update(place._replace(subresource="status"), status, _now())
        self._watches.wake()
        return stored

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object; raises `ApiRefused`, not found."""
        self.store.delete(ApiPath(plural, namespace, name))
        self._watches.wake()

    @property
    def watches(self) -> int:
        """The number of watches that have started."""
        return self._watches.started

    def end_watch(self, plural: str, last: bytes = b"") -> None:
        """End one watch of a kind after these bytes, as a server or a proxy in between may do."""
        self._watches.end(plural, last)

    def forget_events(self) -> None:
        """Forget all events, as a server does after minutes: older watches get status 410."""
        self.store.forget_events()

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the number of calls by verb and resource, such as `("list", "resourceslices")`."""
        return Counter((each.verb, each.resource) for each in self.requests)

    # ------------------------------------------------------------ calls of a kubelet, and pods

    async def get_claim(self, claim: ClaimReference) -> Mapping[str, Any]:
        """Return a claim, for `dra_kubelet.ClusterApi`; raises `ApiUnreachable` while stopped."""
        self._check_running()
        return self.get("resourceclaims", claim.name, claim.namespace)

    async def delete_slices(self, node_name: str, driver: str) -> None:
        """Delete the slices of a driver on a node; an empty `driver` means all drivers."""
        self._check_running()
        selector = f"spec.nodeName={node_name}" + (f",spec.driver={driver}" if driver else "")
        for each in self.find("resourceslices", selector):
            self.delete("resourceslices", each["metadata"]["name"])

    def allocate(
        self,
        name: str,
        pod_uid: str,
        node_name: str,
        namespace: str = "default",
        *,
        pod_group: str = "",
    ) -> None:
        """Allocate devices to a claim and reserve the claim for a pod, as the scheduler does.

        With `pod_group` the claim is reserved for this PodGroup instead (KEP-5729). Raises
        `scheduler.NotAllocatable`; a pod would stay pending then.
        """
        claim = self.get("resourceclaims", name, namespace)
        status = claim.setdefault("status", {})
        if "allocation" not in status:
            status["allocation"] = scheduler.allocate(
                claim,
                node=self._node(node_name),
                slices=self.find("resourceslices"),
                claims=self.find("resourceclaims"),
                classes={each["metadata"]["name"]: each for each in self.find("deviceclasses")},
            )
        consumer = {"resource": "pods", "name": pod_uid, "uid": pod_uid}
        if pod_group:
            consumer = {**POD_GROUP, "name": pod_group, "uid": pod_group}
        reserved = status.setdefault("reservedFor", [])
        if consumer not in reserved:
            reserved.append(consumer)
        self.put("resourceclaims", claim)

    def _node(self, name: str) -> Object:
        """Return a node, or an object with only the name."""
        try:
            return self.get("nodes", name)
        except ApiRefused:
            return {"metadata": {"name": name}}

    def _check_running(self) -> None:
        if self._server is None:
            raise ApiUnreachable(self.url, "Connection refused")

    # ------------------------------------------------------------ requests

    def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Coroutine[Any, Any, None]:
        self._transports.add(writer.transport)
        return self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await serve(self._fault, self._answer, reader, writer)
        except (OSError, asyncio.CancelledError):  # OSError: TLS may fail too
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def _fault(self, request: ApiRequest) -> ApiFault | None:
        self.requests.append(request)
        if self.token and request.token != self.token:
            return ApiFault(401, "Unauthorized", "Unauthorized")
        return self.fault(request)

    async def _answer(self, request: ApiRequest) -> Answer:
        if request.path in ("/healthz", "/livez", "/readyz"):
            return 200, "ok"
        if not accepts_json(request.accept):
            problem = "only the following media types are accepted: application/json"
            raise ApiRefused("call", 406, "NotAcceptable", problem)
        if request.method == "GET" and (found := discovered(request.path)):
            return 200, found
        place, verb = request.place, request.verb
        if place is None or not verb:
            raise ApiRefused(
                "call", 404, "NotFound", "the server could not find the requested resource"
            )
        if verb == "get" and request.query.get("watch") not in ("1", "true"):
            return 200, self.store.get(place)
        if verb in ("get", "watch"):
            check_watch(request.query)
            return self._watches.events(request, place)
        if verb == "list":
            return 200, self._list(request, place)
        check_write(request)
        try:
            return self._write(request, place)
        finally:
            self._watches.wake()

    def _list(self, request: ApiRequest, place: ApiPath) -> Object:
        query, store, kind = request.query, self.store, KINDS[place.plural]
        found = store.peek(place, selection(place.plural, query))
        made = page(found, query, store.version, store.oldest)
        made["items"] = [  # in a list, items have neither: the list has them
            {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
            for each in made["items"]
        ]
        return {"kind": f"{kind.name}List", "apiVersion": kind.api_version} | made

    def _write(self, request: ApiRequest, place: ApiPath) -> Answer:
        verb, body = request.verb, request.body
        if verb == "create":
            return 201, self.store.create(place, body, _now())
        if verb == "update":
            return 200, self.store.update(place, body, _now())
        if verb == "patch":
            return self._patch(request, place)
        if verb == "delete":
            gone = self.store.delete(place, body.get("preconditions"))
            return 200, gone if KINDS[place.plural].is_shown_deleted else deleted(gone, place)
        found = self._list(request, place)
        for each in found["items"]:
            metadata = each["metadata"]
            there = ApiPath(place.plural, metadata.get("namespace", ""), metadata["name"])
            self.store.delete(there)
        return 200, found

    def _patch(self, request: ApiRequest, place: ApiPath) -> Answer:
        body = request.body
        if request.content_type != APPLY:
            made = patched(self.store.get(place), body, request.content_type)
            return 200, self.store.update(place, made, _now())
        manager = request.query.get("fieldManager", "")
        if not manager:
            problem = "fieldManager: Required value: is required for apply patch"
            text = f'PatchOptions.meta.k8s.io "" is invalid: {problem}'
            raise ApiRefused("patch", 422, "Invalid", text)
        before, self._applied[place, manager] = self._applied.get((place, manager), {}), body
        try:
            found = self.store.get(place)
        except ApiRefused:
            if place.subresource:
                raise
            return 201, self.store.create(place._replace(name=""), body, _now())
        return 200, self.store.update(place, applied(found, before, body), _now())


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
