"""What to write so that the API server has the ResourceSlices that a driver wants. Pure.

Consumers use the highest generation of a pool only, and only when all slices of it are there. So a
single changed slice keeps the generation: one update is atomic. Anything else is a new generation.
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kubedevices.dra.slices import DeviceObject

API_VERSION = "resource.k8s.io/v1"
Object = dict[str, Any]
_INDEX_DIGITS = 5


@dataclass(frozen=True)
class Pool:
    """Whose slices these are. The pool has the name of the node.

    Without the UID of the node, which only the API server knows, slices have no owner.
    """

    driver: str
    node_name: str
    node_uid: str = ""


@dataclass(frozen=True)
class SlicePlan:
    """Slices to delete (as they are), then to update, then to create (as they shall be)."""

    delete: tuple[Object, ...] = ()
    update: tuple[Object, ...] = ()
    create: tuple[Object, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the server has what is wanted."""
        return not (self.delete or self.update or self.create)


@dataclass
class Adopted:
    """What the server made of slices that we sent: it drops fields of disabled feature gates, and
    writes quantities in its own way. Both are the same as what was sent.
    """

    made: dict[str, str] = field(default_factory=dict)

    def note(self, sent: Object, returned: Object) -> frozenset[str]:
        """Remember what `sent` became; return the device fields that were dropped."""
        wanted, got = sent["spec"].get("devices", []), returned["spec"].get("devices", [])
        if _text(wanted) != _text(got):
            self.made[_text(wanted)] = _text(got)
        by_name = {each["name"]: each for each in got}
        return frozenset(
            name
            for each in wanted
            for name in each
            if each[name] and name not in by_name.get(each["name"], {})
        )

    def is_same(self, found: Object, wanted: Sequence[DeviceObject]) -> bool:
        """Whether the slice `found` has the devices that are wanted."""
        there, here = _text(found["spec"].get("devices", [])), _text(wanted)
        return there in (here, self.made.get(here))


def decide(
    found: Iterable[Object],
    wanted: Sequence[Sequence[DeviceObject]],
    pool: Pool,
    adopted: Adopted | None = None,
) -> SlicePlan:
    """Return what to write, given our slices on the server and the devices of each wanted slice."""
    adopted = adopted or Adopted()
    slices = list(found)
    highest = max((_generation(each) for each in slices), default=0)
    kept: dict[int, Object] = {}
    delete = []
    # Of two slices with one index the first by name is kept: all instances decide alike.
    for each in sorted(slices, key=lambda each: str(each["metadata"]["name"])):
        index = index_of(each)
        is_wanted = index is not None and index < len(wanted) and index not in kept
        if is_wanted and _is_ours(each, pool) and _generation(each) == highest:
            kept[cast("int", index)] = each
        else:
            delete.append(each)
    changed = [i for i, each in kept.items() if not adopted.is_same(each, wanted[i])]
    is_complete = len(kept) == len(wanted) and all(
        each["spec"]["pool"]["resourceSliceCount"] == len(wanted) for each in kept.values()
    )
    # One update is atomic. With two, a scheduler could see the one without the other, so that they
    # need a generation of their own.
    if is_complete and len(changed) <= 1:
        update = [_updated(kept[i], wanted[i], highest, len(wanted)) for i in changed]
        return SlicePlan(tuple(delete), tuple(update))
    generation = highest + 1
    return SlicePlan(
        tuple(delete),
        tuple(_updated(kept[i], wanted[i], generation, len(wanted)) for i in sorted(kept)),
        tuple(
            _created(pool, i, devices, generation, len(wanted))
            for i, devices in enumerate(wanted)
            if i not in kept
        ),
    )


def index_of(found: Object) -> int | None:
    """Return the index that the name of a slice begins with, None for a name of another kind."""
    head, dash, _ = str(found["metadata"]["name"]).partition("-")
    try:
        return int(head, 16) if dash and len(head) == _INDEX_DIGITS else None
    except ValueError:
        return None


def _is_ours(found: Object, pool: Pool) -> bool:
    """Whether what cannot be changed is right: the pool, and the node that owns the slice."""
    owners = found["metadata"].get("ownerReferences", [])
    return found["spec"]["pool"]["name"] == pool.node_name and any(
        each.get("uid") == pool.node_uid for each in owners
    )


def _generation(found: Object) -> int:
    return int(found["spec"]["pool"]["generation"])


def _spec_pool(pool_name: str, generation: int, count: int) -> Object:
    return {"name": pool_name, "generation": generation, "resourceSliceCount": count}


def _created(
    pool: Pool, index: int, devices: Sequence[DeviceObject], generation: int, count: int
) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": pool.node_name, "uid": pool.node_uid}
    prefix = f"{index:0{_INDEX_DIGITS}x}-{pool.driver}-{pool.node_name}-"
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"generateName": prefix}
        | ({"ownerReferences": [owner | {"controller": True}]} if pool.node_uid else {}),
        "spec": {
            "driver": pool.driver,
            "nodeName": pool.node_name,
            "pool": _spec_pool(pool.node_name, generation, count),
            "devices": list(devices),
        },
    }


def _updated(found: Object, devices: Sequence[DeviceObject], generation: int, count: int) -> Object:
    # With its resourceVersion: an update of what others changed meanwhile is refused.
    made = copy.deepcopy(found)
    made["apiVersion"], made["kind"] = API_VERSION, "ResourceSlice"  # a list leaves them out
    made["spec"]["pool"] = _spec_pool(found["spec"]["pool"]["name"], generation, count)
    made["spec"]["devices"] = _with_times(devices, found["spec"].get("devices", []))
    return made


def _with_times(
    devices: Sequence[DeviceObject], found: Sequence[DeviceObject]
) -> list[DeviceObject]:
    """Keep since when a taint is there: the server would take the time of this update."""
    times = {
        (each["name"], _taint_key(taint)): taint["timeAdded"]
        for each in found
        for taint in each.get("taints", [])
        if "timeAdded" in taint
    }
    made = []
    for each in devices:
        if "taints" in each:
            taints = []
            for taint in each["taints"]:
                since = times.get((each["name"], _taint_key(taint)))
                taints.append({**taint, "timeAdded": since} if since else taint)
            each = {**each, "taints": taints}  # noqa: PLW2901
        made.append(each)
    return made


def _taint_key(taint: Mapping[str, Any]) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]


def _text(devices: Sequence[DeviceObject]) -> str:
    """Return the devices in one form, without the times that the server sets."""
    plain = []
    for each in devices:
        if "taints" in each:
            without = [
                {key: value for key, value in taint.items() if key != "timeAdded"}
                for taint in each["taints"]
            ]
            each = {**each, "taints": without}  # noqa: PLW2901
        plain.append(each)
    return json.dumps(plain, sort_keys=True)
