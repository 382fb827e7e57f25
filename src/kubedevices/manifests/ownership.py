"""Which objects in a cluster `deploy` and `undeploy` may change and delete: only their own.

The own objects have the label `app.kubernetes.io/managed-by: kubedevices`. A namespace has it only
if `deploy` created it, and `undeploy` deletes the namespace only if it has no other objects.
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
"""The kinds of a plugin's objects, except for its namespace."""

OPERATOR_KINDS = ("podmonitor", "prometheusrule")
"""Further kinds in the plugin's namespace, if the cluster knows them."""

CLUSTER_KINDS = (
    "clusterrole",
    "clusterrolebinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
    "deviceclass",
)
"""Kinds of a DRA driver's objects that have no namespace."""
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
    """Return the label selector, for kubectl, of own objects with these labels."""
    return selector_of({**labels, MANAGED_BY: NAME})


def selector_of(labels: Mapping[str, str]) -> str:
    """Return the label selector, for kubectl, of anybody's objects with these labels."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def is_of_another(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether an own object with the name of a wanted object belongs to another deployment.

    Names can collide: a configuration for some nodes adds its name to the name of the plugin, and a
    version of a ConfigMap adds its hash.
    """
    theirs = found["metadata"].get("labels") or {}
    mine = wanted["metadata"]["labels"]
    return any(theirs.get(key) != mine.get(key) for key in (OF_NAMESPACE, INSTANCE, PART_OF))


def drivers_of_others(
    classes: Iterable[dict[str, Any]], wanted: Iterable[dict[str, Any]]
) -> dict[tuple[str, str], str]:
    """Return the other deployments whose DRA driver has a domain of ours, each with the domain.

    `classes` are own DeviceClasses in the cluster. A deployment is its namespace and its name.
    """
    mine = [each for each in wanted if each["kind"] == "DeviceClass"]
    domains = {_domain_of(each) for each in mine}
    return {
        _deployment_of(each): _domain_of(each)
        for each in classes
        if _domain_of(each) in domains and is_of_another(each, mine[0])
    }


def _domain_of(device_class: dict[str, Any]) -> str:
    spec = device_class.get("spec") or {}
    return str(spec.get("extendedResourceName", "")).partition("/")[0]


def _deployment_of(document: dict[str, Any]) -> tuple[str, str]:
    labels = document["metadata"]["labels"]
    return labels.get(OF_NAMESPACE, ""), labels.get(PART_OF) or labels.get(INSTANCE, "")


def is_on_other_nodes(daemon_set: dict[str, Any], node_labels: Mapping[str, str]) -> bool:
    """Whether no node can have `node_labels` and the labels that a DaemonSet selects."""
    theirs = daemon_set["spec"]["template"]["spec"].get("nodeSelector") or {}
    return any(theirs.get(key, value) != value for key, value in node_labels.items())


def belonging(deployment: Deployment) -> list[dict[str, str]]:
    """Return the labels of a plugin's objects, and of its objects for some nodes only."""
    return [deployment.selector, {PART_OF: deployment.name}]


def superfluous(
    found: Iterable[dict[str, Any]],
    wanted: Iterable[dict[str, Any]],
    revisions: Iterable[dict[str, Any]],
) -> list[str]:
    """Return the names of objects in `found` that the plugin no longer needs.

    A version of its configuration is needed as long as a revision of a DaemonSet uses it: the user
    may roll back to this revision.
    """
    kept = {name_of(each) for each in wanted}
    for revision in revisions:
        spec = revision["data"]["spec"]["template"]["spec"]
        for volume in spec.get("volumes") or ():
            if "configMap" in volume:
                kept.add(f"configmap/{volume['configMap']['name']}")
    return [name for each in found if (name := name_of(each)) not in kept]


def is_ours(document: dict[str, Any]) -> bool:
    """Whether kubedevices created an object."""
    labels = document["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_BY) == NAME)


def as_ours(document: dict[str, Any]) -> dict[str, Any]:
    """Return a namespace with the label of kubedevices."""
    metadata = document["metadata"]
    labels = {**metadata["labels"], MANAGED_BY: NAME}
    return {**document, "metadata": {**metadata, "labels": labels}}


def policy_refusal(namespace: dict[str, Any]) -> str | None:
    """Return why the Pod Security level of a namespace refuses the pods; None if it does not.

    A namespace without a label has the cluster's default level, which only events reveal.
    """
    name = namespace["metadata"]["name"]
    labels = namespace["metadata"].get("labels") or {}
    level = labels.get(f"{POD_SECURITY}/enforce", _ENOUGH)
    if level == _ENOUGH:
        return None
    return (
        f"namespace {name} existed before and enforces the Pod Security level {level!r}, which "
        f"refuses hostPath volumes: use another namespace, or ask its owner to run `kubectl label "
        f"namespace {name} {POD_SECURITY}/enforce={_ENOUGH} --overwrite`"
    )


def name_of(document: dict[str, Any]) -> str:
    """Return the name of an object for kubectl, such as daemonset/kubedevices-simulate."""
    return f"{document['kind'].lower()}/{document['metadata']['name']}"


def of_others(
    documents: Iterable[dict[str, Any]], deleted: Iterable[dict[str, Any]]
) -> Sequence[str]:
    """Return the objects in a namespace that neither Kubernetes nor kubedevices created.

    Objects that a deleted object owns, directly or not, are deleted with it and do not count.
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
