"""What is wrong in a whole cluster, on one node of it, or with one resource or driver. Pure.

A pod that waits, a device with two holders and a node that is silent are problems. What may pass by
itself, as in the roll-out of a driver, is a warning: it is shown, and the exit code is 0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from kubedevices.errors.words import counted, did_you_mean, some_of
from kubedevices.explain.finding import Outcome
from kubedevices.explain.in_cluster.answer import Evidence
from kubedevices.explain.in_cluster.device_reason import (
    UNKNOWN_MATCHES,
    DeviceJudge,
    pool_texts,
    taint_text,
)
from kubedevices.explain.in_cluster.judge_cause import POOL_ADVICE, Cause
from kubedevices.explain.in_cluster.judge_claim import check_users
from kubedevices.explain.in_cluster.judge_claim_on_node import requests_of
from kubedevices.explain.in_cluster.judge_pod import away_from, judge_pod
from kubedevices.explain.in_cluster.judge_pod_on_node import why_silent
from kubedevices.explain.in_cluster.judge_results import slices_of
from kubedevices.explain.in_cluster.judge_waiting import claims_of
from kubedevices.explain.in_cluster.objects import (
    MOST_PODS,
    ClusterObjects,
    alternatives_of,
    expressions_of,
    full_name,
    is_extended,
    is_over,
    named,
    phase_of,
    resources_of,
    results_of,
    wanted_resources,
)
from kubedevices.values.scheduling.kinds import Object


class _Wrong(NamedTuple):
    result: Outcome
    subject: str
    cause: Cause


@dataclass(frozen=True)
class _Scope:
    """The nodes to look at, and what to look for: a resource, a driver, a class, or all of it."""

    cluster: ClusterObjects
    nodes: list[Object]
    about: str = ""
    is_one_node: bool = False

    def is_meant(self, name: str) -> bool:
        return self.about in ("", name)

    def pods(self) -> Iterator[Object]:
        """Yield the pods that ask for devices."""
        here = set(named(self.nodes))
        for pod in self.cluster.pods:
            node = pod["spec"].get("nodeName")
            if (not self.is_one_node or node in here) and self._asks(pod):
                yield pod

    def _asks(self, pod: Object) -> bool:
        wanted = wanted_resources(pod)
        if not self.about:
            return bool(wanted or pod["spec"].get("resourceClaims"))
        if self.about in wanted:
            return True
        try:
            claims = claims_of(self.cluster, pod)
        except Cause:
            return False
        return any(self.is_about(each) for each in claims)

    def is_about(self, claim: Object) -> bool:
        """Whether a claim has, or may get, what is looked for."""
        if not self.about or any(each["driver"] == self.about for each in results_of(claim)):
            return True
        for each in requests_of(claim):
            for one in alternatives_of(each):
                name = one.get("deviceClassName", "")
                spec = (self.cluster.class_of.get(name) or {}).get("spec") or {}
                texts = expressions_of(spec, one)
                if name == self.about or any(f'"{self.about}"' in text for text in texts):
                    return True
        return False


def judge_cluster(cluster: ClusterObjects, about: str, judge: DeviceJudge) -> tuple[Outcome, str]:
    """Return how much there is if nothing is wrong; raises `Cause`."""
    scope = _Scope(cluster, cluster.nodes, about)
    if about and not any(_is_known(scope)):
        known = {*cluster.drivers, *cluster.class_of, *_resources(cluster.nodes)}
        raise Cause(
            f"nobody in this cluster offers it{did_you_mean(about, known)}",
            advice="start its driver or device plugin, or correct the name",
            command=["kubectl", "get", "resourceslices,nodes"],
        )
    return _judged(scope, judge, "cluster")


def judge_node(cluster: ClusterObjects, name: str, judge: DeviceJudge) -> tuple[Outcome, str]:
    """Return how many devices a node has if nothing is wrong; raises `Cause`."""
    node = cluster.node_of.get(name)
    if node is None:
        if why := cluster.unread.get("nodes"):
            raise Cause(f"nodes cannot be read: {why}", result=Outcome.UNKNOWN)
        raise Cause(
            f"it does not exist{did_you_mean(name, named(cluster.nodes))}",
            command=["kubectl", "get", "nodes"],
        )
    return _judged(_Scope(cluster, [node], is_one_node=True), judge, f"node {name}")


def _judged(scope: _Scope, judge: DeviceJudge, subject: str) -> tuple[Outcome, str]:
    unread = scope.cluster.unread
    if {"nodes", "resourceslices"} <= unread.keys():
        raise Cause(f"nodes cannot be read: {unread['nodes']}", result=Outcome.UNKNOWN)
    looks: list[Callable[[], Iterable[_Wrong]]] = [
        lambda: _nodes(scope),
        lambda: _holders(scope),
        lambda: _pods(scope, judge),
        lambda: _pools(scope),
        lambda: _extended(scope),
        lambda: _away(scope),
        lambda: _left_claims(scope),
        lambda: _taints(scope),
    ]
    found = list(chain.from_iterable(look() for look in looks))
    found.sort(key=lambda each: _ORDER.index(each.result))
    if not found:
        return Outcome.OK, _summary(scope)
    first, *others = found
    where = "" if first.subject == subject else f"{first.subject}: "
    evidence = []
    for each in others:
        text = f"{'warning: ' * (each.result is Outcome.WARNING)}{each.cause.cause}"
        kind = f"{each.result} {each.subject.split()[0]}"
        evidence.append(Evidence(kind, each.subject, text, "problem"))
    raise Cause(
        f"{where}{first.cause.cause}",
        evidence=[*evidence, *(() if others else first.cause.evidence)],
        advice=first.cause.advice,
        command=first.cause.command,
        result=first.result,
    )


_ORDER = (Outcome.PROBLEM, Outcome.WARNING, Outcome.UNKNOWN, Outcome.OK)


# ---------------------------------------------------------------- what can be wrong


def _nodes(scope: _Scope) -> Iterator[_Wrong]:
    offering = {each["spec"].get("nodeName") for each in scope.cluster.slices}
    for node in scope.nodes:
        name = node["metadata"]["name"]
        has_devices = name in offering or any(_resources([node]))
        if (has_devices or scope.is_one_node) and (why := why_silent(node)):
            advice = "until its kubelet answers, its devices cannot be used"
            command = ["kubectl", "describe", "node", name]
            cause = Cause(why.removeprefix("is "), advice=advice, command=command)
            yield _Wrong(Outcome.PROBLEM, f"node {name}", cause)


def _holders(scope: _Scope) -> Iterator[_Wrong]:
    here = set(named(scope.nodes))
    for key, holders in scope.cluster.conflicts.items():
        if not scope.is_meant(key[0]):
            continue
        users = (scope.cluster.pod_of.get(each) for one in holders for each in one.pods)
        if scope.is_one_node and not any(
            pod and pod["spec"].get("nodeName") in here for pod in users
        ):
            continue
        who = "; ".join(map(str, holders))
        cause = Cause(
            f"{len(holders)} holders: {who}",
            advice="only one of them may have it: delete the pods of the others",
        )
        yield _Wrong(Outcome.PROBLEM, f"device {'/'.join(key)}", cause)


def _pods(scope: _Scope, judge: DeviceJudge) -> Iterator[_Wrong]:
    """Yield what is the matter with pods; of those that wait, one of each owner."""
    owners, explained, left = set(), 0, 0
    for pod in scope.pods():
        if is_over(pod) and not _was_refused(pod):
            continue
        if phase_of(pod) == "Pending" or _was_refused(pod):
            owner = _owner(pod)
            if owner in owners or explained == MOST_PODS:
                left += owner not in owners
                continue
            owners.add(owner)
            explained += 1
        name, judge.is_blind = full_name(pod), False
        try:
            result, text = judge_pod(scope.cluster, name, judge)
        except Cause as cause:
            # It is over: another pod may have taken its place meanwhile.
            result = Outcome.WARNING if _was_refused(pod) else cause.result
            found = cause
            if judge.is_blind:
                result, found = Outcome.UNKNOWN, Cause(UNKNOWN_MATCHES)
            yield _Wrong(result, f"pod {name}", found)
        else:
            if result is not Outcome.OK:
                yield _Wrong(result, f"pod {name}", Cause(text))
    judge.is_blind = False
    if left:
        text = f"{counted(left, 'more pod')} of other owners wait too, and were not looked at"
        yield _Wrong(Outcome.PROBLEM, "pods", Cause(text))


def _was_refused(pod: Object) -> bool:
    reason = (pod.get("status") or {}).get("reason")
    return phase_of(pod) == "Failed" and reason == "UnexpectedAdmissionError"


def _owner(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    uid = next((each.get("uid") for each in owners if each.get("controller")), "")
    return f"{pod['spec'].get('nodeName')} {uid or full_name(pod)}"


def _pools(scope: _Scope) -> Iterator[_Wrong]:
    seen = set()
    for node in scope.nodes:
        for key, pool in scope.cluster.pools_for(node).items():
            if key in seen or not pool.problem or not scope.is_meant(key[0]):
                continue
            seen.add(key)
            is_invalid = "invalid" in pool.problem
            text, _ = pool_texts(scope.cluster, pool)
            cause = Cause(
                text.removeprefix(f"the pool {pool} is "),
                advice=POOL_ADVICE,
                command=slices_of(key[0]),
            )
            yield _Wrong(Outcome.PROBLEM if is_invalid else Outcome.WARNING, f"pool {pool}", cause)


def _extended(scope: _Scope) -> Iterator[_Wrong]:
    for node in scope.nodes:
        name = node["metadata"]["name"]
        for resource, (capacity, usable) in resources_of(node).items():
            if not is_extended(resource) or not scope.is_meant(resource):
                continue
            if not capacity:
                text = f"its device plugin is away from node {name}: capacity 0"
            elif usable < capacity:
                text = f"{capacity - usable} of {capacity} on node {name} are unhealthy"
            else:
                continue
            result = Outcome.PROBLEM if capacity and not usable else Outcome.WARNING
            advice = f"on node {name}, ask for more:"
            command = ["kubedevices", "explain", resource]
            cause = Cause(text, advice=advice, command=command)
            yield _Wrong(result, f"resource {resource}", cause)


def _away(scope: _Scope) -> Iterator[_Wrong]:
    """Yield drivers that publish nothing for a node on which pods have their devices."""
    seen = set()
    for pod in scope.pods():
        if phase_of(pod) != "Running" or pod["metadata"].get("deletionTimestamp"):
            continue
        for driver in away_from(scope.cluster, pod):
            node = pod["spec"]["nodeName"]
            if scope.is_meant(driver) and (driver, node) not in seen:
                seen.add((driver, node))
                text = f"has no slice for node {node}, where pod {full_name(pod)} has its devices"
                advice = "if it is not being updated, start it: this pod cannot end without it"
                cause = Cause(text, advice=advice, command=slices_of(driver))
                yield _Wrong(Outcome.WARNING, f"driver {driver}", cause)


def _left_claims(scope: _Scope) -> Iterator[_Wrong]:
    if scope.is_one_node or scope.cluster.notes:
        return
    for claim in scope.cluster.claims:
        if results_of(claim) and scope.is_about(claim):
            try:
                check_users(scope.cluster, claim)
            except Cause as cause:
                name = f"claim {full_name(claim)}"
                cause.cause = cause.cause.removeprefix(f"the {name} is ")
                yield _Wrong(Outcome.WARNING, name, cause)


def _taints(scope: _Scope) -> Iterator[_Wrong]:
    tainted: dict[tuple[str, str], dict[str, None]] = {}
    for node in scope.nodes:
        for each in scope.cluster.devices_for(node):
            if scope.is_meant(each.driver):
                for taint in each.device.get("taints") or ():
                    if taint["effect"] != "None":
                        labels = tainted.setdefault((each.driver, taint_text(taint)), {})
                        labels["/".join(each.key[1:])] = None
    for (driver, text), labels in tainted.items():
        are = "is" if len(labels) == 1 else "are"
        cause = Cause(
            f"{some_of(labels)} {are} tainted {text}",
            advice="repair the devices; pods that tolerate the taint get them",
            command=slices_of(driver),
        )
        yield _Wrong(Outcome.WARNING, f"driver {driver}", cause)


# ---------------------------------------------------------------- how much there is


def _resources(nodes: Iterable[Object]) -> Iterator[str]:
    for node in nodes:
        yield from filter(is_extended, resources_of(node))


def _is_known(scope: _Scope) -> Iterator[bool]:
    cluster, about = scope.cluster, scope.about
    yield about in cluster.drivers
    yield about in cluster.class_of
    yield about in set(_resources(cluster.nodes))
    yield any(
        (each.get("spec") or {}).get("extendedResourceName") == about for each in cluster.classes
    )


def _summary(scope: _Scope) -> str:
    """Return what there is, if nothing is wrong."""
    devices: Counter[str] = Counter()
    seen = set()
    for node in scope.nodes:
        for each in scope.cluster.devices_for(node):
            if each.key not in seen and scope.is_meant(each.driver):
                seen.add(each.key)
                devices[each.driver] += 1
        for name, (_, usable) in resources_of(node).items():
            if is_extended(name) and scope.is_meant(name):
                devices[name] += int(usable)
    if not devices:
        where = f"node {named(scope.nodes)[0]}" if scope.is_one_node else "this cluster"
        return f"nothing is wrong; {where} has no devices: no driver or plugin offers one"
    pods = [
        pod
        for pod in scope.pods()
        if phase_of(pod) == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]
    have = "has" if len(pods) == 1 else "have"
    what = some_of(f"{number} {name}" for name, number in sorted(devices.items()))
    return f"nothing is wrong; devices: {what}; {counted(len(pods), 'pod')} {have} devices"
