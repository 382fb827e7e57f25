"""Nodes without machines for KWOK, whose devices change as in a timeline of the simulator. Pure.

KWOK (sigs.k8s.io/kwok) acts as the kubelet of fake nodes. There is no plugin: a device plugin's
devices are only numbers in the status of a node, and a driver's devices are ResourceSlices. Stages
of KWOK (kwok.x-k8s.io/v1alpha1) change both: an annotation says at which state of the timeline an
object is, and a Stage for each state waits, changes the object and its annotation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kubedevices.manifests.deployment import kube_object
from kubedevices.manifests.dra_access import DRA, RBAC
from kubedevices.values.device import Health
from kubedevices.values.device_tree import DeviceTree

Object = dict[str, Any]

STATE = "kubedevices-state"
"""Annotation: the number of the state of the timeline."""

SET = "kubedevices-kwok"
"""Label of everything that belongs together."""

_FAKE = "kwok.x-k8s.io/node"
_IS_READY = {
    "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
    "operator": "In",
    "values": ["True"],
}
"""Before it is ready, other Stages make the node ready: ours would take their place."""

_OTHER_RESOURCES = {"cpu": "32", "memory": "256Gi", "pods": "110"}


class State(NamedTuple):
    """The devices from `at` on, in seconds since the start: as a tree and as of a driver."""

    at: float
    tree: DeviceTree
    devices: Sequence[Object] = ()


@dataclass(frozen=True)
class FakeNodes:
    """What to print.

    name    the beginning of each name
    count   the number of nodes
    domain  the part of the resource names before the slash: the name of the driver
    states  the states of the timeline; with `loops`, the first one follows the last one
    is_dra  the devices are in ResourceSlices, not in the status of the nodes
    slice_size  the most devices of a slice
    """

    name: str
    count: int
    domain: str
    states: Sequence[State]
    loops: bool
    is_dra: bool
    slice_size: int

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes."""
        return [f"{self.name}-{number}" for number in range(self.count)]


def kwok_objects(nodes: FakeNodes) -> list[Object]:
    """Return nodes, slices, rights and Stages, in the order to apply them."""
    if not nodes.is_dra:
        counts = [_counts(nodes.domain, each.tree) for each in nodes.states]
        found = [_node(nodes, name, counts[0]) for name in nodes.node_names]
        return [*found, *_stages(nodes, _NODE, nodes.name, counts)]
    none = _counts(nodes.domain, DeviceTree())
    found = [_node(nodes, name, none) for name in nodes.node_names]
    slices = _slices(nodes)
    for name in nodes.node_names:
        found += [_slice(nodes, name, index, slices) for index in range(len(slices))]
    if len(nodes.states) > 1:
        found += _rights(nodes)
    for index, changes in enumerate(slices):
        found += _stages(nodes, _SLICE, _of_slice(nodes, index), changes)
    return found


def _node(nodes: FakeNodes, name: str, counts: Mapping[str, Mapping[str, str]]) -> Object:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    status = {key: {**_OTHER_RESOURCES, **of_devices} for key, of_devices in counts.items()}
    about = {
        "name": name,
        "labels": labels | {SET: nodes.name},
        "annotations": {_FAKE: "fake", "node.alpha.kubernetes.io/ttl": "0", STATE: "0"},
    }
    # No pod comes here by accident: no process of it would run.
    spec = {"taints": [{"key": _FAKE, "value": "fake", "effect": "NoSchedule"}]}
    return kube_object("v1", "Node", about, spec=spec, status={**status, "phase": "Running"})


def _counts(domain: str, tree: DeviceTree) -> dict[str, dict[str, str]]:
    """Return the numbers that a kubelet reports: capacity counts unhealthy devices too."""
    counts: dict[str, dict[str, str]] = {"allocatable": {}, "capacity": {}}
    for device_type in tree:
        devices = tree.devices(device_type).values()
        healthy = sum(each.health == Health.HEALTHY for each in devices)
        name = f"{domain}/{device_type}"
        counts["allocatable"][name], counts["capacity"][name] = str(healthy), str(len(devices))
    return counts


# ---------------------------------------------------------------- ResourceSlices


def _slices(nodes: FakeNodes) -> list[list[Object]]:
    """Return for each slice of a node what each state sets in its `spec`.

    A device never moves to another slice: between two changes a scheduler could see it in both, or
    in none.
    """
    names = [*dict.fromkeys(each["name"] for state in nodes.states for each in state.devices)]
    size = nodes.slice_size
    parts = [{*names[start : start + size]} for start in range(0, len(names) or 1, size)]
    return [
        [
            {"devices": [each for each in state.devices if each["name"] in part]}
            for state in nodes.states
        ]
        for part in parts
    ]


def _slice(nodes: FakeNodes, node: str, index: int, slices: Sequence[Sequence[Object]]) -> Object:
    about = {
        "name": f"{node}-{nodes.domain}-{index}",
        "labels": {SET: _of_slice(nodes, index)},
        "annotations": {STATE: "0"},
    }
    spec = {
        "driver": nodes.domain,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": len(slices)},
        **slices[index][0],
    }
    return kube_object(f"{DRA}/v1", "ResourceSlice", about, spec=spec)


def _of_slice(nodes: FakeNodes, index: int) -> str:
    return f"{nodes.name}-{index}"


def _rights(nodes: FakeNodes) -> list[Object]:
    """Return the rights of KWOK's controller to change slices, which it does not have by itself."""
    name = {"name": f"{nodes.name}-slices"}
    verbs = ["get", "list", "watch", "update", "patch"]
    rule = {"apiGroups": [DRA], "resources": ["resourceslices"], "verbs": verbs}
    account = {"kind": "ServiceAccount", "name": "kwok-controller", "namespace": "kube-system"}
    of, role = f"{RBAC}/v1", {"apiGroup": RBAC, "kind": "ClusterRole", **name}
    return [
        kube_object(of, "ClusterRole", dict(name), rules=[rule]),
        kube_object(of, "ClusterRoleBinding", dict(name), roleRef=role, subjects=[account]),
    ]


# ---------------------------------------------------------------- Stages


class _Changed(NamedTuple):
    """A kind of object that Stages change: in what, and only where `selector` matches."""

    api_group: str
    kind: str
    place: Mapping[str, str]
    selector: Mapping[str, Any]


_NODE = _Changed(
    "v1", "Node", {"root": "status", "subresource": "status"}, {"matchExpressions": [_IS_READY]}
)
_SLICE = _Changed(f"{DRA}/v1", "ResourceSlice", {"root": "spec"}, {})


def _stages(
    nodes: FakeNodes, changed: _Changed, label: str, changes: Sequence[Mapping[str, Any]]
) -> Iterator[Object]:
    """Yield a Stage for each change of the timeline; `changes` has what each state sets."""
    for before, after, pause in _steps(nodes):
        selector = {"matchLabels": {SET: label}, "matchAnnotations": {STATE: str(before)}}
        # The annotation comes last: if KWOK ends between the two, it does both again.
        patches = [
            _patch(changed.place, changes[after]),
            _patch({"root": "metadata"}, {"annotations": {STATE: str(after)}}),
        ]
        spec = {
            "resourceRef": {"apiGroup": changed.api_group, "kind": changed.kind},
            "selector": {**selector, **changed.selector},
            # Other Stages for nodes, such as heartbeats, have the weight 0. KWOK takes one of the
            # Stages that match, by weight, and waits: it must not wait for a heartbeat.
            "weight": 1,
            "delay": {"durationMilliseconds": round(pause * 1000)},
            "next": {"patches": patches},
        }
        about = {"name": f"{label}-{changed.kind.lower()}-{before}"}
        yield kube_object("kwok.x-k8s.io/v1alpha1", "Stage", about, spec=spec)


def _steps(nodes: FakeNodes) -> Iterator[tuple[int, int, float]]:
    """Yield the numbers of two states, and the seconds between them.

    In a loop the last state and the first state of the next round are at the same time, so the
    first one takes its place.
    """
    states, last = nodes.states, len(nodes.states) - 1
    for before in range(last):
        after = 0 if nodes.loops and before + 1 == last else before + 1
        if after == before:  # the only change is undone at its own moment
            return
        yield before, after, states[before + 1].at - states[before].at


def _patch(place: Mapping[str, str], content: Mapping[str, Any]) -> Object:
    return {**place, "type": "merge", "template": _literal(json.dumps(content))}


def _literal(text: str) -> str:
    """Return a Go template that gives `text`: an ID of a device may have braces."""
    return text.replace("{{", '{{ "{{" }}')
