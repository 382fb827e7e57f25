"""The pools of devices that a node can use, and their counters. Pure.

Rules of k8s.io/dynamic-resource-allocation 1.36, `structured/internal/incubating`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from kubedevices.values.quantities import amount
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.scheduling.node_selectors import is_on_node

Counters = dict[tuple[str, str], Fraction]
"""Values by counter set and counter."""


class PoolDevice(NamedTuple):
    """A device of a pool; `spec` is the spec of its slice."""

    driver: str
    pool: str
    device: Object
    spec: Object

    @property
    def key(self) -> tuple[str, str, str]:
        """The unique key of the device."""
        return self.driver, self.pool, self.device["name"]

    def counters(self) -> Counters:
        """Return what the device consumes of the counters of its pool."""
        return {
            (each["counterSet"], name): amount(str(value["value"]))
            for each in self.device.get("consumesCounters") or ()
            for name, value in each["counters"].items()
        }

    def is_on(self, node: Object) -> bool:
        """Return whether the device is on a node, as far as the device says so itself."""
        return not self.spec.get("perDeviceNodeSelection") or is_on_node(self.device, node)


@dataclass
class NodePool:
    """The newest slices of a pool.

    `devices` are those of slices for the node, `elsewhere` all others. With a `problem` no device
    of the pool is allocated.
    """

    driver: str
    name: str
    devices: list[PoolDevice] = field(default_factory=list)
    elsewhere: list[PoolDevice] = field(default_factory=list)
    counters: Counters = field(default_factory=dict)
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


def gather(slices: Iterable[Object], node: Object) -> list[NodePool]:
    """Return the pools with devices for a node, in the order in which a scheduler tries them."""
    found: dict[tuple[str, str], list[Object]] = {}
    for each in slices:
        spec = each["spec"]
        found.setdefault((spec["driver"], spec["pool"]["name"]), []).append(each)
    pools = [
        _pool(driver, name, members, node)
        for (driver, name), members in sorted(found.items())
        if any(is_relevant(each, node) for each in newest(members))
    ]
    return sorted(pools, key=_has_conditions)


def newest(members: list[Object]) -> list[Object]:
    """Return the slices of the highest generation of a pool."""
    generation = max(each["spec"]["pool"]["generation"] for each in members)
    return [each for each in members if each["spec"]["pool"]["generation"] == generation]


def is_complete(current: list[Object]) -> bool:
    """Return whether these are all slices of the newest generation of their pool."""
    return bool(len(current) == current[0]["spec"]["pool"]["resourceSliceCount"])


def is_relevant(each: Object, node: Object) -> bool:
    """Return whether a node may use devices or counters of a slice."""
    spec = each["spec"]
    if spec.get("sharedCounters"):
        return True
    if spec.get("perDeviceNodeSelection"):
        return any(is_on_node(device, node) for device in spec.get("devices") or ())
    return is_on_node(spec, node)


def _pool(driver: str, name: str, members: list[Object], node: Object) -> NodePool:
    current, pool = newest(members), NodePool(driver, name)
    if not is_complete(current):
        pool.problem = "currently being updated"
        return pool
    problems = []
    for each in sorted(current, key=lambda found: str(found["metadata"]["name"])):
        spec = each["spec"]
        for counter_set in spec.get("sharedCounters") or ():
            if any(known == counter_set["name"] for known, _ in pool.counters):
                problems.append(f"duplicate counter set name {counter_set['name']}")
            for counter, value in counter_set["counters"].items():
                pool.counters[counter_set["name"], counter] = amount(str(value["value"]))
        here = pool.devices if is_relevant(each, node) else pool.elsewhere
        here += [PoolDevice(driver, name, device, spec) for device in spec.get("devices") or ()]
    problems += _device_problems(pool)
    pool.problem = f"currently invalid: {problems[0]}" if problems else ""
    return pool


def _device_problems(pool: NodePool) -> Iterator[str]:
    names = Counter(each.device["name"] for each in pool.devices)
    yield from (f"duplicate device name {name}" for name, count in names.items() if count > 1)
    for each in (*pool.devices, *pool.elsewhere):
        for counter_set, counter in each.counters().keys() - pool.counters.keys():
            yield f"counter {counter} not found in counter set {counter_set}"


def _has_conditions(pool: NodePool) -> bool:
    return any(each.device.get("bindingConditions") for each in pool.devices)


def consumed(pool: NodePool, held: Iterable[PoolDevice]) -> Counters:
    """Return what devices consume of the counters of their pool."""
    found: Counters = dict.fromkeys(pool.counters, Fraction(0))
    for each in held:
        for key, value in each.counters().items():
            found[key] += value
    return found


def complete_devices(slices: Iterable[Object], node_name: str) -> list[PoolDevice]:
    """Return the devices of a node's complete pools.

    A pool is complete if all slices of its highest generation exist.
    """
    node: Mapping[str, Any] = {"metadata": {"name": node_name}}
    return [
        device for pool in gather(slices, dict(node)) if not pool.problem for device in pool.devices
    ]
