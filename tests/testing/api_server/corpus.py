"""Requests as clients send them, for the stand-in and for a real API server: the same answers.

Each step may use what earlier steps were answered with. `run` returns the part of each answer that
has to be equal: status and reason, and of objects all that a server does not choose itself.
"""

import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubedevices.testing.api_server.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC

Call = Callable[[str, str, Mapping[str, str], bytes], tuple[int, Any]]
"""Sends method, path, headers and body; returns status and JSON, a list of events for a watch."""

Answers = dict[str, Any]
GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
SLICES = f"{GROUP}/resourceslices"
NODE = "corpus-node"
DRIVER = "corpus.example.com"
_CHOSEN_BY_SERVER = {
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "generation"),
    *("timeAdded", "nodeInfo", "daemonEndpoints", "taints"),
}


@dataclass(frozen=True)
class Step:
    """One request; path and body may be functions of the answers so far."""

    name: str
    method: str
    path: str | Callable[[Answers], str]
    body: Any = None
    kind: str = "application/json"
    accept: str = "application/json"


def a_slice(*devices: Any, name: str = "corpus-a", **spec: Any) -> Any:
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    made = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": list(devices), **spec}
    metadata = {"name": name, "labels": {"corpus": name}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": made,
    }


def a_claim(name: str, **exactly: Any) -> Any:
    request = {"name": "r", "exactly": {"deviceClassName": "corpus", **exactly}}
    metadata = {"name": name, "labels": {"corpus": name}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [request]}},
    }


def selecting(expression: str) -> Any:
    return a_claim("corpus-bad", selectors=[{"cel": {"expression": expression}}])


def _condition(kind: str, status: str) -> Any:
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}


def _applied(*devices: str, **labels: str) -> Any:
    made = a_claim("corpus-c")
    made["metadata"]["labels"] = labels
    del made["spec"]
    about = {"driver": DRIVER, "pool": NODE}
    made["status"] = {"devices": [about | {"device": each} for each in devices]}
    return made


RESULTS = [{"request": "r", "driver": DRIVER, "pool": NODE, "device": each} for each in "ab"]
ALLOCATION = {"devices": {"results": RESULTS}}


def _allocated(answers: Answers) -> Any:
    return answers["get claim"] | {"status": {"allocation": ALLOCATION}}


def _renamed(answers: Answers) -> Any:
    spec = answers["create slice"]["spec"] | {"driver": "another.example.com"}
    return answers["get slice"] | {"spec": spec}


def _second(answers: Answers) -> str:
    token = answers["first page"]["metadata"]["continue"]
    return f"{SLICES}?labelSelector=corpus&limit=1&continue={token}"


def _since(answers: Answers) -> str:
    version = answers["create slice"]["metadata"]["resourceVersion"]
    return f"{SLICES}?watch=1&timeoutSeconds=1&labelSelector=corpus&resourceVersion={version}"


WATCH = f"{SLICES}?watch=1&timeoutSeconds=1&labelSelector=corpus"

STEPS = [
    Step("version", "GET", "/version"),
    Step("groups", "GET", "/apis/resource.k8s.io/v1"),
    Step("unknown resource", "GET", f"{GROUP}/nothings"),
    Step("unknown version", "GET", "/apis/resource.k8s.io/v0/resourceslices"),
    Step("create node", "POST", "/api/v1/nodes", {"metadata": {"name": NODE}}),
    Step("create slice", "POST", SLICES, a_slice({"name": "a"})),
    Step("create slice again", "POST", SLICES, a_slice({"name": "a"})),
    Step("create second", "POST", SLICES, a_slice({"name": "b"}, name="corpus-b")),
    Step("bad device name", "POST", SLICES, a_slice({"name": "A.b"}, name="corpus-x")),
    Step("two devices of one name", "POST", SLICES,
         a_slice({"name": "a"}, {"name": "a"}, name="corpus-x")),
    Step("bad version", "POST", SLICES, a_slice(
        {"name": "a", "attributes": {"v": {"version": "1.0"}}}, name="corpus-x")),
    Step("129 devices", "POST", SLICES,
         a_slice(*({"name": f"d{i}"} for i in range(129)), name="corpus-x")),
    Step("65 tainted devices", "POST", SLICES, a_slice(
        *({"name": f"d{i}", "taints": [{"key": "k", "effect": "NoSchedule"}]} for i in range(65)),
        name="corpus-x")),
    Step("policy without sharing", "POST", SLICES, a_slice(
        {"name": "a", "capacity": {"m": {"value": "1", "requestPolicy": {"default": "1"}}}},
        name="corpus-x")),
    Step("no node", "POST", SLICES, a_slice({"name": "a"}, name="corpus-x", nodeName="")),
    Step("get slice", "GET", f"{SLICES}/corpus-a"),
    Step("get nothing", "GET", f"{SLICES}/corpus-none"),
    Step("by label", "GET", f"{SLICES}?labelSelector=corpus"),
    Step("by label set", "GET", f"{SLICES}?labelSelector=corpus%20in%20(corpus-b,x),!none"),
    Step("by field", "GET", f"{SLICES}?fieldSelector=spec.driver={DRIVER},spec.nodeName={NODE}"),
    Step("by another driver", "GET", f"{SLICES}?fieldSelector=spec.driver=none.example.com"),
    Step("by a bad field", "GET", f"{SLICES}?fieldSelector=spec.pool=x"),
    Step("first page", "GET", f"{SLICES}?labelSelector=corpus&limit=1"),
    Step("second page", "GET", _second),
    Step("bad page", "GET", f"{SLICES}?limit=1&continue=x"),
    Step("watch since", "GET", _since),
    Step("watch from zero", "GET", f"{WATCH}&resourceVersion=0"),
    Step("watch with initial events", "GET", f"{WATCH}&sendInitialEvents=true"
         "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
    Step("watch without match", "GET", f"{WATCH}&sendInitialEvents=true&allowWatchBookmarks=true"),
    Step("update", "PUT", f"{SLICES}/corpus-a",
         lambda answers: answers["get slice"] | {"spec": a_slice({"name": "c"})["spec"]}),
    Step("update of an old version", "PUT", f"{SLICES}/corpus-a",
         lambda answers: answers["get slice"]),
    Step("update of the driver", "PUT", f"{SLICES}/corpus-a", _renamed),
    Step("merge patch", "PATCH", f"{SLICES}/corpus-a",
         {"metadata": {"labels": {"new": "1", "corpus": "corpus-a"}}}, MERGE),
    Step("merge patch takes away", "PATCH", f"{SLICES}/corpus-a",
         {"metadata": {"labels": {"new": None}}}, MERGE),
    Step("JSON patch", "PATCH", f"{SLICES}/corpus-a",
         [{"op": "test", "path": "/spec/driver", "value": DRIVER},
          {"op": "add", "path": "/spec/devices/-", "value": {"name": "z"}},
          {"op": "replace", "path": "/spec/devices/0/name", "value": "y"}], JSON_PATCH),
    Step("JSON patch that fails", "PATCH", f"{SLICES}/corpus-a",
         [{"op": "test", "path": "/spec/driver", "value": "x"}], JSON_PATCH),
    Step("unknown patch", "PATCH", f"{SLICES}/corpus-a", {}, "application/json"),
    Step("patch of nothing", "PATCH", f"{SLICES}/corpus-none", {"metadata": {}}, MERGE),
    Step("node status", "PATCH", f"/api/v1/nodes/{NODE}/status",
         {"status": {"conditions": [_condition("A", "True"), _condition("B", "True")]}}, STRATEGIC),
    Step("strategic patch", "PATCH", f"/api/v1/nodes/{NODE}/status",
         {"status": {"conditions": [_condition("A", "False")]}}, STRATEGIC),
    Step("strategic patch deletes", "PATCH", f"/api/v1/nodes/{NODE}/status",
         {"status": {"conditions": [{"type": "B", "$patch": "delete"}]}}, STRATEGIC),
    Step("create claim", "POST", CLAIMS, a_claim("corpus-c")),
    Step("selector of a wrong type", "POST", CLAIMS, selecting("device.driver == 1")),
    Step("selector that is no bool", "POST", CLAIMS, selecting("1")),
    Step("selector that is too expensive", "POST", CLAIMS, selecting('["a"].join() == "a"')),
    Step("count of zero and All", "POST", CLAIMS,
         a_claim("corpus-bad", allocationMode="All", count=1)),
    Step("no class", "POST", CLAIMS, a_claim("corpus-bad", deviceClassName="")),
    Step("get claim", "GET", f"{CLAIMS}/corpus-c"),
    Step("claim spec is immutable", "PUT", f"{CLAIMS}/corpus-c", lambda answers: answers[
        "get claim"] | {"spec": a_claim("x", count=2)["spec"]}),
    Step("status in a plain update is ignored", "PUT", f"{CLAIMS}/corpus-c", _allocated),
    Step("update of the status", "PUT", f"{CLAIMS}/corpus-c/status", lambda answers: answers[
        "status in a plain update is ignored"] | {"status": {"allocation": ALLOCATION}}),
    Step("apply", "PATCH", f"{CLAIMS}/corpus-c/status?fieldManager=one&force=true",
         _applied("a", "b"), APPLY),
    Step("apply of less", "PATCH", f"{CLAIMS}/corpus-c/status?fieldManager=one&force=true",
         _applied("b"), APPLY),
    Step("apply of another manager", "PATCH",
         f"{CLAIMS}/corpus-c/status?fieldManager=two&force=true", _applied("a"), APPLY),
    Step("apply without manager", "PATCH", f"{CLAIMS}/corpus-c/status", _applied("a"), APPLY),
    Step("reserve", "PATCH", f"{CLAIMS}/corpus-c/status", {"status": {"reservedFor": [
        {"resource": "pods", "name": "p", "uid": "1"}]}}, STRATEGIC),
    Step("reserve for another", "PATCH", f"{CLAIMS}/corpus-c/status", {"status": {"reservedFor": [
        {"resource": "pods", "name": "q", "uid": "2"}]}}, STRATEGIC),
    Step("delete with a wrong uid", "DELETE", f"{SLICES}/corpus-a",
         {"preconditions": {"uid": "none"}}),
    Step("delete", "DELETE", f"{SLICES}/corpus-a",
         lambda answers: {"preconditions": {"uid": answers["get slice"]["metadata"]["uid"]}}),
    Step("delete again", "DELETE", f"{SLICES}/corpus-a"),
    Step("delete many", "DELETE", f"{SLICES}?labelSelector=corpus"),
    Step("none is left", "GET", f"{SLICES}?labelSelector=corpus"),
    Step("delete node", "DELETE", f"/api/v1/nodes/{NODE}"),
]  # fmt: skip


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
) -> tuple[int, Any]:
    """Send one request and close the connection; return what a `Call` returns."""
    try:
        connection.request(method, path, body or None, dict(headers))
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if "watch=1" in path and answer.status == 200:
        return answer.status, [json.loads(line) for line in data.splitlines()]
    return answer.status, json.loads(data)


def run(call: Call) -> dict[str, Any]:
    """Send all requests; return what has to be equal, by step."""
    answers: Answers = {}
    found = {}
    for step in STEPS:
        path = step.path if isinstance(step.path, str) else step.path(answers)
        body = step.body(answers) if callable(step.body) else step.body
        headers = {"Accept": step.accept, "Content-Type": step.kind}
        data = b"" if body is None else json.dumps(body).encode()
        status, answer = call(step.method, path, headers, data)
        answers[step.name] = answer
        found[step.name] = (status, _compared(step, answer))
    return found


def _compared(step: Step, answer: Any) -> Any:
    if isinstance(answer, list):
        events = [
            (each["type"], _compared(step, each["object"]))
            if each["type"] != "BOOKMARK"
            else (each["type"], each["object"]["metadata"].get("annotations"))
            for each in answer
        ]
        return [each for each in events if each[0] != "BOOKMARK" or each[1]]
    if answer.get("kind") == "Status":
        return answer.get("status"), answer.get("reason")
    if step.name == "version":
        return {key: answer[key] for key in ("major", "minor")}
    if step.name == "groups":
        known = ("deviceclasses", "resourceclaims", "resourceclaims/status", "resourceslices")
        return sorted(
            (each["name"], each["kind"], each["namespaced"], sorted(each["verbs"]))
            for each in answer["resources"]
            if each["name"] in known
        )
    if "items" in answer:
        metadata = answer["metadata"]
        more = ("continue" in metadata, metadata.get("remainingItemCount"))
        return answer["kind"], [_object(each) for each in answer["items"]], more
    return _object(answer)


def _object(found: Any) -> Any:
    """Return what a server does not choose; what is empty may be absent."""
    if isinstance(found, dict):
        kept = {key: _object(each) for key, each in found.items() if key not in _CHOSEN_BY_SERVER}
        return {key: value for key, value in kept.items() if value not in ({}, [], None, "")}
    return [_object(each) for each in found] if isinstance(found, list) else found
