"""Why no node has the extended resources that a pod asks for: `limits: {example.com/gpu: 1}`. Pure.

A device plugin offers them on its node, or a DeviceClass gives its devices this name (KEP-5004);
then the scheduler makes a claim, which is judged as any other.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial

from kubedevices.errors.words import closest, some_of
from kubedevices.explain.finding import Outcome
from kubedevices.explain.in_cluster.answer import Evidence
from kubedevices.explain.in_cluster.judge_cause import Cause
from kubedevices.explain.in_cluster.objects import (
    CLASS_ANNOTATION,
    ClusterObjects,
    full_name,
    named,
    resources_of,
    wanted_resources,
)
from kubedevices.values.scheduling.kinds import Object

_COLUMNS = "custom-columns=NODE:.metadata.name,ALLOCATABLE:.status.allocatable"


def claim_for(
    cluster: ClusterObjects, pod: Object, resource: str, number: Fraction
) -> Object | None:
    """Return the claim that a scheduler makes for a resource, None if no class has its name.

    Its key `resource` is for messages: no such claim exists.
    """
    for name, each in sorted(cluster.class_of.items()):
        spec = each.get("spec") or {}
        if resource in (spec.get("extendedResourceName"), f"{CLASS_ANNOTATION}{name}"):
            request = {"name": "limits", "exactly": {"deviceClassName": name, "count": int(number)}}
            namespace, name_of_pod = full_name(pod).split("/")
            return {
                "resource": resource,
                "metadata": {"name": f"{name_of_pod}-extended-resources", "namespace": namespace},
                "spec": {"devices": {"requests": [request]}},
            }
    return None


def offering(
    cluster: ClusterObjects, resource: str
) -> dict[str, tuple[Fraction, Fraction, Fraction]]:
    """Return capacity, allocatable and used number of each node with a resource."""
    found = {}
    for node in cluster.nodes:
        if numbers := resources_of(node).get(resource):
            name = node["metadata"]["name"]
            used = cluster.requested_on.get(name, {}).get(resource, Fraction(0))
            found[name] = *numbers, used
    return found


def why_not_enough(
    cluster: ClusterObjects, resource: str, wanted: Fraction, blocked: Mapping[str, str]
) -> Cause | None:
    """Return why no node has enough of a resource; None if a node has, for a pod that may run."""
    nodes = offering(cluster, resource)
    if not nodes:
        return _nobody(cluster, resource)
    free = {name: allocatable - used for name, (_, allocatable, used) in nodes.items()}
    enough = [name for name in nodes if free[name] >= wanted]
    if any(name not in blocked for name in enough):
        return None
    evidence = [*_lines(cluster, resource, nodes, blocked)]
    made = partial(
        Cause,
        evidence=evidence,
        advice="on the node, see the devices and their holders:",
        command=["kubedevices", "explain", resource],
    )
    possible = {name: each for name, each in nodes.items() if name not in blocked}
    if enough:
        why = f"the pod cannot run there: {blocked[enough[0]]}"
        there = f"node {enough[0]} has {free[enough[0]]} {resource} free, but {why}"
        others = [name for name in named(cluster.nodes) if name not in blocked]
        if not others or possible:
            return made(there)
        return made(f"no device plugin offers {resource} on node {some_of(others)}; {there}")
    possible = possible or nodes
    if not any(capacity for capacity, _, _ in possible.values()):
        names = some_of(possible)
        return made(f"the device plugin of {resource} is away: node {names} has capacity 0")
    if not any(allocatable for _, allocatable, _ in possible.values()):
        total = sum(capacity for capacity, _, _ in possible.values())
        return made(f"all devices of {resource} are unhealthy: 0 of {total} are allocatable")
    most = max(allocatable for _, allocatable, _ in possible.values())
    unhealthy = sum(capacity - allocatable for capacity, allocatable, _ in possible.values())
    beside = f" ({unhealthy} {'is' if unhealthy == 1 else 'are'} unhealthy)" if unhealthy else ""
    if most < wanted:
        text = f"the pod asks for {wanted} {resource} of one node, and no node has more than {most}"
        return made(f"{text}{beside}")
    users = some_of(
        f"pod {pod} ({number})"
        for name in possible
        for pod, number in _users(cluster, resource, name)
    )
    left = max(free[name] for name in possible)
    what = "all" if not left else f"all but {left}"
    return made(f"{what} {resource} of {some_of(possible)} are used: by {users}{beside}")


def _nobody(cluster: ClusterObjects, resource: str) -> Cause | None:
    if "nodes" in cluster.unread:
        return Cause(
            f"nodes cannot be read, so who offers {resource} is not known", result=Outcome.UNKNOWN
        )
    known = {
        name
        for each in cluster.nodes
        for name in (each.get("status") or {}).get("allocatable") or {}
    }
    known |= {(each.get("spec") or {}).get("extendedResourceName", "") for each in cluster.classes}
    meant = closest(resource, known - {""})
    return Cause(
        f"no node offers {resource}, and no DeviceClass has this name"
        + (f"; did you mean {meant}?" if meant else ""),
        advice="start its device plugin, or correct the name in the pod",
        command=["kubectl", "get", "nodes", "-o", _COLUMNS],
    )


def _lines(
    cluster: ClusterObjects,
    resource: str,
    nodes: Mapping[str, tuple[Fraction, Fraction, Fraction]],
    blocked: Mapping[str, str],
) -> Iterator[Evidence]:
    for name, (capacity, allocatable, used) in nodes.items():
        text = f"capacity {capacity}, allocatable {allocatable}, used {used}"
        if name in blocked:
            text += f"; {blocked[name]}"
        yield Evidence("numbers", f"node {name}", text, "node")
        for pod, number in _users(cluster, resource, name):
            yield Evidence("users", f"pod {pod}", f"has {number} {resource} on {name}", "pod")


def _users(cluster: ClusterObjects, resource: str, node: str) -> Iterator[tuple[str, Fraction]]:
    for pod in cluster.pods_on.get(node, ()):
        if number := wanted_resources(pod).get(resource):
            yield full_name(pod), number
