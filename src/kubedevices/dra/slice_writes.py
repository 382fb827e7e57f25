"""Computes the writes that bring the API server to the ResourceSlices a driver wants. Pure.

Consumers use only the highest generation of a pool, and only when all slices of this generation
exist. One changed slice keeps the generation, because one update is atomic. Several changed slices
keep the generation too if each keeps its devices: then no consumer can see a device twice or miss
it, whichever updates it has seen. Every other change needs a new generation.
"""

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kubedevices.dra.slices import DeviceObject

API_VERSION = "resource.k8s.io/v1"
Object = dict[str, Any]
Taint = Mapping[str, Any]
_INDEX_DIGITS = 5


@dataclass(frozen=True)
class Pool:
    """The driver and the node of the slices. The pool has the name of the node.

    Only the API server knows the UID of the node. Without the UID the slices get no owner.
    """

    driver: str
    node_name: str
    node_uid: str = ""


@dataclass(frozen=True)
class SlicePlan:
    """Writes in this order: slices to delete (as found), to update and to create (as wanted)."""

    delete: tuple[Object, ...] = ()
    update: tuple[Object, ...] = ()
    create: tuple[Object, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the server already has the wanted slices."""
        return not (self.delete or self.update or self.create)


@dataclass
class StoredForms:
    """The stored form of devices that the driver sent, if the API server changed them.

    The server drops fields of disabled feature gates and rewrites quantities. A slice in such a
    form counts as equal to the slice that the driver sent; otherwise each round would write it
    again.
    """

    stored: dict[str, str] = field(default_factory=dict)

    def record(self, sent: Object, returned: Object) -> frozenset[str]:
        """Record the stored form of `sent`; return the names of the dropped device fields."""
        wanted, got = sent["spec"].get("devices", []), returned["spec"].get("devices", [])
        if _text(wanted) != _text(got):
            self.stored[_text(wanted)] = _text(got)
        by_name = {each["name"]: each for each in got}
        return frozenset(
            name
            for each in wanted
            for name in each
            if each[name] and name not in by_name.get(each["name"], {})
        )

    def is_same(self, found: Object, wanted: Sequence[DeviceObject]) -> bool:
        """Whether the slice `found` has the wanted devices."""
        found_text, wanted_text = _text(found["spec"].get("devices", [])), _text(wanted)
        return found_text in (wanted_text, self.stored.get(wanted_text))


def plan_writes(
    found: Iterable[Object],
    wanted: Sequence[Sequence[DeviceObject]],
    pool: Pool,
    stored_forms: StoredForms | None = None,
) -> SlicePlan:
    """Return the writes that turn `found`, all slices of the driver on the server, into `wanted`.

    `wanted` has the devices of each slice.
    """
    stored_forms = stored_forms or StoredForms()
    slices = list(found)
    highest = max((_generation(each) for each in slices), default=0)
    kept: dict[int, Object] = {}
    delete = []
    # Of two slices with the same index the first by name is kept, so that all instances of the
    # driver keep the same slice.
    for each in sorted(slices, key=lambda each: str(each["metadata"]["name"])):
        index = index_of(each)
        is_wanted = index is not None and index < len(wanted) and index not in kept
        if is_wanted and _is_ours(each, pool) and _generation(each) == highest:
            kept[cast("int", index)] = each
        else:
            delete.append(each)
    changed = [i for i, each in kept.items() if not stored_forms.is_same(each, wanted[i])]
    is_complete = len(kept) == len(wanted) and all(
        each["spec"]["pool"]["resourceSliceCount"] == len(wanted) for each in kept.values()
    )
    # One update is atomic. Between two updates a scheduler could see only the first: if a device
    # moves to another slice, it could see the device in both or in none.
    if is_complete and (len(changed) <= 1 or all(_has_names(kept[i], wanted[i]) for i in changed)):
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


def _has_names(found: Object, wanted: Sequence[DeviceObject]) -> bool:
    names = [each["name"] for each in found["spec"].get("devices", [])]
    return names == [each["name"] for each in wanted]


def index_of(found: Object) -> int | None:
    """Return the index at the start of a slice's name; None if the name has no index."""
    head, dash, _ = str(found["metadata"]["name"]).partition("-")
    try:
        return int(head, 16) if dash and len(head) == _INDEX_DIGITS else None
    except ValueError:
        return None


def _is_ours(found: Object, pool: Pool) -> bool:
    """Whether the immutable fields are correct: the pool, and the node that owns the slice."""
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
    # The copy has the resourceVersion of `found`, so the server refuses the update if another
    # client has changed the slice meanwhile.
    made = copy.deepcopy(found)
    made["apiVersion"], made["kind"] = API_VERSION, "ResourceSlice"  # items of a list have neither
    made["spec"]["pool"] = _spec_pool(found["spec"]["pool"]["name"], generation, count)
    made["spec"]["devices"] = _with_times(devices, found["spec"].get("devices", []))
    return made


def _with_times(
    devices: Sequence[DeviceObject], found: Sequence[DeviceObject]
) -> list[DeviceObject]:
    """Keep the `timeAdded` of existing taints: the server would set the time of this update."""
    times = {
        (each["name"], _taint_key(taint)): taint["timeAdded"]
        for each in found
        for taint in each.get("taints", [])
        if "timeAdded" in taint
    }

    def with_time(name: str, taint: Taint) -> Taint:
        since = times.get((name, _taint_key(taint)))
        return {**taint, "timeAdded": since} if since else taint

    return _with_taints(devices, with_time)


def _taint_key(taint: Mapping[str, Any]) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]


def _text(devices: Sequence[DeviceObject]) -> str:
    """Return the devices as JSON for a comparison, without the `timeAdded` of taints."""

    def without(_: str, taint: Taint) -> Taint:
        return {key: value for key, value in taint.items() if key != "timeAdded"}

    return json.dumps(_with_taints(devices, without), sort_keys=True)


def _with_taints(
    devices: Sequence[DeviceObject], change: Callable[[str, Taint], Taint]
) -> list[DeviceObject]:
    """Return the devices with each taint as `change` returns it for the device's name."""
    return [
        {**each, "taints": [change(each["name"], taint) for taint in each["taints"]]}
        if "taints" in each
        else each
        for each in devices
    ]
