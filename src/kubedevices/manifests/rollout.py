"""How far the roll-out of a DaemonSet is, and why it does not go on, by objects of the API."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

PENDING = "not ready yet"
"""The reason for a pod whose status has none, which is normal shortly after its start."""
LOG_LINES = 5
"""Lines of the log of a container that failed: the last line of kubedevices is the reason."""
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")


class Progress(NamedTuple):
    """The numbers of nodes with a wanted pod, and with an available pod of the newest version."""

    wanted: int
    available: int
    is_done: bool


def progress(daemon_set: dict[str, Any]) -> Progress:
    """Return how far a DaemonSet is; before its controller has seen it, it is not done."""
    status = daemon_set.get("status") or {}
    is_seen = status.get("observedGeneration", 0) >= daemon_set["metadata"].get("generation", 0)
    wanted = status.get("desiredNumberScheduled", 0)
    updated = status.get("updatedNumberScheduled", 0)
    available = min(status.get("numberAvailable", 0), updated)
    return Progress(wanted, available, is_seen and available >= wanted)


class Versions(NamedTuple):
    """The numbers of ready pods of the newest version, and of older versions."""

    newest: int
    older: int
    has_older: bool
    """Whether the history has an older version, to which `kubectl rollout undo` goes back."""


def versions(pods: Sequence[dict[str, Any]], revisions: Sequence[dict[str, Any]]) -> Versions:
    """Return which versions the ready pods of a DaemonSet have; `revisions` is its history."""
    newest = max(revisions, key=lambda each: int(each["revision"]), default=None)
    ready = [_version(each) for each in pods if is_ready(each)]
    count = len(ready) if newest is None else ready.count(_version(newest))
    return Versions(count, len(ready) - count, len(revisions) > 1)


def _version(document: dict[str, Any]) -> str:
    """Return the label that connects a pod with the revision from which it was made."""
    labels = document["metadata"].get("labels") or {}
    return str(labels.get("controller-revision-hash", ""))


def obstacles(
    daemon_set: dict[str, Any], pods: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]
) -> list[str]:
    """Return the reasons for which the roll-out does not go on, one text for each pod.

    If pods are missing, the last warning about the DaemonSet is the first reason.
    """
    # Fewer pods than wanted: their creation was refused.
    is_refused = len(pods) < (daemon_set.get("status") or {}).get("desiredNumberScheduled", 0)
    last = _warnings(events, daemon_set)[-1:] if is_refused else []
    found = [f"{daemon_set['metadata']['name']}: {reason}" for reason in last]
    for pod in pods:
        if not is_ready(pod):
            node = pod["spec"].get("nodeName", "no node yet")
            reasons = list(_reasons(pod)) or list(map(_at_start, _warnings(events, pod)[-1:]))
            reasons = reasons or [PENDING]
            found.append(f"{pod['metadata']['name']} on {node}: {'; '.join(reasons)}")
    return found


def _at_start(warning: str) -> str:
    """Mark the warning about a failed probe: every pod has this warning before it serves."""
    return f"{PENDING}: {warning}" if warning.startswith("Unhealthy") else warning


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod has the condition Ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def runs(pod: dict[str, Any]) -> bool:
    """Whether a container of the pod runs, so that its log may have a reason."""
    return any("running" in (each.get("state") or {}) for each in _containers(pod))


def _containers(pod: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return (pod.get("status") or {}).get("containerStatuses") or ()


def _reasons(pod: dict[str, Any]) -> Iterator[str]:
    status = pod.get("status") or {}
    if status.get("reason"):
        yield _text(status)
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield _text(condition)
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield _text(waiting)
        if waiting.get("reason") in _NO_IMAGE:
            yield (
                "push the image to a registry that the nodes reach, or import it on every node "
                "(docs/deploy.md)"
            )
        last = (container.get("lastState") or {}).get("terminated") or {}
        ended = (container.get("state") or {}).get("terminated") or last
        if ended.get("exitCode"):
            lines = (ended.get("message") or "").strip().splitlines()[-LOG_LINES:]
            yield "\n    ".join(
                [f"ended with exit code {ended['exitCode']} ({_reason(ended)})", *lines]
            )


def _warnings(events: Sequence[dict[str, Any]], about: dict[str, Any]) -> list[str]:
    """Return the warnings about an object, from old to new."""
    name = about["metadata"]["name"]
    warnings = [
        each
        for each in events
        if each.get("type") == "Warning" and each["involvedObject"].get("name") == name
    ]
    return [_text(each) for each in sorted(warnings, key=_time_of)]


def _time_of(event: dict[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _reason(said: Any) -> str:
    return str(said.get("reason") or "no reason given")


def _text(said: Any) -> str:
    return ": ".join(filter(None, (_reason(said), (said.get("message") or "").strip())))
