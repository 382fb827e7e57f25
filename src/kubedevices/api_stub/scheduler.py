"""Allocates devices to claims, as a scheduler for a single node. Pure.

It tries devices in the order of the slices' names and of their lists, and takes the first that
fits. Incomplete pools do not count. Constraints between requests, counters and capacity are not
supported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubedevices.api_stub.cel import BadExpression, is_selected
from kubedevices.api_stub.kinds import Object


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
    taken = set(_taken(claims))
    results: list[Object] = []
    config: list[Object] = []
    spec = claim["spec"].get("devices", {})
    for request in spec.get("requests", ()):
        name, exact, chosen = _choose(request, devices, taken, classes)
        for each in chosen:
            result = {
                "request": name,
                "driver": each.driver,
                "pool": each.pool,
                "device": each.device["name"],
            }
            if exact.get("adminAccess"):
                result["adminAccess"] = True
            elif each.device.get("allowMultipleAllocations"):
                result["shareID"] = f"00000000-0000-4000-8000-{len(taken) + len(results):012}"
            else:
                taken.add(each.key)
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
    taken: set[tuple[str, str, str]],
    classes: Mapping[str, Object],
) -> tuple[str, Object, list[PoolDevice]]:
    """Return the request name for results, the chosen (sub)request, and its devices."""
    choices = request.get("firstAvailable") or [request["exactly"]]
    problems = []
    for each in choices:
        name = (
            f"{request['name']}/{each['name']}" if "firstAvailable" in request else request["name"]
        )
        try:
            return name, each, _fitting(name, each, devices, taken, classes)
        except NotAllocatable as error:
            problems.append(str(error))
    raise NotAllocatable("; ".join(problems))


def _fitting(
    name: str,
    exact: Object,
    devices: Sequence[PoolDevice],
    taken: set[tuple[str, str, str]],
    classes: Mapping[str, Object],
) -> list[PoolDevice]:
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
            if all(is_selected(expression, each.driver, each.device) for expression in selectors)
        ]
    except BadExpression as error:
        raise NotAllocatable(f"request {name}: {error}") from error
    free = [
        each
        for each in selected
        if (exact.get("adminAccess") or each.key not in taken) and _is_tolerated(each, exact)
    ]
    if exact.get("allocationMode") == "All":
        if not selected or len(free) < len(selected):
            raise NotAllocatable(f"request {name}: {len(free)} of {len(selected)} devices are free")
        return free
    count = exact.get("count", 1)
    if len(free) < count:
        raise NotAllocatable(
            f"request {name}: {count} wanted, {len(free)} free of {len(selected)} selected, "
            f"{len(devices)} published"
        )
    return free[:count]


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


def _taken(claims: Iterable[Object]) -> Iterator[tuple[str, str, str]]:
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation") or {}
        for each in allocation.get("devices", {}).get("results", ()):
            if not each.get("adminAccess") and not each.get("shareID"):
                yield each["driver"], each["pool"], each["device"]
