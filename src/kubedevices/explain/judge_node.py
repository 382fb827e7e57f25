"""Whether a pod may run on a node, as far as the pod and the node say so themselves. Pure."""

from kubedevices.explain.cluster import ClusterObjects
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.node_selectors import is_on_node
from kubedevices.values.scheduling.wishes import is_tolerated

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
    return ""
