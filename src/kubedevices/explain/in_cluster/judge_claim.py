"""The answer about a claim of a cluster. Pure."""

from collections.abc import Iterator

from kubedevices.errors.words import some_of
from kubedevices.explain.finding import Outcome
from kubedevices.explain.in_cluster.device_reason import DeviceJudge
from kubedevices.explain.in_cluster.judge_cause import Cause, why_waiting
from kubedevices.explain.in_cluster.judge_pod import check_end
from kubedevices.explain.in_cluster.judge_results import (
    check_holders,
    check_published,
    device_label,
    missing,
)
from kubedevices.explain.in_cluster.judge_waiting import (
    find_cause,
    find_fits,
    is_served,
    what_the_scheduler_says,
)
from kubedevices.explain.in_cluster.objects import (
    ClusterObjects,
    full_name,
    phase_of,
    results_of,
    users_of,
)
from kubedevices.values.scheduling.kinds import Object


def judge_claim(
    cluster: ClusterObjects, namespace: str, name: str, judge: DeviceJudge
) -> tuple[Outcome, str]:
    """Return how far a claim is; raises `Cause`."""
    claim = cluster.claim_of.get(f"{namespace}/{name}")
    if claim is None:
        raise missing(cluster, "resourceclaims", cluster.claims, namespace, name)
    if results := results_of(claim):
        check_holders(cluster, [claim])
        check_users(cluster, claim)
        for pod in _pods_of(cluster, claim):
            if phase_of(pod) == "Pending" and (node := pod["spec"].get("nodeName")):
                check_published(cluster, [claim], node)
            if pod["metadata"].get("deletionTimestamp"):
                check_end(cluster, pod)
        pods = users_of(claim)
        who = f"for pod {some_of(pods)}" if pods else "and no pod uses it"
        return Outcome.OK, f"the claim has {some_of(map(device_label, results))}, {who}"
    for pod in _pods_of(cluster, claim):
        if phase_of(pod) == "Pending" and not pod["spec"].get("nodeName"):
            return what_the_scheduler_says(cluster, pod, find_cause(cluster, pod, judge))
    if "resourceslices" in cluster.unread:
        raise Cause("ResourceSlices cannot be read, so no device is known", result=Outcome.UNKNOWN)
    fits = find_fits(cluster, claim, judge)
    if not is_served(fits):
        raise why_waiting(cluster, claim, fits, {})
    node = next(each.node for each in fits if each.allocation)
    return Outcome.OK, f"no pod uses the claim yet; node {node} has its devices free"


def check_users(cluster: ClusterObjects, claim: Object) -> None:
    """Raise `Cause` if a claim is reserved for a pod that does not exist."""
    if "pods" in cluster.unread:
        return
    gone = [each for each in users_of(claim) if each not in cluster.pod_of]
    if gone:
        raise Cause(
            f"the claim {full_name(claim)} is reserved for pod {some_of(gone)}, which does not "
            "exist: its devices stay held",
            advice="the controller manager frees it; read its log",
            command=["kubectl", "--namespace", full_name(claim).split("/")[0], "get", "pods"],
        )


def _pods_of(cluster: ClusterObjects, claim: Object) -> Iterator[Object]:
    for pod in cluster.pods:
        if full_name(pod).split("/")[0] == full_name(claim).split("/")[0]:
            statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
            named_here = [*(pod["spec"].get("resourceClaims") or ()), *statuses]
            if any(
                each.get("resourceClaimName") == claim["metadata"]["name"] for each in named_here
            ):
                yield pod
