"""The answer about a pod or a claim of a cluster. Pure."""

from collections.abc import Callable, Iterator

from kubedevices.errors.safe_text import shell_line
from kubedevices.errors.words import did_you_mean, some_of
from kubedevices.explain.answer import SubjectAnswer
from kubedevices.explain.cluster import (
    ClusterObjects,
    full_name,
    key_of,
    named,
    phase_of,
    results_of,
    users_of,
)
from kubedevices.explain.finding import Outcome
from kubedevices.explain.judge_device import DeviceJudge
from kubedevices.explain.judge_lack import Cause, why_waiting
from kubedevices.explain.judge_waiting import claims_of, find_cause, find_fits, is_served
from kubedevices.values.scheduling.kinds import Object

_Judged = Callable[[ClusterObjects, str, str, DeviceJudge], tuple[Outcome, str]]

_BLIND = "selectors were not evaluated (they need CEL: pip install 'kubedevices[cel]')"
_SLICES_OF = ("kubectl", "get", "resourceslices", "--field-selector")


def explain_pod(cluster: ClusterObjects, namespace: str, name: str) -> SubjectAnswer:
    """Return what is the matter with a pod."""
    return _explained(cluster, namespace, name, "pod", _pod)


def explain_claim(cluster: ClusterObjects, namespace: str, name: str) -> SubjectAnswer:
    """Return what is the matter with a claim."""
    return _explained(cluster, namespace, name, "claim", _claim)


def _explained(
    cluster: ClusterObjects, namespace: str, name: str, kind: str, judged: _Judged
) -> SubjectAnswer:
    subject, judge = f"{kind} {namespace}/{name}", DeviceJudge(cluster)
    try:
        result, cause = judged(cluster, namespace, name, judge)
    except Cause as found:
        return _answer(cluster, subject, judge, found)
    return _answer(cluster, subject, judge, Cause(cause), result)


def _answer(
    cluster: ClusterObjects,
    subject: str,
    judge: DeviceJudge,
    cause: Cause,
    result: Outcome = Outcome.PROBLEM,
) -> SubjectAnswer:
    notes = [_BLIND] if judge.is_blind else []
    text = cause.cause
    if not cause.is_known:
        result = Outcome.UNKNOWN
        text = f"{_BLIND}: {text}" if judge.is_blind else text
    return SubjectAnswer(
        subject,
        result,
        text,
        cause.evidence,
        cause.advice,
        shell_line(cause.command) if cause.command else "",
        (*notes, *cluster.notes),
        tuple(f"{plural}: {why}" for plural, why in cluster.unread.items()),
    )


# ---------------------------------------------------------------- pods


def _pod(
    cluster: ClusterObjects, namespace: str, name: str, judge: DeviceJudge
) -> tuple[Outcome, str]:
    pod = cluster.pod(namespace, name)
    if pod is None:
        raise _missing(cluster, "pods", cluster.pods, namespace, name)
    phase, node = phase_of(pod), pod["spec"].get("nodeName")
    if phase == "Pending" and not node:
        free = find_cause(cluster, pod, judge)
        return _not_devices(pod, free)
    if phase == "Failed" and (reason := (pod.get("status") or {}).get("reason")):
        message = (pod.get("status") or {}).get("message", "")
        raise Cause(
            f"the pod has failed: {reason}: {message}",
            advice="such a pod never starts: delete it, and its controller makes another one",
            command=["kubectl", "--namespace", namespace, "delete", "pod", name],
        )
    if phase in ("Succeeded", "Failed"):
        return Outcome.OK, f"the pod has ended ({phase}) and holds no device"
    claims = claims_of(cluster, pod)
    _check_holders(cluster, claims)
    if phase == "Pending":
        _check_published(cluster, claims, str(node))
        _check_start(cluster, pod)
        return Outcome.OK, f"the pod is on node {node} and is starting"
    if pod["metadata"].get("deletionTimestamp"):
        return Outcome.OK, f"the pod is ending on node {node}; what it has is free when it is gone"
    _check_health(pod)
    devices = [_device(each) for claim in claims for each in results_of(claim)]
    has = f" with {some_of(devices)}" if devices else ""
    return Outcome.OK, f"the pod runs on node {node}{has}"


def _not_devices(pod: Object, node: str) -> tuple[Outcome, str]:
    """Return what a scheduler says about a pod for which devices are free."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    said = next(
        (
            each.get("message", "")
            for each in conditions
            if each["type"] == "PodScheduled" and each.get("status") == "False"
        ),
        "",
    )
    devices = f"node {node} has its devices free" if node else "no device stops it"
    if not said:
        return Outcome.OK, f"the pod waits for the scheduler; {devices}"
    return Outcome.PROBLEM, f"the cause is not a device ({devices}); the scheduler says: {said}"


def _check_start(cluster: ClusterObjects, pod: Object) -> None:
    """Raise the newest complaint of a kubelet about a pod that does not start."""
    uid, namespace = pod["metadata"].get("uid", ""), full_name(pod).split("/")[0]
    said = [
        each
        for each in cluster.events
        if (each.get("involvedObject") or {}).get("uid", uid) in ("", uid)
        and each.get("reason") != "FailedScheduling"
    ]
    last = max(said, key=_time, default={})
    if last.get("type") == "Warning":  # a later event of another type means that this is over
        raise Cause(
            f"{last.get('reason', '')}: {last.get('message', '')}",
            advice=f"on node {pod['spec']['nodeName']}, ask for more:",
            command=["kubedevices", "explain"],
        )
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    for each in statuses:
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
            raise Cause(
                f"container {each.get('name', '')}: {waiting['reason']}: "
                f"{waiting.get('message', '')}",
                command=["kubectl", "--namespace", namespace, "describe", "pod", named([pod])[0]],
            )


def _time(event: Object) -> str:
    for key in ("lastTimestamp", "eventTime"):
        if event.get(key):
            return str(event[key])
    return str(event["metadata"].get("creationTimestamp") or "")


def _check_health(pod: Object) -> None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    bad = [
        f"{device.get('resourceID', '')} ({device['health']})"
        for each in statuses
        for one in each.get("allocatedResourcesStatus") or ()
        for device in one.get("resources") or ()
        if device.get("health") == "Unhealthy"
    ]
    if bad:
        raise Cause(
            f"the pod runs, but has devices that are not healthy: {some_of(bad)}",
            advice="see the log of the plugin or driver on the node",
        )


# ---------------------------------------------------------------- claims


def _claim(
    cluster: ClusterObjects, namespace: str, name: str, judge: DeviceJudge
) -> tuple[Outcome, str]:
    claim = cluster.claim(namespace, name)
    if claim is None:
        raise _missing(cluster, "resourceclaims", cluster.claims, namespace, name)
    if results := results_of(claim):
        _check_holders(cluster, [claim])
        _check_users(cluster, claim)
        for pod in _pods_of(cluster, claim):
            if phase_of(pod) == "Pending" and (node := pod["spec"].get("nodeName")):
                _check_published(cluster, [claim], node)
        pods = users_of(claim)
        who = f"for pod {some_of(pods)}" if pods else "and no pod uses it"
        return Outcome.OK, f"the claim has {some_of(map(_device, results))}, {who}"
    for pod in _pods_of(cluster, claim):
        if phase_of(pod) == "Pending" and not pod["spec"].get("nodeName"):
            return _not_devices(pod, find_cause(cluster, pod, judge))
    if "resourceslices" in cluster.unread:
        raise Cause("ResourceSlices cannot be read, so no device is known", is_known=False)
    fits = find_fits(cluster, claim, judge)
    if not is_served(fits):
        raise why_waiting(cluster, claim, fits, {})
    node = next(each.node for each in fits if each.allocation)
    return Outcome.OK, f"no pod uses the claim yet; node {node} has its devices free"


def _pods_of(cluster: ClusterObjects, claim: Object) -> Iterator[Object]:
    for pod in cluster.pods:
        if full_name(pod).split("/")[0] == full_name(claim).split("/")[0]:
            statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
            named_here = [*(pod["spec"].get("resourceClaims") or ()), *statuses]
            if any(
                each.get("resourceClaimName") == claim["metadata"]["name"] for each in named_here
            ):
                yield pod


def _check_users(cluster: ClusterObjects, claim: Object) -> None:
    if "pods" in cluster.unread:
        return
    there = {full_name(each) for each in cluster.pods}
    gone = [each for each in users_of(claim) if each not in there]
    if gone:
        raise Cause(
            f"the claim {full_name(claim)} is reserved for pod {some_of(gone)}, which does not "
            "exist: its devices stay held",
            advice="the controller manager frees it; read its log",
            command=["kubectl", "--namespace", full_name(claim).split("/")[0], "get", "pods"],
        )


def _check_holders(cluster: ClusterObjects, claims: list[Object]) -> None:
    """Raise if a device of a claim has two holders."""
    for result in (each for claim in claims for each in results_of(claim)):
        holders = cluster.holders.get(key_of(result), [])
        if key_of(result) in cluster.taken and len(holders) > 1:
            raise Cause(
                f"{_device(result)} has {len(holders)} holders: {'; '.join(map(str, holders))}",
                advice="only one of them may have it: delete the pods of the others",
            )


def _check_published(cluster: ClusterObjects, claims: list[Object], node: str) -> None:
    """Raise if a device of a pod that starts is in no slice.

    A pod that runs keeps its devices while its driver is away, as in an update.
    """
    if "resourceslices" in cluster.unread:
        return
    drivers = {each["spec"]["driver"] for each in cluster.slices}
    published = {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
        for each in cluster.slices
        for device in each["spec"].get("devices") or ()
    }
    for result in (each for claim in claims for each in results_of(claim)):
        key = key_of(result)
        if key not in published:
            who = "no slice has it" if key[0] in drivers else "its driver has no slice"
            raise Cause(
                f"{_device(result)} of node {node} does not exist any more: {who}, so the driver "
                "does not run there, or has lost the device",
                advice="start the driver, or delete the pod",
                command=[*_SLICES_OF, f"spec.driver={key[0]}"],
            )


def _device(result: Object) -> str:
    return "/".join(key_of(result))


def _missing(
    cluster: ClusterObjects, plural: str, there: list[Object], namespace: str, name: str
) -> Cause:
    if why := cluster.unread.get(plural):
        return Cause(f"{plural} cannot be read: {why}", is_known=False)
    names = named(each for each in there if full_name(each).startswith(f"{namespace}/"))
    kind = "claim" if plural == "resourceclaims" else "pod"
    return Cause(
        f"the {kind} {namespace}/{name} does not exist{did_you_mean(name, names)}",
        command=["kubectl", "--namespace", namespace, "get", plural],
    )
