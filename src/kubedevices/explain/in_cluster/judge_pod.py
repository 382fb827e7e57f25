"""The answer about a pod of a cluster. Pure."""

from kubedevices.errors.words import did_you_mean, some_of
from kubedevices.explain.finding import Outcome
from kubedevices.explain.in_cluster.device_reason import DeviceJudge
from kubedevices.explain.in_cluster.judge_cause import Cause
from kubedevices.explain.in_cluster.judge_pod_on_node import why_silent
from kubedevices.explain.in_cluster.judge_results import (
    check_holders,
    check_published,
    device_label,
    missing,
    slices_of,
)
from kubedevices.explain.in_cluster.judge_waiting import (
    SOON,
    claims_of,
    find_cause,
    what_the_scheduler_says,
)
from kubedevices.explain.in_cluster.objects import (
    ClusterObjects,
    full_name,
    named,
    phase_of,
    results_of,
)
from kubedevices.values.scheduling.kinds import Object


def judge_pod(cluster: ClusterObjects, pod_name: str, judge: DeviceJudge) -> tuple[Outcome, str]:
    """Return how far a pod is, NAMESPACE/NAME; raises `Cause`."""
    namespace, name = pod_name.split("/")
    pod = cluster.pod_of.get(pod_name)
    if pod is None:
        raise missing(cluster, "pods", cluster.pods, namespace, name)
    phase, node = phase_of(pod), pod["spec"].get("nodeName")
    if phase == "Pending" and not node:
        return what_the_scheduler_says(cluster, pod, find_cause(cluster, pod, judge))
    if phase == "Failed" and (reason := (pod.get("status") or {}).get("reason")):
        message = (pod.get("status") or {}).get("message", "")
        raise Cause(
            f"the pod has failed: {reason}: {message}",
            advice="such a pod never starts: delete it, and its controller makes another one",
            command=["kubectl", "--namespace", namespace, "delete", "pod", name],
        )
    if pod["metadata"].get("deletionTimestamp"):
        check_end(cluster, pod)
    if phase in ("Succeeded", "Failed"):
        return Outcome.OK, f"the pod has ended ({phase}) and holds no device"
    if pod["metadata"].get("deletionTimestamp"):
        return Outcome.OK, f"the pod is ending on node {node}; what it has is free when it is gone"
    _check_node(cluster, pod)
    claims = claims_of(cluster, pod)
    check_holders(cluster, claims)
    if phase == "Pending":
        check_published(cluster, claims, str(node))
        _check_start(cluster, pod, claims)
        return Outcome.OK, f"the pod is on node {node} and is starting"
    _check_health(pod)
    devices = [device_label(each) for claim in claims for each in results_of(claim)]
    has = f" with {some_of(devices)}" if devices else ""
    return Outcome.OK, f"the pod runs on node {node}{has}"


def _check_node(cluster: ClusterObjects, pod: Object) -> None:
    """Raise `Cause` if nothing happens on the node of a pod."""
    name = pod["spec"]["nodeName"]
    if "nodes" in cluster.unread:
        return
    node = cluster.node_of.get(name)
    if node is None:
        raise Cause(
            f"the pod is bound to node {name}, which does not exist"
            + did_you_mean(name, named(cluster.nodes)),
            advice="correct its nodeName, or start the node; else delete the pod",
            command=["kubectl", "get", "nodes"],
        )
    if why := why_silent(node):
        raise Cause(
            f"node {name} {why}",
            advice="until its kubelet answers, nothing about the pod changes",
            command=["kubectl", "describe", "node", name],
        )


def check_end(cluster: ClusterObjects, pod: Object) -> None:
    """Raise `Cause` if a pod should have ended, and has not.

    There are four cases: its node is gone or silent; its kubelet cannot unprepare a claim, since
    the driver is away; it has ended, and a finalizer keeps the object; its containers do not stop.
    """
    end = pod["metadata"]["deletionTimestamp"]
    if cluster.age(end) <= SOON:
        return
    finalizers = pod["metadata"].get("finalizers") or ()
    namespace, name = full_name(pod).split("/")
    if finalizers and (phase_of(pod) in ("Succeeded", "Failed") or not pod["spec"].get("nodeName")):
        raise Cause(
            f"the pod has ended, and is kept by the finalizer {', '.join(finalizers)}",
            advice="the program that set the finalizer removes it; read its log",
            command=["kubectl", "--namespace", namespace, "get", "pod", name, "-o", "yaml"],
        )
    if pod["spec"].get("nodeName"):
        _check_node(cluster, pod)
    _check_events(cluster, pod)
    for driver in away_from(cluster, pod):
        raise Cause(
            f"the pod does not end: the driver {driver} has no slice for node "
            f"{pod['spec'].get('nodeName')}, so it does not run there, and its claims cannot be "
            "unprepared",
            advice="start the driver on this node: the kubelet tries again by itself",
            command=slices_of(driver),
        )
    kept = f"; then the finalizer {', '.join(finalizers)} keeps it" if finalizers else ""
    raise Cause(
        f"the pod should have ended at {end}: its containers do not stop{kept}",
        command=["kubectl", "--namespace", namespace, "describe", "pod", name],
    )


def away_from(cluster: ClusterObjects, pod: Object) -> list[str]:
    """Return the drivers of a pod's claims that publish nothing for its node."""
    if "resourceslices" in cluster.unread:
        return []
    try:
        claims = claims_of(cluster, pod)
    except Cause:  # a claim is gone: then nothing is left to unprepare
        return []
    drivers = dict.fromkeys(each["driver"] for claim in claims for each in results_of(claim))
    node = cluster.node_of.get(str(pod["spec"].get("nodeName")))
    there = {driver for driver, _ in cluster.pools_for(node)} if node else set()
    return [each for each in drivers if each not in there]


def _check_start(cluster: ClusterObjects, pod: Object, claims: list[Object]) -> None:
    """Raise why a pod that has a node does not start."""
    _check_events(cluster, pod)
    namespace = full_name(pod).split("/")[0]
    for each in claims:
        if not results_of(each):
            raise Cause(
                f"the pod is bound to node {pod['spec']['nodeName']}, but its claim "
                f"{full_name(each)} has no devices: no scheduler chose the node",
                advice="use a nodeSelector instead of nodeName: then a scheduler allocates devices",
                command=["kubectl", "--namespace", namespace, "get", "resourceclaims"],
            )
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
            raise Cause(
                f"container {each.get('name', '')}: {waiting['reason']}: "
                f"{waiting.get('message', '')}",
                command=["kubectl", "--namespace", namespace, "describe", "pod", *named([pod])],
            )


def _check_events(cluster: ClusterObjects, pod: Object) -> None:
    """Raise the newest complaint of a kubelet about a pod."""
    usual = {"uid": pod["metadata"].get("uid", ""), "name": pod["metadata"]["name"]}
    said = [
        each
        for each in cluster.events
        for about in [each.get("involvedObject") or {}]
        if all(about.get(key, value) in ("", value) for key, value in usual.items())
        and each.get("reason") not in ("FailedScheduling", "Killing")
    ]
    last = max(said, key=_time, default={})
    if last.get("type") == "Warning":  # a later event of another type means that this is over
        raise Cause(
            f"{last.get('reason', '')}: {last.get('message', '')}",
            advice=f"on node {pod['spec']['nodeName']}, ask for more:",
            command=["kubedevices", "explain"],
        )


def _time(event: Object) -> str:
    for key in ("lastTimestamp", "eventTime"):
        if event.get(key):
            return str(event[key])
    return str(event["metadata"].get("creationTimestamp") or "")


def _check_health(pod: Object) -> None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    bad = [
        f"{device.get('resourceID', '')} of {one.get('name', '')} ({device['health']})"
        for each in statuses
        for one in each.get("allocatedResourcesStatus") or ()
        for device in one.get("resources") or ()
        if device.get("health") == "Unhealthy"
    ]
    if bad:
        node = pod["spec"]["nodeName"]
        raise Cause(
            f"the pod runs on node {node}, but has devices that are not healthy: {some_of(bad)}",
            advice="on this node, ask for more, and see the log of the plugin or driver",
            command=["kubedevices", "explain"],
        )
