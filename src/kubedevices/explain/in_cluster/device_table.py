"""The devices of a cluster, of both APIs, with their holders: `devices --cluster`. Pure.

ResourceSlices name the devices of DRA drivers. Of a device plugin the API server knows only the
numbers of each node, and the names of devices that the kubelets write into the status of pods
(feature gate ResourceHealthStatus, on by default since Kubernetes 1.36).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from kubedevices.explain.in_cluster.objects import (
    ClusterObjects,
    DeviceHolder,
    full_name,
    is_extended,
    is_over,
    resources_of,
    wanted_resources,
)
from kubedevices.values.scheduling.capacities import Key
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.pools import is_complete, newest

EVERY_NODE, SEVERAL_NODES = "*", "several"
"""Instead of the name of a node: devices that all nodes may use, or those that a selector names."""

_BAD_FIRST = ("Unhealthy", "Unknown", "Healthy")
_Named = tuple[str, str, str]
"""Node, resource and ID of a device of a device plugin."""


class _Status(NamedTuple):
    """What the status of a pod says about one device."""

    pod: str
    node: str
    resource: str
    device_id: str
    health: str


class DeviceTable:
    """The devices of a cluster; of one resource or driver if `only` is not empty."""

    def __init__(self, cluster: ClusterObjects, only: str = "") -> None:
        self._cluster, self._only = cluster, only

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON and YAML; the keys are public."""
        return {
            "devices": [*self._of_drivers(), *self._without_slice(), *self._of_plugins()],
            "resources": [*self._numbers()],
            "problems": [*self._problems()],
            "notes": [*self._cluster.notes],
            "unread": [f"{plural}: {why}" for plural, why in self._cluster.unread.items()],
        }

    def names(self) -> set[str]:
        """Return all resources and drivers that are known, whatever `only` is."""
        found = {driver for driver, _ in self._cluster.pools}
        found |= {driver for driver, _, _ in self._cluster.holders}
        found |= {resource for _, resource, _ in self._named}
        for node in self._cluster.nodes:
            found |= {*filter(is_extended, (node.get("status") or {}).get("capacity") or {})}
        return found

    def _has(self, name: str) -> bool:
        return self._only in ("", name)

    # ------------------------------------------------------------ DRA

    def _of_drivers(self) -> Iterator[dict[str, Any]]:
        """Yield the devices in the newest slices of each pool."""
        for (driver, pool), slices in sorted(self._cluster.pools.items()):
            if not self._has(driver):
                continue
            for each in sorted(newest(slices), key=lambda found: str(found["metadata"]["name"])):
                spec = each["spec"]
                for device in spec.get("devices") or ():
                    node = _node_of(device if spec.get("perDeviceNodeSelection") else spec)
                    taints = device.get("taints") or ()
                    yield self._device((driver, pool, device["name"]), node, taints)

    def _without_slice(self) -> Iterator[dict[str, Any]]:
        """Yield the devices that claims have, and no slice; the driver lost them, or is away."""
        node_of = {full_name(each): each["spec"].get("nodeName") for each in self._cluster.pods}
        published = None if "resourceslices" in self._cluster.unread else False
        for key, holders in sorted(self._cluster.holders.items()):
            if key not in self._published and self._has(key[0]):
                pods = (pod for holder in holders for pod in holder.pods)
                node = next((found for pod in pods if (found := node_of.get(pod))), "")
                yield self._device(key, node, ()) | {"published": published}

    def _device(self, key: Key, node: str, taints: Any) -> dict[str, Any]:
        driver, pool, name = key
        return {
            "node": node,
            "resource": driver,
            "api": "dra",
            "pool": pool,
            "device": name,
            "published": True,
            "health": self._health_of.get("/".join(key), ""),
            "taints": [
                {name: each.get(name, "") for name in ("key", "value", "effect")} for each in taints
            ],
            "held_by": [
                user for each in self._cluster.holders.get(key, ()) for user in _users_of(each)
            ],
            "is_conflict": key in self._cluster.conflicts,
        }

    @cached_property
    def _published(self) -> set[Key]:
        return {
            (driver, pool, device["name"])
            for (driver, pool), slices in self._cluster.pools.items()
            for each in newest(slices)
            for device in each["spec"].get("devices") or ()
        }

    # ------------------------------------------------------------ device plugins

    @cached_property
    def _statuses(self) -> list[_Status]:
        return [status for pod in self._cluster.pods if not is_over(pod) for status in _read(pod)]

    @cached_property
    def _health_of(self) -> dict[str, str]:
        """The health of DRA devices that pods have, by DRIVER/POOL/DEVICE; the worst counts."""
        found: dict[str, str] = {}
        for each in self._statuses:
            if each.resource.startswith("claim:"):
                before = found.get(each.device_id, each.health)
                found[each.device_id] = min(before, each.health, key=_badness)
        return found

    @cached_property
    def _named(self) -> dict[_Named, dict[str, str]]:
        """The devices of device plugins that have a name: pod and health."""
        found: dict[_Named, dict[str, str]] = defaultdict(dict)
        for each in self._statuses:
            if not each.resource.startswith("claim:"):
                found[each.node, each.resource, each.device_id][each.pod] = each.health
        return found

    def _of_plugins(self) -> Iterator[dict[str, Any]]:
        for (node, resource, device_id), pods in sorted(self._named.items()):
            if self._has(resource):
                yield {
                    "node": node,
                    "resource": resource,
                    "api": "device-plugin",
                    "pool": "",
                    "device": device_id,
                    "published": None,
                    "health": min(pods.values(), key=_badness),
                    "taints": [],
                    "held_by": [_holder(pod) for pod in pods],
                    "is_conflict": len(pods) > 1,
                }

    def _numbers(self) -> Iterator[dict[str, Any]]:
        """Yield the numbers of each node and extended resource, and the pods with such devices."""
        for node in self._cluster.nodes:
            name = node["metadata"]["name"]
            for resource, (capacity, allocatable) in resources_of(node).items():
                if is_extended(resource) and self._has(resource):
                    users = self._users.get((name, resource), {})
                    yield {
                        "node": name,
                        "resource": resource,
                        "capacity": int(capacity),
                        "allocatable": int(allocatable),
                        "held": int(sum(users.values())),
                        "held_by": [
                            {**_split(pod), "number": int(count)} for pod, count in users.items()
                        ],
                    }

    @cached_property
    def _users(self) -> dict[tuple[str, str], dict[str, Fraction]]:
        """The pods with extended resources, by node and resource, and their number."""
        found: dict[tuple[str, str], dict[str, Fraction]] = defaultdict(dict)
        for node, pods in self._cluster.pods_on.items():
            for pod in pods:
                for resource, number in wanted_resources(pod).items():
                    found[node, resource][full_name(pod)] = number
        return found

    # ------------------------------------------------------------ what is wrong

    def _problems(self) -> Iterator[str]:
        for key, holders in self._cluster.conflicts.items():
            if self._has(key[0]):
                yield f"{'/'.join(key)} has {len(holders)} holders: {'; '.join(map(str, holders))}"
        for (node, resource, device_id), pods in sorted(self._named.items()):
            if self._has(resource) and len(pods) > 1:
                yield (
                    f"{device_id} of {resource} on node {node} has {len(pods)} holders: "
                    f"pods {', '.join(pods)}"
                )
        for pool, slices in sorted(self._cluster.pools.items()):
            if self._has(pool[0]) and not is_complete(newest(slices)):
                yield (
                    f"pool {'/'.join(pool)} has {self._cluster.count_of_slices(pool)}: none of its "
                    "devices is allocated before all slices are there"
                )


def _read(pod: Object) -> Iterator[_Status]:
    """Yield the devices that a kubelet names in the status of a pod."""
    status, node = pod.get("status") or {}, pod["spec"].get("nodeName") or ""
    for kind in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(kind) or ():
            for each in container.get("allocatedResourcesStatus") or ():
                for device in each.get("resources") or ():
                    names = each.get("name", ""), device.get("resourceID", "")
                    yield _Status(full_name(pod), node, *names, device.get("health", ""))


def _badness(health: str) -> int:
    return _BAD_FIRST.index(health) if health in _BAD_FIRST else len(_BAD_FIRST)


def _node_of(spec: Mapping[str, Any]) -> str:
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    return EVERY_NODE if spec.get("allNodes") else SEVERAL_NODES


def _users_of(holder: DeviceHolder) -> Iterator[dict[str, str]]:
    namespace, _, claim = holder.claim.partition("/")
    for pod in holder.pods or (f"{namespace}/",):
        yield _holder(pod, claim)


def _holder(pod: str, claim: str = "") -> dict[str, str]:
    return _split(pod) | {"claim": claim}


def _split(pod: str) -> dict[str, str]:
    namespace, _, name = pod.partition("/")
    return {"namespace": namespace, "pod": name}
