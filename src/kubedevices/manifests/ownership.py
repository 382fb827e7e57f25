"""What may be changed and deleted in a cluster: what we made, and nothing else.

Objects of ours carry `app.kubernetes.io/managed-by: kubedevices`. A namespace carries it only if it
was not there before, and goes only when nothing of others is left in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubedevices.manifests.deployment import (
    INSTANCE,
    MANAGED_BY,
    NAME,
    PART_OF,
    POD_SECURITY,
    Deployment,
)
from kubedevices.manifests.dra_access import OF_NAMESPACE

KINDS = ("daemonset", "configmap", "serviceaccount", "resourcequota", "networkpolicy")
"""What a plugin consists of, but for its namespace."""

OPERATOR_KINDS = ("podmonitor", "prometheusrule")
"""What it may have in its namespace, in clusters that know these kinds."""

CLUSTER_KINDS = (
    "clusterrole",
    "clusterrolebinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
    "deviceclass",
)
"""What a DRA driver has beside them, in no namespace."""
OPENSHIFT_KINDS = ("securitycontextconstraints",)

_ENOUGH = "privileged"
_MADE_BY_KUBERNETES = {
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ServiceAccount", "default"),
}
_PASSING_KINDS = {"Event", "PodMetrics"}
_TOKEN = "kubernetes.io/service-account-token"


def selector(labels: Mapping[str, str]) -> str:
    """Return what kubectl selects our objects by that carry these labels."""
    return ",".join(f"{key}={value}" for key, value in {**labels, MANAGED_BY: NAME}.items())


def is_of_another(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether an object of ours with the name of a wanted one belongs to another deployment.

    A configuration of some nodes adds its name to that of the plugin, a version its hash.
    """
    theirs = found["metadata"].get("labels") or {}
    mine = wanted["metadata"]["labels"]
    return any(theirs.get(key) != mine.get(key) for key in (OF_NAMESPACE, INSTANCE, PART_OF))


def belonging(deployment: Deployment) -> list[dict[str, str]]:
    """Return the labels of a plugin's objects, and of those for some nodes only."""
    return [deployment.selector, {PART_OF: deployment.name}]


def superfluous(
    found: Iterable[dict[str, Any]],
    wanted: Iterable[dict[str, Any]],
    revisions: Iterable[dict[str, Any]],
) -> list[str]:
    """Return which objects of a plugin it no longer has.

    A version of its configuration stays while a revision of a DaemonSet, to which a user may go
    back, needs it.
    """
    kept = {name_of(each) for each in wanted}
    for revision in revisions:
        spec = revision["data"]["spec"]["template"]["spec"]
        for volume in spec.get("volumes") or ():
            if "configMap" in volume:
                kept.add(f"configmap/{volume['configMap']['name']}")
    return [name for each in found if (name := name_of(each)) not in kept]


def is_ours(document: dict[str, Any]) -> bool:
    """Whether we made an object."""
    labels = document["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_BY) == NAME)


def as_ours(document: dict[str, Any]) -> dict[str, Any]:
    """Return a namespace that says that we made it."""
    metadata = document["metadata"]
    labels = {**metadata["labels"], MANAGED_BY: NAME}
    return {**document, "metadata": {**metadata, "labels": labels}}


def policy_refusal(namespace: dict[str, Any]) -> str | None:
    """Return why the Pod Security level of a namespace refuses our pods; None if it does not.

    The level of a namespace without a label is the cluster's, which only its events tell.
    """
    name = namespace["metadata"]["name"]
    labels = namespace["metadata"].get("labels") or {}
    level = labels.get(f"{POD_SECURITY}/enforce", _ENOUGH)
    if level == _ENOUGH:
        return None
    return (
        f"namespace {name} was there before and enforces the Pod Security level {level!r}, which "
        f"refuses hostPath volumes: take another namespace, or have its owner run `kubectl label "
        f"namespace {name} {POD_SECURITY}/enforce={_ENOUGH} --overwrite`"
    )


def name_of(document: dict[str, Any]) -> str:
    """Return an object as kubectl calls it, such as daemonset/kubedevices-simulate."""
    return f"{document['kind'].lower()}/{document['metadata']['name']}"


def of_others(
    documents: Iterable[dict[str, Any]], deleted: Iterable[dict[str, Any]]
) -> Sequence[str]:
    """Return what is in a namespace beside what Kubernetes itself and we put there.

    What belongs to a deleted object goes with it, and so does what belongs to that.
    """
    waiting = [each for each in documents if not _is_made_by_kubernetes(each)]
    gone = {each["metadata"]["uid"] for each in deleted}
    while True:
        going = [
            each for each in waiting if _owners(each) & gone or each["metadata"]["uid"] in gone
        ]
        if not going:
            return sorted({name_of(each) for each in waiting})
        gone |= {each["metadata"]["uid"] for each in going}
        waiting = [each for each in waiting if each not in going]


def _owners(document: dict[str, Any]) -> set[str]:
    return {each["uid"] for each in document["metadata"].get("ownerReferences") or ()}


def _is_made_by_kubernetes(document: dict[str, Any]) -> bool:
    kind, name = document["kind"], document["metadata"]["name"]
    return (
        kind in _PASSING_KINDS
        or (kind, name) in _MADE_BY_KUBERNETES
        or (kind == "Secret" and document.get("type") == _TOKEN)
    )
