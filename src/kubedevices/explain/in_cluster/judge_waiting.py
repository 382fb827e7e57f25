"""Why a pod waits for a node: its claims, their devices, its extended resources. Pure."""

from collections.abc import Collection, Sequence

from kubedevices.errors.words import counted, did_you_mean, some_of
from kubedevices.explain.finding import Outcome
from kubedevices.explain.in_cluster.answer import Evidence
from kubedevices.explain.in_cluster.device_reason import DeviceJudge
from kubedevices.explain.in_cluster.judge_cause import Cause, why_waiting
from kubedevices.explain.in_cluster.judge_claim_on_node import NodeFit, fit, requests_of
from kubedevices.explain.in_cluster.judge_extended import claim_for, offering, why_not_enough
from kubedevices.explain.in_cluster.judge_pod_on_node import why_not_on
from kubedevices.explain.in_cluster.objects import (
    ClusterObjects,
    alternatives_of,
    full_name,
    named,
    results_of,
    wanted_resources,
)
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.node_selectors import is_on_node

_HOST = "kubernetes.io/hostname"

SOON = 60.0
"""Seconds in which a scheduler has looked at a new pod, and a pod has ended after its grace."""


def find_cause(cluster: ClusterObjects, pod: Object, judge: DeviceJudge) -> str:
    """Return a node that has all devices of a pod, "" if it needs none; raises `Cause`."""
    if gates := [each["name"] for each in pod["spec"].get("schedulingGates") or ()]:
        raise Cause(
            f"the pod has the scheduling gate {', '.join(gates)}: nobody schedules it before the "
            "gate is removed",
            advice="the program that set the gate removes it",
        )
    _check_host(cluster, pod)
    claims = claims_of(cluster, pod)
    for claim in claims:
        _check_not_ending(claim)
    wanted = wanted_resources(pod)
    blocked = _blocked(cluster, pod, [each for each in claims if results_of(each)])
    waiting = [each for each in claims if not results_of(each)]
    for resource, number in wanted.items():
        made = claim_for(cluster, pod, resource, number)
        if made is not None and not offering(cluster, resource):
            waiting.append(made)
        elif cause := why_not_enough(cluster, resource, number, blocked):
            raise cause
    if not waiting:
        if blocked and len(blocked) == len(cluster.nodes):
            raise _no_node(blocked)
        return ""
    if "resourceslices" in cluster.unread:
        raise Cause("ResourceSlices cannot be read, so no device is known", result=Outcome.UNKNOWN)
    fits = [find_fits(cluster, claim, judge) for claim in waiting]
    for claim, found in zip(waiting, fits, strict=True):
        if not is_served(found, blocked):
            raise why_waiting(cluster, claim, found, blocked)
    return _together(cluster, waiting, fits, blocked)


def find_fits(cluster: ClusterObjects, claim: Object, judge: DeviceJudge) -> list[NodeFit]:
    """Return what each node has for a claim; raises `Cause` without its class, or without nodes."""
    _check_classes(cluster, claim)
    if not cluster.nodes:
        raise Cause(
            "no node is known: the cluster has none, or none may be read", result=Outcome.UNKNOWN
        )
    return [fit(cluster, claim, node, judge) for node in cluster.nodes]


def is_served(fits: Sequence[NodeFit], blocked: Collection[str] = ()) -> bool:
    """Whether a node serves a claim, and no node has a device for which its selector fails."""
    possible = [each for each in fits if each.node not in blocked]
    return any(each.allocation for each in possible) and not any(
        each.is_broken for each in possible
    )


def claims_of(cluster: ClusterObjects, pod: Object) -> list[Object]:
    """Return the claims of a pod; raises `Cause` if one does not exist."""
    namespace = full_name(pod).split("/")[0]
    made = {
        each["name"]: each.get("resourceClaimName")
        for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    found = []
    for each in pod["spec"].get("resourceClaims") or ():
        name, template = each.get("resourceClaimName"), each.get("resourceClaimTemplateName")
        if template:
            if each["name"] in made and not made[each["name"]]:
                continue  # the template asks for no claim
            name = made.get(each["name"]) or _without_claim(cluster, namespace, template)
        claim = cluster.claim_of.get(f"{namespace}/{name}")
        if claim is None:
            raise _no_claim(cluster, namespace, name or "")
        if template:
            _check_owner(pod, claim)
        found.append(claim)
    return found


def _check_host(cluster: ClusterObjects, pod: Object) -> None:
    """Raise `Cause` if a pod wants one node by its name, and no node has this name."""
    wanted = (pod["spec"].get("nodeSelector") or {}).get(_HOST)
    names = [(each["metadata"].get("labels") or {}).get(_HOST, "") for each in cluster.nodes]
    if wanted and "nodes" not in cluster.unread and wanted not in names:
        raise Cause(
            f"no node is called {wanted}, which the pod's nodeSelector wants"
            + did_you_mean(wanted, names),
            advice="correct the nodeSelector of the pod",
            command=["kubectl", "get", "nodes"],
        )


def _check_not_ending(claim: Object) -> None:
    if claim["metadata"].get("deletionTimestamp"):
        namespace, name = full_name(claim).split("/")
        raise Cause(
            f"the claim {namespace}/{name} is being deleted",
            advice="wait until it is gone, and create it again",
            command=["kubectl", "--namespace", namespace, "get", "resourceclaim", name],
        )


def _no_claim(cluster: ClusterObjects, namespace: str, name: str) -> Cause:
    if why := cluster.unread.get("resourceclaims"):
        return Cause(f"ResourceClaims cannot be read: {why}", result=Outcome.UNKNOWN)
    names = named(each for each in cluster.claims if full_name(each).startswith(f"{namespace}/"))
    return Cause(
        f"the claim {namespace}/{name} does not exist{did_you_mean(name, names)}",
        advice="create the claim in the namespace of the pod",
        command=["kubectl", "--namespace", namespace, "get", "resourceclaims"],
    )


def _check_owner(pod: Object, claim: Object) -> None:
    """Raise `Cause` if a claim has the name that this pod's claim has, but is of somebody else.

    Scheduler and kubelet refuse it (resourceclaim.IsForPod).
    """
    owners = claim["metadata"].get("ownerReferences") or ()
    if any(each.get("uid") == pod["metadata"].get("uid") for each in owners):
        return
    whose = [f"{each.get('kind', '')} {each.get('name', '')}" for each in owners]
    namespace, name = full_name(claim).split("/")
    raise Cause(
        f"the claim {namespace}/{name} was not made for this pod"
        + (f", but for {some_of(whose)}" if whose else ""),
        advice="delete this claim, and then the pod: both are made again",
        command=["kubectl", "--namespace", namespace, "delete", "resourceclaim", name],
    )


def _without_claim(cluster: ClusterObjects, namespace: str, template: str) -> str:
    """Raise why a template has not become a claim."""
    names = named(each for each in cluster.templates if full_name(each).startswith(f"{namespace}/"))
    command = ["kubectl", "--namespace", namespace, "get", "resourceclaimtemplates"]
    if "resourceclaimtemplates" in cluster.unread:
        raise Cause(f"no claim was made from the template {namespace}/{template}", command=command)
    if template not in names:
        raise Cause(
            f"the ResourceClaimTemplate {namespace}/{template} does not exist"
            f"{did_you_mean(template, names)}",
            advice="create the template in the namespace of the pod",
            command=command,
        )
    raise Cause(
        f"no claim was made from the template {namespace}/{template} yet: the controller manager "
        "makes it within seconds",
        advice="if it stays so, read the events of the pod and the controller manager's log",
        command=["kubectl", "--namespace", namespace, "get", "events"],
    )


def _check_classes(cluster: ClusterObjects, claim: Object) -> None:
    if "deviceclasses" in cluster.unread:
        return
    for request in requests_of(claim):
        for each in alternatives_of(request):
            name = each.get("deviceClassName", "")
            if name not in cluster.class_of:
                raise Cause(
                    f"the DeviceClass {name} does not exist{did_you_mean(name, cluster.class_of)} "
                    f"(request {request['name']} of claim {full_name(claim)})",
                    advice="create the class, or correct its name in the claim",
                    command=["kubectl", "get", "deviceclasses"],
                )


def _blocked(cluster: ClusterObjects, pod: Object, allocated: Sequence[Object]) -> dict[str, str]:
    """Return the nodes on which a pod cannot run, and why."""
    found = {}
    for node in cluster.nodes:
        why = why_not_on(pod, node, cluster)
        for claim in allocated:
            selector = claim["status"]["allocation"].get("nodeSelector")
            if not why and selector and not is_on_node({"nodeSelector": selector}, node):
                why = f"the claim {full_name(claim)} has devices of another node"
        if why:
            found[node["metadata"]["name"]] = why
    return found


def _no_node(blocked: dict[str, str]) -> Cause:
    first, *others = dict.fromkeys(blocked.values())
    return Cause(
        f"the pod can run on no node: {first}"
        + (f", and {counted(len(others), 'other reason')}" * bool(others)),
        evidence=[Evidence("node", f"node {name}", why, "node") for name, why in blocked.items()],
        advice="change the pod or the nodes",
        command=["kubectl", "get", "nodes", "--show-labels"],
    )


def _together(
    cluster: ClusterObjects,
    waiting: Sequence[Object],
    fits: Sequence[Sequence[NodeFit]],
    blocked: dict[str, str],
) -> str:
    """Return a node that serves all claims of a pod one after the other; raises `Cause`."""
    evidence = []
    for number, node in enumerate(cluster.nodes):
        name, after = node["metadata"]["name"], cluster
        if name in blocked:
            continue
        for claim, found in zip(waiting, fits, strict=True):
            one = found[number]
            if after is not cluster:
                one = fit(after, claim, node, DeviceJudge(after))
            if not one.allocation:
                why = f"has no devices for claim {full_name(claim)} beside the others"
                evidence.append(Evidence("node", f"node {name}", why, "node"))
                break
            after = after.with_claim({**claim, "status": {"allocation": one.allocation}})
        else:
            return str(name)
    raise Cause(
        "no node has the devices of all claims of the pod: "
        + ", ".join(full_name(each) for each in waiting),
        evidence=evidence,
        advice="free devices on one node, or ask for fewer",
        command=["kubectl", "get", "resourceclaims", "--all-namespaces", "-o", "wide"],
    )


def what_the_scheduler_says(cluster: ClusterObjects, pod: Object, node: str) -> tuple[Outcome, str]:
    """Return what a scheduler says about a pod for which devices are free on `node`."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    devices = f"node {node} has its devices free" if node else "no device stops it"
    for each in conditions:
        if each["type"] == "PodScheduled" and each.get("status") == "False":
            if said := each.get("message", ""):
                cause = f"the cause is not a device ({devices}); the scheduler says: {said}"
                return Outcome.PROBLEM, cause
            return Outcome.OK, f"the pod waits for the scheduler; {devices}"
    if cluster.age(pod["metadata"].get("creationTimestamp")) > SOON:
        scheduler = pod["spec"].get("schedulerName") or "default-scheduler"
        raise Cause(
            f"no scheduler has looked at the pod since its creation: {scheduler} does not run "
            f"({devices})",
            advice="start this scheduler, or correct the schedulerName of the pod",
            command=[
                "kubectl",
                "get",
                "pods",
                "--all-namespaces",
                "-l",
                "component=kube-scheduler",
            ],
        )
    return Outcome.OK, f"the pod waits for the scheduler; {devices}"
