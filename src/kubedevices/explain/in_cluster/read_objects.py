"""Reads from the API server what decides about pods and claims. asyncio.

What may not be read is left out, and the answer says so: a user with few rights gets the rest.
Of each object only what its shape names is kept. So a cluster of thousands of devices and pods fits
into little memory, and nothing else of a pod, such as its variables, can be in an answer.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote

from kubedevices.config.documents.kept import Kept
from kubedevices.config.documents.shape import Shape
from kubedevices.dra.api_client import ApiClient
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.explain.in_cluster.objects import (
    MOST_PODS,
    ClusterObjects,
    full_name,
    phase_of,
    wanted_resources,
)
from kubedevices.host import deadlines
from kubedevices.values.scheduling.kinds import KINDS, Object

DEADLINE = 60.0
"""Seconds for all calls together."""

_PAGE = 100
"""Objects in one answer: pods, and slices with all their devices, may be large."""

_META: Shape = {
    "name!": str,
    "namespace": str,
    "uid": str,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "finalizers": [str],
    "ownerReferences": [{"kind": str, "name": str, "uid": str, "controller": bool}],
}
_SELECTOR: Shape = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [{"key!": str, "operator!": str, "values": [str]}],
            "matchFields": [{"key!": str, "operator!": str, "values": [str]}],
        }
    ]
}
_TAINT: Shape = {"key!": str, "effect!": str, "value": str}
_TOLERATION: Shape = {"key": str, "operator": str, "value": str, "effect": str}
_RESOURCES: Shape = {"resources": {"limits": dict, "requests": dict}, "restartPolicy": str}
_ALLOCATED: Shape = [{"name": str, "resources": [{"resourceID": str, "health": str}]}]
_POD: Shape = {
    "metadata!": _META,
    "spec!": {
        "nodeName": str,
        "schedulerName": str,
        "nodeSelector": dict,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _SELECTOR}},
        "tolerations": [_TOLERATION],
        "schedulingGates": [{"name!": str}],
        "resourceClaims": [
            {"name!": str, "resourceClaimName": str, "resourceClaimTemplateName": str}
        ],
        "containers": [_RESOURCES],
        "initContainers": [_RESOURCES],
        "resources": {"limits": dict, "requests": dict},
        "overhead": dict,
    },
    "status": {
        "phase": str,
        "reason": str,
        "message": str,
        "conditions": [{"type!": str, "status": str, "message": str}],
        "resourceClaimStatuses": [{"name!": str, "resourceClaimName": str}],
        "containerStatuses": [
            {
                "name": str,
                "state": {"waiting": {"reason": str, "message": str}},
                "allocatedResourcesStatus": _ALLOCATED,
            }
        ],
        "initContainerStatuses": [{"name": str, "allocatedResourcesStatus": _ALLOCATED}],
    },
}
_CEL: Shape = [{"cel": {"expression!": str}}]
_REQUEST: Shape = {
    "name": str,
    "deviceClassName": str,
    "selectors": _CEL,
    "allocationMode": str,
    "count": int,
    "adminAccess": bool,
    "tolerations": [_TOLERATION],
    "capacity": {"requests": dict},
}
_CLAIM: Shape = {
    "metadata!": _META,
    "spec!": {
        "devices": {
            "requests": [{"name!": str, "exactly": _REQUEST, "firstAvailable": [_REQUEST]}],
            "constraints": [{"matchAttribute": str, "distinctAttribute": str, "requests": [str]}],
        }
    },
    "status": {
        "allocation": {
            "nodeSelector": _SELECTOR,
            "devices": {
                "results": [
                    {
                        "driver!": str,
                        "pool!": str,
                        "device!": str,
                        "shareID": str,
                        "adminAccess": bool,
                        "consumedCapacity": dict,
                    }
                ]
            },
        },
        "reservedFor": [{"resource": str, "name!": str, "uid": str}],
    },
}
_SLICE: Shape = {
    "metadata!": _META,
    "spec!": {
        "driver!": str,
        "nodeName": str,
        "allNodes": bool,
        "perDeviceNodeSelection": bool,
        "nodeSelector": _SELECTOR,
        "pool!": {"name!": str, "generation!": int, "resourceSliceCount!": int},
        "sharedCounters": [{"name!": str, "counters!": dict}],
        "devices": [
            {
                "name!": str,
                "nodeName": str,
                "allNodes": bool,
                "nodeSelector": _SELECTOR,
                "bindsToNode": bool,
                "bindingConditions": [str],
                "attributes": dict,
                "capacity": dict,
                "taints": [_TAINT],
                "consumesCounters": [{"counterSet!": str, "counters!": dict}],
                "allowMultipleAllocations": bool,
            }
        ],
    },
}
# What a list of the devices shows: in a large cluster, the attributes are most of the memory.
_NAMES_OF_SLICE: Shape = {
    "metadata!": _META,
    "spec!": {
        **{key: _SLICE["spec!"][key] for key in ("driver!", "nodeName", "allNodes", "pool!")},
        "perDeviceNodeSelection": bool,
        "devices": [{"name!": str, "nodeName": str, "allNodes": bool, "taints": [_TAINT]}],
    },
}
SHAPES: dict[str, Shape] = {
    "pods": _POD,
    "resourceclaims": _CLAIM,
    "resourceclaimtemplates": {"metadata!": _META},
    "deviceclasses": {
        "metadata!": _META,
        "spec": {"selectors": _CEL, "extendedResourceName": str},
    },
    "resourceslices": _SLICE,
    "nodes": {
        "metadata!": {**_META, "labels": dict},
        "spec": {"unschedulable": bool, "taints": [_TAINT]},
        "status": {
            "capacity": dict,
            "allocatable": dict,
            "conditions": [
                {"type!": str, "status": str, "message": str, "lastTransitionTime": str}
            ],
        },
    },
    "events": {
        "metadata!": _META,
        "involvedObject": {"uid": str, "name": str, "namespace": str},
        "type": str,
        "reason": str,
        "message": str,
        "lastTimestamp": str,
        "eventTime": str,
    },
}


class _Found(NamedTuple):
    plural: str
    items: list[Object]
    problem: str = ""
    note: str = ""


async def look_at_cluster(api: ApiClient, namespace: str, pod: str = "") -> ClusterObjects:
    """Return what a user may read; with `pod`, the events of this pod of the namespace too.

    Raises `ApiUnreachable`.
    """
    reads = [_read(api, "deviceclasses"), _read(api, "resourceclaimtemplates", namespace)]
    if pod:
        fields = f"involvedObject.kind=Pod,involvedObject.name={pod}"
        reads.append(_read(api, "events", namespace, fields))
    return await _look(api, namespace, [_read(api, "resourceslices"), *reads])


async def look_at_all(api: ApiClient, namespace: str) -> ClusterObjects:
    """Return the whole cluster, with the events of some pods that do not start or do not end.

    Raises `ApiUnreachable`.
    """
    found = await look_at_cluster(api, namespace)
    stuck = [
        each
        for each in found.pods
        if each["spec"].get("nodeName")
        and (phase_of(each) == "Pending" or each["metadata"].get("deletionTimestamp"))
        and (each["spec"].get("resourceClaims") or wanted_resources(each))
    ]
    events, problem = [], ""
    for pod in stuck[:MOST_PODS]:
        of, name = full_name(pod).split("/")
        fields = f"involvedObject.kind=Pod,involvedObject.name={name}"
        read = await _read(api, "events", of, fields)
        events += read.items
        problem = problem or read.problem
    unread = {**found.unread, "events": problem} if problem else found.unread
    return replace(found, events=events, unread=unread)


async def look_at_devices(api: ApiClient, namespace: str) -> ClusterObjects:
    """Return the devices of a cluster and who holds them, without classes and templates.

    Raises `ApiUnreachable`.
    """
    slices = _read(api, "resourceslices", shape=_NAMES_OF_SLICE)
    return await _look(api, namespace, [slices])


async def _look(
    api: ApiClient, namespace: str, reads: list[Coroutine[Any, Any, _Found]]
) -> ClusterObjects:
    reads.append(_read(api, "nodes"))
    reads += [_read_wide(api, plural, namespace) for plural in ("pods", "resourceclaims")]
    try:
        async with deadlines.timeout(DEADLINE):
            found = {each.plural: each for each in await asyncio.gather(*reads)}
    except TimeoutError:
        raise ApiUnreachable(api.server, f"not all objects in {DEADLINE:g} s") from None
    items = {plural: each.items for plural, each in found.items()}
    return ClusterObjects(
        pods=items["pods"],
        claims=items["resourceclaims"],
        templates=items.get("resourceclaimtemplates", []),
        classes=items.get("deviceclasses", []),
        slices=items["resourceslices"],
        listed_nodes=items["nodes"],
        events=items.get("events", []),
        unread={plural: each.problem for plural, each in found.items() if each.problem},
        notes=tuple(each.note for each in found.values() if each.note),
        read_at=time.time(),
    )


async def _read_wide(api: ApiClient, plural: str, namespace: str) -> _Found:
    """Read all namespaces, or the one that the user may read."""
    found = await _read(api, plural)
    if not found.problem:
        return found
    narrow = await _read(api, plural, namespace)
    if narrow.problem:
        return found
    return narrow._replace(
        note=f"only those {plural} of the namespace {namespace} were read: {found.problem}"
    )


async def _read(
    api: ApiClient,
    plural: str,
    namespace: str = "",
    fields: str = "",
    shape: Shape | None = None,
) -> _Found:
    kind = KINDS[plural]
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    path = f"{root}/namespaces/{quote(namespace)}/{plural}" if namespace else f"{root}/{plural}"
    items: Shape = [shape or SHAPES[plural]]
    listed: Shape = {"metadata": {"continue": str}, "items": items}
    for is_last in (False, True):
        found: list[Object] = []
        try:
            async with contextlib.aclosing(
                api.pages(path, listed, page=_PAGE, fields=fields)
            ) as pages:
                async for each in pages:
                    found += Kept().of(each, items)
        except ApiRefused as error:
            if (
                error.status == 410 and not is_last
            ):  # the list took longer than the server remembers
                continue
            if error.status == 404 and not kind.group:
                reason = f"what answers there has no {path}, so it is none"
                raise ApiUnreachable(api.server, reason) from error
            return _Found(plural, [], _why(error, kind.api_version))
        break
    return _Found(plural, found)


def _why(error: ApiRefused, api_version: str) -> str:
    if error.status == 403 and error.missing_rule:
        return f"you need the RBAC rule {error.missing_rule}"
    if error.status == 404:
        return f"the API server does not serve {api_version}"
    return error.message or error.reason or f"status {error.status}"
