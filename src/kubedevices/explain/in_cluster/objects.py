"""The objects of a cluster that decide about a claim, and who holds which device. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from kubedevices.values.quantities import amount
from kubedevices.values.scheduling.capacities import Consumed, Key
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.pools import (
    NodePool,
    PoolDevice,
    gather,
    is_complete,
    is_relevant,
    newest,
)

CLASS_ANNOTATION = "deviceclass.resource.kubernetes.io/"
"""A resource name that begins so is a request for a device of the class with this name."""


MOST_PODS = 20
"""Pods of a cluster that are explained: those of one owner wait for the same."""


class DeviceHolder(NamedTuple):
    """A claim that has a device, and the pods for which it is reserved.

    `ghosts` says of those of the pods that should not hold it any more what became of them.
    """

    claim: str
    pods: tuple[str, ...]
    ghosts: Mapping[str, str] = MappingProxyType({})

    def __str__(self) -> str:
        if not self.pods:
            return f"the claim {self.claim}, which no pod uses"
        kind = "pod" if len(self.pods) == 1 else "pods"
        pods = ", ".join(
            f"{each} ({self.ghosts[each]})" if each in self.ghosts else each for each in self.pods
        )
        return f"{kind} {pods} through claim {self.claim}"

    @property
    def is_left_behind(self) -> bool:
        """Whether nobody uses the claim any more."""
        return all(each in self.ghosts for each in self.pods)


@dataclass(frozen=True)
class ClusterObjects:
    """What was read. `unread` says by plural why a kind could not be read; its list is empty.

    `notes` say of what only a part could be read; `read_at` is a time in seconds since 1970, 0 if
    nothing shall look old.
    """

    pods: list[Object] = field(default_factory=list)
    claims: list[Object] = field(default_factory=list)
    templates: list[Object] = field(default_factory=list)
    classes: list[Object] = field(default_factory=list)
    slices: list[Object] = field(default_factory=list)
    listed_nodes: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    unread: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    read_at: float = 0.0

    @cached_property
    def nodes(self) -> list[Object]:
        """The nodes; if they could not be read, those that slices name, without labels."""
        if "nodes" not in self.unread:
            return self.listed_nodes
        names = dict.fromkeys(each["spec"].get("nodeName") for each in self.slices)
        return [{"metadata": {"name": name}} for name in names if name]

    @cached_property
    def class_of(self) -> dict[str, Object]:
        """The DeviceClasses by name."""
        return {each["metadata"]["name"]: each for each in self.classes}

    @cached_property
    def claim_of(self) -> dict[str, Object]:
        """The claims by NAMESPACE/NAME."""
        return {full_name(each): each for each in self.claims}

    @cached_property
    def pod_of(self) -> dict[str, Object]:
        """The pods by NAMESPACE/NAME."""
        return {full_name(each): each for each in self.pods}

    @cached_property
    def node_of(self) -> dict[str, Object]:
        """The nodes by name."""
        return {each["metadata"]["name"]: each for each in self.nodes}

    @cached_property
    def pods_on(self) -> dict[str, list[Object]]:
        """The pods that have not ended, by node."""
        found: dict[str, list[Object]] = defaultdict(list)
        for each in self.pods:
            if (node := each["spec"].get("nodeName")) and not is_over(each):
                found[node].append(each)
        return found

    @cached_property
    def requested_on(self) -> dict[str, dict[str, Fraction]]:
        """What the pods of each node ask for of each resource; `pods` is their number."""
        found: dict[str, dict[str, Fraction]] = {}
        for node, pods in self.pods_on.items():
            sums = found[node] = {"pods": Fraction(len(pods))}
            for each in pods:
                for name, number in requested(each).items():
                    sums[name] = sums.get(name, Fraction(0)) + number
        return found

    def age(self, text: str | None) -> float:
        """Return the seconds since a time of the API server; 0 if it is unknown, or not over."""
        try:
            began = datetime.fromisoformat(text or "").timestamp()
        except ValueError:
            return 0.0
        return max(self.read_at - began, 0.0)

    def with_claim(self, claim: Object) -> "ClusterObjects":
        """Return this cluster after one more claim has got devices."""
        made = replace(self, claims=[*self.claims, claim])
        for name in ("nodes", "class_of", "pools", "_pools_of_node", "pod_of", "node_of"):
            made.__dict__[name] = getattr(self, name)
        return made

    # ------------------------------------------------------------ devices

    @cached_property
    def holders(self) -> dict[Key, list[DeviceHolder]]:
        """The claims that have a device, by device; without those that only watch (admin)."""
        found: dict[Key, list[DeviceHolder]] = defaultdict(list)
        for claim in self.claims:
            if results := results_of(claim):
                holder = self._holder(claim)
                for result in results:
                    if not result.get("adminAccess"):
                        found[key_of(result)].append(holder)
        return dict(found)

    @cached_property
    def conflicts(self) -> dict[Key, list[DeviceHolder]]:
        """The devices that one claim should have alone, and several have, with their holders."""
        return {
            key: holders
            for key, holders in sorted(self.holders.items())
            if len(holders) > 1 and key in self.taken
        }

    def _holder(self, claim: Object) -> DeviceHolder:
        pods = users_of(claim)
        ghosts = {each: what for each in pods if (what := self._became(each))}
        return DeviceHolder(full_name(claim), pods, ghosts)

    def _became(self, pod_name: str) -> str:
        """Return what became of a pod that should not hold a device any more."""
        if "pods" in self.unread or self.notes:
            return ""  # some pods cannot be seen
        pod = self.pod_of.get(pod_name)
        if pod is None:
            return "which does not exist"
        if is_over(pod):
            return "which has ended"
        return "which does not end" if self.age(pod["metadata"].get("deletionTimestamp")) else ""

    @cached_property
    def results(self) -> list[Object]:
        """All devices that claims have."""
        return [
            result
            for claim in self.claims
            for result in results_of(claim)
            if not result.get("adminAccess")
        ]

    @cached_property
    def taken(self) -> set[Key]:
        """The devices that one claim has alone."""
        return {key_of(each) for each in self.results if not each.get("shareID")}

    @cached_property
    def shared(self) -> Consumed:
        """What claims consume of devices that they share."""
        return Consumed(each for each in self.results if each.get("shareID"))

    def claims_with(self, pools: Iterable[tuple[str, str]]) -> list[Object]:
        """Return the claims that have devices of these pools."""
        found = (each for pool in pools for each in self._claims_of_pool.get(pool, ()))
        return [*{id(each): each for each in found}.values()]

    @cached_property
    def _claims_of_pool(self) -> dict[tuple[str, str], list[Object]]:
        found: dict[tuple[str, str], list[Object]] = defaultdict(list)
        for claim in self.claims:
            for pool in {key_of(each)[:2] for each in results_of(claim)}:
                found[pool].append(claim)
        return dict(found)

    @cached_property
    def pools(self) -> dict[tuple[str, str], list[Object]]:
        """The slices by driver and pool, of all generations."""
        found: dict[tuple[str, str], list[Object]] = defaultdict(list)
        for each in self.slices:
            found[each["spec"]["driver"], each["spec"]["pool"]["name"]].append(each)
        return found

    @cached_property
    def drivers(self) -> set[str]:
        """The drivers that have published a slice."""
        return {driver for driver, _ in self.pools}

    @cached_property
    def published(self) -> set[Key]:
        """The devices that are in a slice."""
        return {
            (*key, device["name"])
            for key, members in self.pools.items()
            for each in members
            for device in each["spec"].get("devices") or ()
        }

    @cached_property
    def _pools_of_node(self) -> dict[str, set[tuple[str, str]]]:
        """The pools by the node that a slice names; "" for slices that name no node."""
        found: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for key, members in self.pools.items():
            for each in members:
                found[each["spec"].get("nodeName") or ""].add(key)
            # A slice with counters counts for each node, so while its pool is incomplete, no node
            # serves a request for all devices.
            current = newest(members)
            has_counters = any(each["spec"].get("sharedCounters") for each in current)
            if has_counters and not is_complete(current):
                found[""].add(key)
        return found

    def slices_for(self, node: Object) -> list[Object]:
        """Return the slices of all pools that may have a device for a node."""
        by_node = self._pools_of_node
        keys = by_node.get(node["metadata"]["name"], set()) | by_node.get("", set())
        return [each for key in sorted(keys) for each in self.pools[key]]

    def pools_for(self, node: Object) -> dict[tuple[str, str], NodePool]:
        """Return the pools with devices for a node."""
        pools = gather(self.slices_for(node), node)
        return {(each.driver, each.name): each for each in pools}

    def devices_for(self, node: Object) -> Iterator[PoolDevice]:
        """Yield the devices for a node, also those of pools that are not complete."""
        for key in self.pools_for(node):
            for each in newest(self.pools[key]):
                if is_relevant(each, node):
                    for device in each["spec"].get("devices") or ():
                        offered = PoolDevice(*key, device, each["spec"])
                        if offered.is_on(node):
                            yield offered

    def count_of_slices(self, key: tuple[str, str]) -> str:
        """Return how many slices of a pool exist, and how many must."""
        current = newest(self.pools[key])
        pool = current[0]["spec"]["pool"]
        return f"{len(current)} of {pool['resourceSliceCount']} slices of generation " + str(
            pool["generation"]
        )


def full_name(found: Object) -> str:
    """Return NAMESPACE/NAME."""
    return f"{found['metadata'].get('namespace', 'default')}/{found['metadata']['name']}"


def results_of(claim: Object) -> list[Object]:
    """Return the devices that a claim has."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def key_of(result: Object) -> Key:
    """Return driver, pool and device."""
    return result["driver"], result["pool"], result["device"]


def users_of(claim: Object) -> tuple[str, ...]:
    """Return the pods for which a claim is reserved, with their namespace."""
    namespace = claim["metadata"].get("namespace", "default")
    return tuple(
        f"{namespace}/{each['name']}"
        for each in (claim.get("status") or {}).get("reservedFor") or ()
        if each.get("resource", "pods") == "pods"
    )


def alternatives_of(request: Object) -> list[Object]:
    """Return what a request asks for: one thing, or the first of several."""
    return request.get("firstAvailable") or [request.get("exactly") or {}]


def expressions_of(*specs: Object) -> tuple[str, ...]:
    """Return the selectors of classes and requests."""
    return tuple(
        each["cel"]["expression"]
        for spec in specs
        for each in spec.get("selectors") or ()
        if "cel" in each
    )


def is_over(pod: Object) -> bool:
    """Whether a pod has ended: it holds nothing any more."""
    return phase_of(pod) in ("Succeeded", "Failed")


def phase_of(pod: Object) -> str:
    """Return the phase; the API server calls a new pod Pending."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def resources_of(node: Object) -> dict[str, tuple[Fraction, Fraction]]:
    """Return capacity and allocatable of each resource of a node."""
    status = node.get("status") or {}
    capacity, allocatable = (status.get(each) or {} for each in ("capacity", "allocatable"))
    return {
        name: (number_of(capacity.get(name, 0)), number_of(allocatable.get(name, 0)))
        for name in sorted({*capacity, *allocatable})
    }


def wanted_resources(pod: Object) -> dict[str, Fraction]:
    """Return the extended resources that a pod asks for."""
    return {name: number for name, number in requested(pod).items() if is_extended(name)}


def requested(pod: Object) -> dict[str, Fraction]:
    """Return what a pod asks for of each resource.

    Init containers run before the others, so the larger number counts; sidecars run beside them.
    What the pod asks for as a whole (KEP-2837) counts instead of its containers.
    """
    spec = pod["spec"]
    beside = [*(spec.get("containers") or ())]
    before = spec.get("initContainers") or []
    beside += [each for each in before if each.get("restartPolicy") == "Always"]
    wanted: dict[str, Fraction] = defaultdict(Fraction)
    for each in beside:
        for name, number in _asked(each):
            wanted[name] += number
    for each in before:
        for name, number in _asked(each):
            wanted[name] = max(wanted[name], number)
    wanted |= _asked(spec)
    for name, text in (spec.get("overhead") or {}).items():
        wanted[name] += number_of(text)
    return {name: number for name, number in wanted.items() if number}


def _asked(container: Object) -> Iterator[tuple[str, Fraction]]:
    resources = container.get("resources") or {}
    both = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    for name, text in both.items():
        yield name, number_of(text)


def is_extended(resource: str) -> bool:
    """Whether a name is that of an extended resource, and not of Kubernetes itself."""
    domain, slash, _ = resource.partition("/")
    is_of_kubernetes = f".{domain}".endswith(".kubernetes.io")
    return bool(slash) and (not is_of_kubernetes or CLASS_ANNOTATION in resource)


def number_of(text: object) -> Fraction:
    """Return the value of a quantity, 0 for anything else."""
    try:
        return amount(str(text))
    except ValueError:
        return Fraction(0)


def named(found: Iterable[Object]) -> list[str]:
    """Return the names of objects."""
    return [each["metadata"]["name"] for each in found]
