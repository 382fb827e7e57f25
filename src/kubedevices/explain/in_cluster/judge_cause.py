"""Why no node has the devices of a claim: the cause, from what the nodes have. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kubedevices.errors.words import counted, some_of
from kubedevices.explain.finding import Outcome
from kubedevices.explain.in_cluster.answer import Evidence
from kubedevices.explain.in_cluster.device_reason import Reason, Stage, pool_texts
from kubedevices.explain.in_cluster.judge_claim_on_node import NodeFit, WishFit, requests_of
from kubedevices.explain.in_cluster.judge_pod_on_node import CHOICE
from kubedevices.explain.in_cluster.objects import ClusterObjects, full_name
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.pools import PoolDevice

POOL_ADVICE = "the driver is writing its slices, has stopped, or writes wrong ones: read its log"


class Cause(Exception):
    """The cause, found; `evidence`, `advice` and `command` are for the answer.

    Its result is `UNKNOWN` if what could be read does not tell the cause.
    """

    def __init__(
        self,
        cause: str,
        *,
        evidence: Sequence[Evidence] = (),
        advice: str = "",
        command: Sequence[str] = (),
        result: Outcome = Outcome.PROBLEM,
    ) -> None:
        self.cause, self.evidence, self.advice = cause, tuple(evidence), advice
        self.command, self.result = [*command], result
        super().__init__(cause)


def why_waiting(
    cluster: ClusterObjects, claim: Object, fits: Sequence[NodeFit], blocked: Mapping[str, str]
) -> Cause:
    """Return why no node serves a claim; `blocked` are nodes on which its pod cannot run, and why.

    `fits` has all nodes; if the pod can run on some, only those count.
    """
    possible = [each for each in fits if each.node not in blocked] or [*fits]
    elsewhere = [Evidence("node", f"node {name}", why, "node") for name, why in blocked.items()]
    if broken := _broken(cluster, claim, possible, elsewhere):
        return broken
    good = next((each for each in fits if each.allocation and each.node in blocked), None)
    there = why = ""
    if good is not None:
        why = blocked[good.node]
        there = f"node {good.node} has the devices, but the pod cannot run there: {why}"
    if good is not None and len(blocked) == len(fits):
        return Cause(
            there,
            evidence=elsewhere,
            advice="change the pod or the node",
            command=["kubectl", "describe", "node", good.node],
        )
    if not cluster.slices:
        return Cause(
            "no ResourceSlice exists: no DRA driver has published a device",
            evidence=elsewhere,
            advice="start the driver, and read its log",
            command=["kubectl", "get", "resourceslices"],
        )
    untried = [each for each in possible if not each.lacking and not each.is_tried]
    if untried:
        return Cause(
            f"node {untried[0].node} has enough free devices, but whether they fit together was "
            "not tried",
            evidence=elsewhere,
            result=Outcome.UNKNOWN,
        )
    if among := next((each for each in possible if not each.lacking and each.problem), None):
        return _constraint(claim, among, elsewhere)
    cause = _lack(cluster, claim, possible, elsewhere)
    if there and why.startswith(CHOICE):
        cause.cause += f"; {there}"
    elif there:  # the pod does not ask for the other nodes, so this node is what it waits for
        cause.cause = f"{there}; {cause.cause}"
    return cause


def _broken(
    cluster: ClusterObjects, claim: Object, possible: Sequence[NodeFit], elsewhere: list[Evidence]
) -> Cause | None:
    """Return the selector that fails, if an allocator meets that: then no other node helps."""
    for number in range(len(requests_of(claim))):
        nodes = [each for each in possible if each.is_broken]
        for column in zip(*(each.requests[number] for each in nodes), strict=True):
            if broken := _Lack(cluster, claim, nodes, column, elsewhere).broken():
                return broken
    return None


def _constraint(claim: Object, found: NodeFit, elsewhere: list[Evidence]) -> Cause:
    evidence = [
        Evidence(
            "free", _label(offered), f"free for request {one.wish.name}{_values(claim, offered)}"
        )
        for each in found.requests
        for one in each
        for offered, reason in one.devices
        if reason.stage is Stage.FITS
    ]
    unequal = _unequal(claim, found)
    what = f"on node {found.node}, {unequal or found.problem}"
    if not unequal and not found.problem.startswith("request "):
        alone = f"node {found.node} has enough free devices for each request"
        what = f"{alone}, but not together: {found.problem}"
    if "but the pool" in found.problem:
        slices = ["kubectl", "get", "resourceslices"]
        return Cause(what, evidence=elsewhere, advice=POOL_ADVICE, command=slices)
    return Cause(
        what,
        evidence=evidence + elsewhere,
        advice="change the constraints of the claim, or free devices that fit together",
        command=_show(claim),
    )


def _unequal(claim: Object, found: NodeFit) -> str:
    """Return the constraint that no free devices fulfil, if it is as simple as that."""
    for each in (claim["spec"].get("devices") or {}).get("constraints") or ():
        same, differs = each.get("matchAttribute"), each.get("distinctAttribute")
        wishes = [
            wishes[0]
            for wishes in found.requests
            if not each.get("requests") or wishes[0].wish.name in each["requests"]
        ]
        wanted = sum(one.wish.count for one in wishes)
        free = {
            offered.key: _attribute(offered, str(same or differs))
            for one in wishes
            for offered, why in one.devices
            if why.stage is Stage.FITS
        }
        counts = Counter(value for value in free.values() if value)
        values = some_of(f"{number} with {value}" for value, number in counts.most_common())
        if same and max(counts.values(), default=0) < wanted:
            return f"no {wanted} free devices have the same {same}: {values or 'none has it'}"
        if differs and len(counts) < wanted:
            return f"no {wanted} free devices differ in {differs}: {values or 'none has it'}"
    return ""


def _attribute(offered: PoolDevice, name: str) -> str:
    attributes = offered.device.get("attributes") or {}
    found = attributes.get(name)
    if found is None and name.startswith(f"{offered.driver}/"):
        found = attributes.get(name.rpartition("/")[2])
    return str(next(iter(found.values()))) if found else ""


def _values(claim: Object, offered: PoolDevice) -> str:
    """Return the attributes that constraints of a claim compare."""
    shown = []
    for each in (claim["spec"].get("devices") or {}).get("constraints") or ():
        name = each.get("matchAttribute") or each.get("distinctAttribute") or ""
        shown.append(f"{name} is {_attribute(offered, name) or 'missing'}")
    return f": {', '.join(dict.fromkeys(shown))}" if shown else ""


def _lack(
    cluster: ClusterObjects, claim: Object, possible: Sequence[NodeFit], elsewhere: list[Evidence]
) -> Cause:
    """Return what the first request lacks that no node has."""
    number = next(
        (
            number
            for number in range(len(requests_of(claim)))
            if all(each.requests[number] in each.lacking for each in possible)
        ),
        None,
    )
    if number is None:
        text = "no node has the devices of all requests: each has those of some"
        evidence = [
            Evidence("lack", f"node {each.node}", f"lacks devices for request {names}", "node")
            for each in possible
            for names in [some_of(one.wish.name for wishes in each.lacking for one in wishes)]
        ]
        return Cause(text, evidence=evidence + elsewhere, command=_show(claim))
    columns = zip(*(each.requests[number] for each in possible), strict=True)
    options = [[*each] for each in columns]
    lacks = [_Lack(cluster, claim, possible, each, elsewhere) for each in options]
    # Of several alternatives, the one that came furthest says most.
    return max(lacks, key=lambda each: each.furthest).cause()


@dataclass
class _Lack:
    """A request, or one alternative of it, for which the nodes `possible` have not enough."""

    cluster: ClusterObjects
    claim: Object
    possible: Sequence[NodeFit]
    fits: Sequence[WishFit]
    elsewhere: list[Evidence]

    @property
    def where(self) -> str:
        """The request, for messages."""
        wish = self.fits[0].wish
        if resource := self.claim.get("resource"):
            return f"{resource} (DeviceClass {wish.spec['deviceClassName']})"
        return f"request {wish.name} of claim {full_name(self.claim)}"

    @cached_property
    def reasons(self) -> list[tuple[PoolDevice, Reason]]:
        """Each device once, those nearest to success first."""
        found = {each.key: (each, why) for one in self.fits for each, why in one.devices}
        return sorted(found.values(), key=lambda each: -each[1].stage)

    @property
    def furthest(self) -> Stage:
        """How far a device comes."""
        return self.reasons[0][1].stage if self.reasons else Stage.SELECTOR

    @property
    def evidence(self) -> list[Evidence]:
        """A line for each device and for each node on which the pod cannot run."""
        devices = [Evidence(why.stage.name, _label(each), why.text) for each, why in self.reasons]
        return devices + self.elsewhere

    def cause(self) -> Cause:
        """Return what is lacking."""
        if not self.reasons:
            return self._nothing_published()
        if self.furthest is Stage.SELECTOR:
            return self._nothing_matches()
        return self._not_enough()

    def broken(self) -> Cause | None:
        """Return the cause if a selector fails for a device."""
        for _, why in self.reasons:
            if why.stage is Stage.BROKEN_SELECTOR:
                return Cause(
                    f"{self.where}: {why.text}; a scheduler then gives up the claim",
                    evidence=self.evidence,
                    advice="let the selector ask for the attribute before it compares it",
                    command=_show(self.claim),
                )
        return None

    def _nothing_published(self) -> Cause:
        """Say what is wrong with a pool of these nodes, if it cannot be used as a whole."""
        for node in filter(None, (self.cluster.node_of.get(each.node) for each in self.possible)):
            for pool in self.cluster.pools_for(node).values():
                if pool.problem:
                    text, _ = pool_texts(self.cluster, pool)
                    return Cause(
                        f"no device is free for {self.where}: {text}",
                        evidence=self.elsewhere,
                        advice=POOL_ADVICE,
                        command=["kubectl", "get", "resourceslices"],
                    )
        names = some_of(each.node for each in self.possible)
        of = "node" if len(self.possible) == 1 else "any of the nodes"
        slices = [(each, _for_whom(each["spec"])) for each in self.cluster.slices]
        evidence = [
            Evidence("slice", f"slice {found['metadata']['name']}", f"{name}, {whom}", "slice")
            for found, whom in slices
            for name in [f"driver {found['spec']['driver']}"]
        ]
        whose = Counter("for another node" if " node " in whom else whom for _, whom in slices)
        known = ", ".join(
            f"{counted(number, 'slice')} {whom}" for whom, number in whose.most_common()
        )
        return Cause(
            f"no ResourceSlice has a device for {of} {names} ({self.where}); known: {known}",
            evidence=evidence + self.elsewhere,
            advice="start the driver there, or correct for which nodes it publishes devices",
            command=["kubectl", "get", "resourceslices"],
        )

    def _nothing_matches(self) -> Cause:
        shorts = Counter(why.short for _, why in self.reasons)
        short, number = shorts.most_common(1)[0]
        others = f" (for {number} of them)" if len(shorts) > 1 else ""
        texts = {why.text for _, why in self.reasons}
        # The values are in the first line if all devices have the same.
        values = min(texts).removeprefix(f"{short} is false") if len(texts) == 1 else ""
        what = f"no device of {len(self.reasons)} matches {self.where}"
        return Cause(
            f"{what}: {short} is false{others}{values}",
            evidence=self.evidence,
            advice="compare the selector with the attributes in the slices",
            command=["kubectl", "get", "resourceslices", "-o", "yaml"],
        )

    def _not_enough(self) -> Cause:
        matching = [each for each in self.reasons if each[1].stage > Stage.BROKEN_SELECTOR]
        stopped = [why for _, why in matching if why.stage is not Stage.FITS]
        device, first = matching[0]
        if len(matching) == 1 and stopped:  # its reason is the cause
            free = f"{device.device['name']} alone matches: {first.text}"
            what = f"no device is free for {self.where}: {free}"
        elif len(stopped) == len(matching):
            what = f"no device is free for {self.where}: {_grouped(stopped, len(matching))}"
        elif self.fits[0].is_all:
            what = (
                f"{self.where} wants all devices that match, and {_grouped(stopped, len(matching))}"
            )
        else:
            best = max(self.fits, key=lambda each: each.free)
            node = self.possible[self.fits.index(best)].node
            what = (
                f"{self.where} wants {best.wish.count} devices of one node, the most that are free "
                f"are {best.free}, on {node}"
            )
            if stopped:
                what += f" ({_grouped(stopped, len(matching))})"
        return _advised(Cause(what, evidence=self.evidence), self.claim, stopped)


def _for_whom(spec: Object) -> str:
    """Return for which nodes the devices of a slice are."""
    if name := spec.get("nodeName"):
        return f"for node {name}"
    if spec.get("nodeSelector"):
        return "with a nodeSelector that does not match"
    return "with devices for other nodes"


def _grouped(stopped: Sequence[Reason], number: int) -> str:
    """Return why devices are not free; `number` are those that match."""
    counts = Counter(each.short for each in stopped)
    if len(counts) == 1 and len(stopped) == number:
        return f"all {number} that match are {stopped[0].short}"
    parts = (
        f"{count} {'is' if count == 1 else 'are'} {short}" for short, count in counts.most_common()
    )
    return f"of {number} that match, {', '.join(parts)}"


def _advised(cause: Cause, claim: Object, reasons: Sequence[Reason]) -> Cause:
    """Add what helps against the reason nearest to success."""
    stage = max((each.stage for each in reasons), default=None)
    if stage is Stage.POOL:
        cause.advice = POOL_ADVICE
        cause.command = ["kubectl", "get", "resourceslices"]
    elif stage is Stage.TAINT:
        cause.advice = "repair the device, or let the request tolerate the taint"
        if any(why.stage is Stage.HELD for why in reasons):
            cause.advice += "; or end a pod that holds one"
        cause.command = ["kubectl", "get", "resourceslices", "-o", "yaml"]
    elif stage in (Stage.HELD, Stage.CAPACITY, Stage.COUNTERS):
        cause.advice = "end a pod that holds devices, or add devices"
        cause.command = ["kubectl", "get", "resourceclaims", "--all-namespaces", "-o", "wide"]
    else:
        cause.advice = "ask for less, or add devices"
        cause.command = _show(claim)
    return cause


def _show(claim: Object) -> list[str]:
    if "resource" in claim:
        name = requests_of(claim)[0]["exactly"]["deviceClassName"]
        return ["kubectl", "get", "deviceclass", name, "-o", "yaml"]
    namespace, name = full_name(claim).split("/")
    return ["kubectl", "--namespace", namespace, "get", "resourceclaim", name, "-o", "yaml"]


def _label(offered: PoolDevice) -> str:
    return "/".join(offered.key)
