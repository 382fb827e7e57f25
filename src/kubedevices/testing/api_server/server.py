"""`ApiServer`: the stand-in for an API server, on a port of the loopback address. asyncio."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.host import deadlines
from kubedevices.testing.api_server import scheduler
from kubedevices.testing.api_server.http import (
    Answer,
    ApiFault,
    ApiRequest,
    Handler,
    serve,
    status_of,
)
from kubedevices.testing.api_server.kinds import KINDS, ApiPath, Object, field_selector
from kubedevices.testing.api_server.store import Store, WatchEvent
from kubedevices.values.allocation import ClaimReference

_WATCH_SECONDS = 1800.0


class ApiServer:
    """Stores objects and serves them over HTTP.

    Set `fault` to break calls. `requests` are all calls, watches included. A test calls `get`,
    `put`, `delete` and `find` directly, without HTTP and without faults.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.requests: list[ApiRequest] = []
        self.fault: Callable[[ApiRequest], ApiFault | None] = lambda _request: None
        self.token = ""
        """If not empty, requests without this token are refused."""

        self.watches = 0
        """The number of watches that have started."""

        self._port = 0
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<ApiServer {self.url} {len(self.requests)} requests>"

    # ------------------------------------------------------------ start and stop

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["ApiServer"]:
        """Serve in this context."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        """Listen, after a `stop` at the same address again."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections and refuse new connections. Objects stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
        self._wake_watches()
        return stored

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object; raises `ApiRefused`, not found."""
        self.store.delete(ApiPath(plural, namespace, name))
        self._wake_watches()

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
                node_name=node_name,
                slices=self.find("resourceslices"),
                claims=self.find("resourceclaims"),
                classes={each["metadata"]["name"]: each for each in self.find("deviceclasses")},
            )
        consumer = {"resource": "pods", "name": pod_uid, "uid": pod_uid}
        if pod_group:
            consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
            consumer |= {"name": pod_group, "uid": pod_group}
        reserved = status.setdefault("reservedFor", [])
        if consumer not in reserved:
            reserved.append(consumer)
        self.put("resourceclaims", claim)

    def _check_running(self) -> None:
        if self._server is None:
            raise ApiUnreachable(self.url, "Connection refused")

    # ------------------------------------------------------------ requests

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await serve(Handler(self._fault, self._answer), reader, writer)
        except (ConnectionError, asyncio.CancelledError):
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
        place, verb = request.place, request.verb
        if place is None or not verb:
            raise ApiRefused("call", 404, "NotFound", "the server could not find the resource")
        if verb == "get":
            return 200, self.store.get(place)
        if verb in ("list", "watch", "deletecollection"):
            return self._answer_many(request, place)
        try:
            return self._write(request, place)
        finally:
            self._wake_watches()

    def _answer_many(self, request: ApiRequest, place: ApiPath) -> Answer:
        selected = field_selector(place.plural, request.query.get("fieldSelector", ""))
        if request.verb == "watch":
            return self._watch(request, place)
        found = self.store.select(place, selected)
        if request.verb == "deletecollection":
            for each in found:
                metadata = each["metadata"]
                namespace = metadata.get("namespace", "")
                self.store.delete(ApiPath(place.plural, namespace, metadata["name"]))
            self._wake_watches()
        kind = KINDS[place.plural]
        for each in found:  # in a list, items have neither: the list has them
            del each["kind"], each["apiVersion"]
        return 200, {
            "kind": f"{kind.name}List",
            "apiVersion": kind.api_version,
            "metadata": {"resourceVersion": str(self.store.version)},
            "items": found,
        }

    def _write(self, request: ApiRequest, place: ApiPath) -> Answer:
        verb, body = request.verb, request.body
        if verb == "create":
            return 201, self.store.create(place, body, _now())
        if verb == "update":
            return 200, self.store.update(place, body, _now())
        if verb == "patch":
            found = _merged(self.store.get(place), body)
            return 200, self.store.update(place, found, _now())
        return 200, self.store.delete(place, body.get("preconditions"))

    async def _watch(self, request: ApiRequest, place: ApiPath) -> AsyncIterator[Object]:
        """Yield events until the caller's `timeoutSeconds`, or until the version is too old."""
        self.watches += 1
        query = request.query
        selected = field_selector(place.plural, query.get("fieldSelector", ""))
        at = int(query.get("resourceVersion") or 0)
        if at == 0:
            at = self.store.version
            for each in self.store.select(place, selected):
                yield {"type": "ADDED", "object": each}
        seconds = float(query.get("timeoutSeconds", _WATCH_SECONDS))
        end = asyncio.get_running_loop().time() + seconds
        while True:
            changed = self._changed
            try:
                events = self.store.since(at)
            except ApiRefused as error:  # sent as an event; the status of the answer is 200
                problem = status_of(error.status, error.reason, error.message)
                yield {"type": "ERROR", "object": problem}
                return
            for event in events:
                at = event.version
                if made := _watched(event, place, selected):
                    yield made
            try:
                async with deadlines.timeout_at(end):
                    await changed.wait()
            except TimeoutError:
                return

    def _wake_watches(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()


def _watched(
    event: WatchEvent, place: ApiPath, selected: Callable[[Object], bool]
) -> Object | None:
    """Return the event as a watch sends it; None if the watch does not select the object.

    A change may add the object to the selection (ADDED) or remove it (DELETED).
    """
    if event.plural != place.plural:
        return None
    if place.namespace and event.object["metadata"].get("namespace") != place.namespace:
        return None
    was_selected = event.before is not None and selected(event.before)
    if event.type == "DELETED":
        kind = "DELETED" if was_selected else ""
    elif selected(event.object):
        kind = "MODIFIED" if was_selected else "ADDED"
    else:
        kind = "DELETED" if was_selected else ""
    return {"type": kind, "object": event.object} if kind else None


def _merged(found: Object, patch: Mapping[str, Any]) -> Object:
    """Return an object after a JSON merge patch (RFC 7396)."""
    made = dict(found)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict):
            inner = made.get(key)
            made[key] = _merged(inner if isinstance(inner, dict) else {}, value)
        else:
            made[key] = value
    return made


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
