"""Allocates devices to claims, as a scheduler for a single node. Pure.

It tries devices in the order of the slices' names and of their lists, and takes the first that
fits. Incomplete pools do not count. A device that allows multiple allocations is taken as often as
its capacities allow, also several times for one request. Constraints between requests and counters
are not supported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubedevices.errors import BadSelector
from kubedevices.testing.api_server.capacities import Consumed, Key
from kubedevices.testing.api_server.kinds import Object
from kubedevices.values.selectors import Selector

_SHARE_PREFIX = "00000000-0000-4000-8000-"


class NotAllocatable(Exception):
    """A claim has to wait; the text has the reason."""


class PoolDevice(NamedTuple):
    """A device of a complete pool."""

    driver: str
    pool: str
    device: Object

    @property
    def key(self) -> tuple[str, str, str]:
        """The unique key of the device."""
        return self.driver, self.pool, self.device["name"]


def complete_devices(slices: Iterable[Object], node_name: str) -> list[PoolDevice]:
    """Return the devices of a node's complete pools.

    A pool is complete if all slices of its highest generation exist.
    """
    pools: dict[tuple[str, str], list[Object]] = {}
    for each in slices:
        spec = each["spec"]
        if spec.get("nodeName") == node_name or spec.get("allNodes"):
            pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(each)
    devices = []
    for (driver, pool), members in pools.items():
        newest = max(each["spec"]["pool"]["generation"] for each in members)
        current = [each for each in members if each["spec"]["pool"]["generation"] == newest]
        if len(current) != current[0]["spec"]["pool"]["resourceSliceCount"]:
            continue
        for each in sorted(current, key=lambda found: str(found["metadata"]["name"])):
            devices += [
                PoolDevice(driver, pool, found) for found in each["spec"].get("devices") or ()
            ]
    return devices


def allocate(
    claim: Object,
    *,
    node_name: str,
    slices: Iterable[Object],
    claims: Iterable[Object],
    classes: Mapping[str, Object],
) -> Object:
    """Return `status.allocation` for `claim`; raises `NotAllocatable`.

    `claims` are all claims: their devices are not free.
    """
    devices = complete_devices(slices, node_name)
    known = list(_results(claims))
    state = _State({_key(each) for each in known if not each.get("shareID")}, Consumed(known))
    share = max((_share_number(each) for each in known), default=0)
    results: list[Object] = []
    config: list[Object] = []
    spec = claim["spec"].get("devices", {})
    for request in spec.get("requests", ()):
        name, exact, chosen = _choose(request, devices, state, classes)
        for each, consumed in chosen:
            result = {
                "request": name,
                "driver": each.driver,
                "pool": each.pool,
                "device": each.device["name"],
            }
            if exact.get("adminAccess"):
                result["adminAccess"] = True
            if consumed is not None:
                share += 1
                result["shareID"] = f"{_SHARE_PREFIX}{share:012}"
                result["consumedCapacity"] = consumed
            if exact.get("tolerations"):
                result["tolerations"] = exact["tolerations"]
            results.append(result)
        of_class = classes[exact["deviceClassName"]].get("spec", {}).get("config", ())
        config += [{"source": "FromClass", "requests": [name], **each} for each in of_class]
    config += [{"source": "FromClaim", **each} for each in spec.get("config", ())]
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    return {
        "devices": {"results": results, **({"config": config} if config else {})},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def _choose(
    request: Object,
    devices: Sequence[PoolDevice],
    state: "_State",
    classes: Mapping[str, Object],
) -> tuple[str, Object, list["_Choice"]]:
    """Return the request name for results, the chosen (sub)request, and its devices."""
    choices = request.get("firstAvailable") or [request["exactly"]]
    problems = []
    for each in choices:
        name = (
            f"{request['name']}/{each['name']}" if "firstAvailable" in request else request["name"]
        )
        try:
            return name, each, _fitting(name, each, devices, state, classes)
        except NotAllocatable as error:
            problems.append(str(error))
    raise NotAllocatable("; ".join(problems))


def _fitting(
    name: str,
    exact: Object,
    devices: Sequence[PoolDevice],
    state: "_State",
    classes: Mapping[str, Object],
) -> list["_Choice"]:
    if exact["deviceClassName"] not in classes:
        problem = f"the DeviceClass {exact['deviceClassName']} does not exist"
        raise NotAllocatable(f"request {name}: {problem}")
    found_class = classes[exact["deviceClassName"]]
    selectors = [
        each["cel"]["expression"]
        for each in [*found_class.get("spec", {}).get("selectors", ()), *exact.get("selectors", ())]
    ]
    try:
        selected = [
            each
            for each in devices
            if all(Selector.compiled(text).selects(each.driver, each.device) for text in selectors)
        ]
    except BadSelector as error:
        raise NotAllocatable(f"request {name}: {error}") from error
    tolerated = [each for each in selected if _is_tolerated(each, exact)]
    before = state.copy()
    if exact.get("allocationMode") == "All":
        every = [found for each in tolerated if (found := state.take(each, exact))]
        if not selected or len(every) < len(selected):
            state.restore(before)
            problem = f"{len(every)} of {len(selected)} devices are free"
            raise NotAllocatable(f"request {name}: {problem}")
        return every
    count = exact.get("count", 1)
    chosen: list[_Choice] = []
    for each in tolerated:
        while len(chosen) < count and (found := state.take(each, exact)):
            chosen.append(found)
            if found.consumed is None:
                break
    if len(chosen) < count:
        state.restore(before)
        raise NotAllocatable(
            f"request {name}: {count} wanted, {len(chosen)} free of {len(selected)} selected, "
            f"{len(devices)} published"
        )
    return chosen


def _is_tolerated(offered: PoolDevice, exact: Mapping[str, Any]) -> bool:
    return all(
        taint["effect"] == "None"
        or any(_tolerates(each, taint) for each in exact.get("tolerations", ()))
        for taint in offered.device.get("taints") or ()
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("key", "") not in ("", taint["key"]):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    return bool(exists or toleration.get("value", "") == taint.get("value", ""))


class _Choice(NamedTuple):
    """A device for a request; `consumed` are its consumed capacities if it is shared."""

    device: PoolDevice
    consumed: Mapping[str, str] | None = None


class _State:
    """What is allocated: whole devices, and parts of shared devices."""

    def __init__(self, taken: set[Key], consumed: Consumed) -> None:
        self.taken, self.consumed = taken, consumed

    def copy(self) -> "_State":
        return _State(set(self.taken), self.consumed.copy())

    def restore(self, before: "_State") -> None:
        self.taken, self.consumed = before.taken, before.consumed

    def take(self, offered: PoolDevice, exact: Object) -> _Choice | None:
        """Take a device, or a share of it; return None if it is not free."""
        is_admin, is_shared = exact.get("adminAccess"), _is_shared(offered)
        if not is_admin and offered.key in self.taken:
            return None
        if not is_shared:
            if not is_admin:
                if self.consumed.has(offered.key):
                    return None
                self.taken.add(offered.key)
            return _Choice(offered)
        consumed = self.consumed.of_request(offered.key, offered.device, exact)
        if consumed is None:
            return None
        self.consumed.add(offered.key, consumed)
        return _Choice(offered, consumed)


def _is_shared(offered: PoolDevice) -> bool:
    return bool(offered.device.get("allowMultipleAllocations"))


def _results(claims: Iterable[Object]) -> Iterator[Object]:
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation") or {}
        for each in allocation.get("devices", {}).get("results", ()):
            if not each.get("adminAccess") or each.get("shareID"):
                yield each


def _key(result: Object) -> Key:
    return result["driver"], result["pool"], result["device"]


def _share_number(result: Object) -> int:
    return int(result.get("shareID", "").removeprefix(_SHARE_PREFIX) or 0)
