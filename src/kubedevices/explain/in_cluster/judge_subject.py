"""The answer about one subject of a cluster: a pod, a claim, a node, or all of it. Pure."""

from collections.abc import Callable

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


def explain_pod(cluster: ClusterObjects, namespace: str, name: str) -> SubjectAnswer:
    """Return what is the matter with a pod."""
    return _explained(
        cluster,
        f"pod {namespace}/{name}",
        lambda judge: judge_pod(cluster, f"{namespace}/{name}", judge),
    )


def explain_claim(cluster: ClusterObjects, namespace: str, name: str) -> SubjectAnswer:
    """Return what is the matter with a claim."""
    return _explained(
        cluster,
        f"claim {namespace}/{name}",
        lambda judge: judge_claim(cluster, namespace, name, judge),
    )


def explain_node(cluster: ClusterObjects, name: str) -> SubjectAnswer:
    """Return what is the matter with the devices of a node."""
    return _explained(cluster, f"node {name}", lambda judge: judge_node(cluster, name, judge))


def explain_cluster(cluster: ClusterObjects, about: str = "") -> SubjectAnswer:
    """Return what is the matter with a cluster, or with one resource or driver of it."""
    subject = about or "cluster"
    return _explained(cluster, subject, lambda judge: judge_cluster(cluster, about, judge))


def _explained(
    cluster: ClusterObjects,
    subject: str,
    judged: Callable[[DeviceJudge], tuple[Outcome, str]],
) -> SubjectAnswer:
    judge = DeviceJudge(cluster)
    try:
        result, text = judged(judge)
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
