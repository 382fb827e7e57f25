"""The answer about one subject of a cluster: a pod, a claim, a node, or all of it. Pure."""

from kubedevices.errors.safe_text import shell_line
from kubedevices.explain.finding import Outcome
from kubedevices.explain.in_cluster.answer import SubjectAnswer
from kubedevices.explain.in_cluster.device_reason import UNKNOWN_MATCHES, DeviceJudge
from kubedevices.explain.in_cluster.judge_cause import Cause
from kubedevices.explain.in_cluster.judge_claim import judge_claim
from kubedevices.explain.in_cluster.judge_cluster import judge_cluster, judge_node
from kubedevices.explain.in_cluster.judge_pod import judge_pod
from kubedevices.explain.in_cluster.objects import ClusterObjects

_BLIND = "selectors were not evaluated, for want of CEL: pip install cel-expr-python"


def explain(cluster: ClusterObjects, about: str, namespace: str, name: str) -> SubjectAnswer:
    """Return what is the matter with a pod, a claim or a node, if `about` is one of these words.

    Else `about` is a resource or a driver, or empty for the whole cluster.
    """
    subject, judge = about or "cluster", DeviceJudge(cluster)
    if about in ("pod", "claim"):
        subject = f"{about} {namespace}/{name}"
    elif about == "node":
        subject = f"node {name}"
    try:
        result, text = _judged(cluster, about, namespace, name, judge)
        cause = Cause(text)
    except Cause as found:
        cause, result = found, found.result
    notes = [_BLIND] if judge.was_blind else []
    text, advice, command = cause.cause, cause.advice, cause.command
    if judge.is_blind:
        result, text = Outcome.UNKNOWN, UNKNOWN_MATCHES
        advice, command = "install CEL, and ask again", ["pip", "install", "cel-expr-python"]
    return SubjectAnswer(
        subject,
        result,
        text,
        cause.evidence,
        advice,
        shell_line(command) if command else "",
        (*notes, *cluster.notes),
        tuple(f"{plural}: {why}" for plural, why in cluster.unread.items()),
    )


def _judged(
    cluster: ClusterObjects, about: str, namespace: str, name: str, judge: DeviceJudge
) -> tuple[Outcome, str]:
    match about:
        case "pod":
            return judge_pod(cluster, f"{namespace}/{name}", judge)
        case "claim":
            return judge_claim(cluster, namespace, name, judge)
        case "node":
            return judge_node(cluster, name, judge)
    return judge_cluster(cluster, about, judge)
