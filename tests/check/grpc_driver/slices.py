"""Which ResourceSlices are right, and what has to be written. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Object = dict[str, Any]
_MOST, _MOST_WITH_TAINTS = 128, 64


class Writes(NamedTuple):
    """What to do, in this order; the numbers are places in the pool."""

    delete: list[Object]
    update: list[tuple[int, Object]]
    create: list[tuple[int, Object]]


class Pool:
    """The slices of one node, whose name is the name of the pool."""

    def __init__(self, driver: str, node: str) -> None:
        self.driver, self.node = driver, node

    def parts(self, entries: Sequence[Object]) -> list[list[Object]]:
        """Return the devices of each slice; a driver without devices has one empty slice."""
        most = _MOST_WITH_TAINTS if any(each.get("taints") for each in entries) else _MOST
        return [list(entries[at : at + most]) for at in range(0, len(entries), most)] or [[]]

    def spec(self, devices: Sequence[Object], count: int, generation: int) -> Object:
        """Return the spec of a slice."""
        return {
            "driver": self.driver,
            "nodeName": self.node,
            "pool": {"name": self.node, "generation": generation, "resourceSliceCount": count},
            "devices": list(devices),
        }

    def new(self, number: int, spec: Object, node_uid: str) -> Object:
        """Return a new slice; the scheduler takes the slices in the order of their names."""
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": node_uid}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "generateName": f"{number:05x}-{self.driver}-{self.node}-",
                "ownerReferences": [owner | {"controller": True}],
            },
            "spec": spec,
        }

    def writes(
        self, found: Iterable[Object], parts: Sequence[list[Object]], newest: int = 0
    ) -> Writes:
        """Return what to write. A change of one slice keeps the generation; `newest` is the highest
        that this process has seen.
        """
        slices = sorted(found, key=lambda each: str(each["metadata"]["name"]))
        newest = max([newest, *(each["spec"]["pool"]["generation"] for each in slices)])
        by_number: dict[int, Object] = {}
        obsolete = []
        for each in slices:
            number = _number(each)
            is_usable = each["spec"]["pool"]["generation"] == newest and number < len(parts)
            if is_usable and number not in by_number:
                by_number[number] = each
            else:
                obsolete.append(each)
        wrong = [
            number
            for number, devices in enumerate(parts)
            if number in by_number
            and not equal(by_number[number]["spec"], self.spec(devices, len(parts), newest))
        ]
        missing = [number for number in range(len(parts)) if number not in by_number]
        if not obsolete and not missing and len(wrong) < 2:
            kept = [(number, self.spec(parts[number], len(parts), newest)) for number in wrong]
            return Writes([], [(n, by_number[n] | {"spec": spec}) for n, spec in kept], [])
        specs = [self.spec(devices, len(parts), newest + 1) for devices in parts]
        updates = [(n, each | {"spec": specs[n]}) for n, each in sorted(by_number.items())]
        return Writes(obsolete, updates, [(n, specs[n]) for n in missing])


def equal(one: Object, other: Object) -> bool:
    """Whether two specs say the same. The server adds the time of a taint."""
    return _plain(one) == _plain(other)


def _plain(spec: Object) -> Object:
    return spec | {"devices": [_without_times(each) for each in spec.get("devices") or ()]}


def _without_times(device: Object) -> Object:
    if not device.get("taints"):
        return device
    taints = [
        {key: text for key, text in each.items() if key != "timeAdded"} for each in device["taints"]
    ]
    return device | {"taints": taints}


def _number(made: Object) -> int:
    try:
        return int(str(made["metadata"]["name"]).partition("-")[0], 16)
    except ValueError:
        return 1 << 20
