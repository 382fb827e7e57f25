"""Whether a pod may run on a node, as far as the pod and the node say so themselves. Pure."""

from fractions import Fraction

from kubedevices.explain.in_cluster.objects import ClusterObjects, number_of, requested
from kubedevices.values.quantities import shown as quantity
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.node_selectors import is_on_node
from kubedevices.values.scheduling.wishes import is_tolerated

_NATIVE = ("pods", "cpu", "memory", "ephemeral-storage")

CHOICE = "the pod's node"
"""The reasons that begin so are wishes of the pod, not states of the node."""


def why_not_on(pod: Object | None, node: Object, cluster: ClusterObjects) -> str:
    """Return why a pod cannot run on a node, empty if it can.

    If nodes could not be read, only the name of a node is known, and nothing stops the pod.
    """
    if pod is None or "nodes" in cluster.unread:
        return ""
    spec, about = pod["spec"], node.get("spec") or {}
    labels = node["metadata"].get("labels") or {}
    for name, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(name) != value:
            has = f"it has {labels[name]}" if name in labels else "it has no such label"
            return f"{CHOICE}Selector wants {name}={value}, {has}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required and not is_on_node({"nodeSelector": required}, node):
        return f"{CHOICE}Affinity does not match"
    if about.get("unschedulable"):
        return "the node is cordoned"
    for taint in about.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not any(
            is_tolerated(each, taint) for each in spec.get("tolerations") or ()
        ):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"the pod does not tolerate the taint {taint['key']}{value}:{taint['effect']}"
    return _too_full(pod, node, cluster)


def why_silent(node: Object) -> str:
    """Return why the kubelet of a node does nothing now, empty if it is ready."""
    for each in (node.get("status") or {}).get("conditions") or ():
        if each["type"] == "Ready" and each.get("status") != "True":
            since = each.get("lastTransitionTime")
            said = each.get("message") or f"Ready is {each.get('status', '')}"
            return f"is not ready{f' since {since}' if since else ''}: {said}"
    return ""


def _too_full(pod: Object, node: Object, cluster: ClusterObjects) -> str:
    """Return what but devices a node has too little of; unknown pods use nothing."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    used = cluster.requested_on.get(node["metadata"]["name"], {})
    wanted = {**requested(pod), "pods": Fraction(1)}
    for resource in _NATIVE:
        if resource not in allocatable or not (asked := wanted.get(resource)):
            continue
        left = number_of(allocatable[resource]) - used.get(resource, Fraction(0))
        if asked > left and resource == "pods":
            return f"the node is full: it has {allocatable[resource]} pods, the most that it may"
        if asked > left:
            free = quantity(max(left, Fraction(0)))
            of = f"{free} of {allocatable[resource]} left"
            return f"too little {resource}: the pod asks for {quantity(asked)}, {of}"
    return ""
