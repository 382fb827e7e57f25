"""Converts a device tree to the devices of ResourceSlices. Pure.

Each device has two attributes in the domain of the driver. `type` is the device type, so that a
DeviceClass can select one type. `id` is the device ID, because the name of a device in a slice is a
label that differs from most IDs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubedevices.dra import slice_limits
from kubedevices.dra.names import DeviceKey, device_labels
from kubedevices.dra.slice_limits import attribute_problem, device_problem
from kubedevices.errors.words import counted
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree

STANDARD = "resource.kubernetes.io"
NUMA_NODE = f"{STANDARD}/numaNode"
PCI_BUS_ID = f"{STANDARD}/pciBusID"
PCIE_ROOT = f"{STANDARD}/pcieRoot"
DeviceObject = dict[str, Any]
"""An element of `spec.devices` of a ResourceSlice."""

AttributeKey = tuple[str, str]
"""A device type, and the name of an attribute of its devices."""

_OWN_ATTRIBUTES = ("id", "type")

SHARES = "shares"
"""The capacity of a device with replicas: how many claims may have the device."""


class TypedDevice(NamedTuple):
    """One device that a driver offers, with its device type.

    `replicas` are the IDs of its replicas: each is a share that the scheduler can allocate. Without
    replicas the device has one holder at a time.
    """

    device_type: str
    device: Device
    replicas: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[DeviceKey, ...]:
        """The keys of the device, or of all its replicas, in the device tree."""
        return tuple((self.device_type, each) for each in self.replicas or (self.device.id,))


@dataclass(frozen=True)
class Offer:
    """All devices that a driver offers on its node.

    `devices` has each device by its label, in the order in which the scheduler tries them.
    `objects` are the same devices as objects of the API, in the same order. `refused` has the
    devices that an API server would refuse, each with the reason. `left_out` has the attributes
    that an API server would refuse, by device type and name of the attribute: the IDs of the
    devices that are offered without it, each with the reason. `repeated` has the attributes and
    capacities whose names begin with the domain of the driver, which Kubernetes adds by itself.
    """

    devices: Mapping[str, TypedDevice]
    objects: tuple[DeviceObject, ...]
    refused: Mapping[DeviceKey, str]
    left_out: Mapping[AttributeKey, Mapping[str, str]] = field(default_factory=dict)
    repeated: frozenset[AttributeKey] = frozenset()

    @property
    def slices(self) -> list[tuple[DeviceObject, ...]]:
        """The devices of each slice. Without devices this is one empty slice: the driver runs."""
        return self.slices_without(())

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Any]]:
        """The attributes of each device, by its name in the slice."""
        return {each["name"]: each["attributes"] for each in self.objects}

    def slices_without(self, withheld: Collection[DeviceKey]) -> list[tuple[DeviceObject, ...]]:
        """Return the devices of each slice, without the devices `withheld`; at least one slice."""
        objects = self.objects
        if withheld:
            # A device is in one API at a time, with all its replicas.
            objects = tuple(
                each
                for each in objects
                if not any(key in withheld for key in self.keys_of(each["name"]))
            )
        size = slice_limits.DEVICES_PER_SLICE
        starts = range(0, max(1, len(objects)), size)
        return [objects[start : start + size] for start in starts]

    def keys_of(self, label: str) -> tuple[DeviceKey, ...]:
        """Return the keys of a device, or of its replicas, by its name in the slice."""
        return self.devices[label].keys


def offer_of(tree: DeviceTree, driver: str, effect: str = "NoSchedule") -> Offer:
    """Return the devices of `tree` that `driver` offers, and the devices that are refused.

    `effect` is the effect of the taint of an unhealthy device.
    """
    devices: dict[str, TypedDevice] = {}
    objects: list[DeviceObject] = []
    refused: dict[DeviceKey, str] = {}
    left_out: dict[AttributeKey, dict[str, str]] = {}
    for label, typed in _by_label(tree):
        made, unusable = _device_object(label, typed, driver, effect)
        problem = made if isinstance(made, str) else device_problem(made)
        if problem or label in devices:
            problem = problem or f"another device has the name {label!r} already"
            refused |= dict.fromkeys(typed.keys, problem)
            continue
        assert isinstance(made, dict)
        for name, why in unusable.items():
            left_out.setdefault((typed.device_type, name), {})[typed.device.id] = why
        devices[label] = typed
        objects.append(made)
    repeated = {
        (each.device_type, name)
        for each in devices.values()
        for name in (*each.device.attributes, *each.device.capacity)
        if isinstance(name, str) and name.startswith(f"{driver}/")
    }
    return Offer(devices, tuple(objects), refused, left_out, frozenset(repeated - left_out.keys()))


def _by_label(tree: DeviceTree) -> Iterator[tuple[str, TypedDevice]]:
    """Yield each device with its label; the replicas of a device are one device with shares."""
    replicas: dict[tuple[str, str], list[Device]] = {}
    labels = device_labels(tree)
    for (device_type, device_id), label in labels.items():
        device = tree.devices(device_type)[device_id]
        if device.replica_of:
            replicas.setdefault((device_type, label), []).append(device)
    for (device_type, device_id), label in labels.items():
        device = tree.devices(device_type)[device_id]
        if not device.replica_of:
            yield label, TypedDevice(device_type, device)
        elif members := replicas.pop((device_type, label), None):
            # The health of replicas differs only if a rule above judges single replicas.
            worst = next((each for each in members if not each.is_healthy), device)
            shared = worst.with_id(device.replica_of)
            yield label, TypedDevice(device_type, shared, tuple(each.id for each in members))


def _device_object(
    label: str, typed: TypedDevice, driver: str, effect: str
) -> tuple[DeviceObject | str, Mapping[str, str]]:
    """Return the device as an object of the API, and why attributes of its author are missing.

    In place of the object, the reason why there can be none.
    """
    device_type, device, replicas = typed
    attributes: dict[str, Any] = {"type": {"string": device_type}}
    if len(device.id.encode()) <= slice_limits.TEXT_LIMIT:
        attributes["id"] = {"string": device.id}
    if device.numa_nodes is not None and len(device.numa_nodes) == 1:
        attributes[NUMA_NODE] = {"int": device.numa_nodes[0]}
    # Most attributes describe a device, and few claims ask for them: the loss of an attribute must
    # not cost the device. A claim that asks for it finds out, because CEL knows no such key then.
    left_out: dict[str, str] = {}
    for name, given in device.attributes.items():
        value = _value(given)
        if name in _OWN_ATTRIBUTES or name in (f"{driver}/{own}" for own in _OWN_ATTRIBUTES):
            left_out[name] = "the framework sets this attribute: choose another name"
        elif value is None:
            left_out[name] = f"{given!r} is not a number, text or truth value"
        elif problem := attribute_problem(name, value):
            left_out[name] = problem
        else:
            attributes[name] = value
    made: DeviceObject = {"name": label, "attributes": attributes}
    capacity = {name: {"value": str(size)} for name, size in device.capacity.items()}
    if replicas:
        if own := capacity.keys() & {SHARES, f"{driver}/{SHARES}"}:
            reason = f"the capacity {own.pop()!r} is set by the framework: choose another name"
            return reason, left_out
        made["allowMultipleAllocations"] = True
        capacity = _shared_capacity(capacity, len(replicas))
    if capacity:
        made["capacity"] = capacity
    if not device.is_healthy:
        made["taints"] = [{"key": f"{driver}/unhealthy", "effect": effect}]
    return made, left_out


def _shared_capacity(
    capacity: Mapping[str, dict[str, Any]], shares: int
) -> dict[str, dict[str, Any]]:
    """Return the capacities of a device that several claims may have (KEP-5075).

    Each allocation consumes one share. Without a policy, an allocation would consume the whole
    of every other capacity, and the device would have one holder.
    """
    others = {name: {**size, "requestPolicy": {"default": "0"}} for name, size in capacity.items()}
    policy = {"default": "1", "validValues": ["1"]}
    return {**others, SHARES: {"value": str(shares), "requestPolicy": policy}}


def _value(given: object) -> dict[str, Any] | None:
    if isinstance(given, bool):
        return {"bool": given}
    if isinstance(given, int):
        return {"int": given}
    if isinstance(given, str):
        return {"string": given}
    if isinstance(given, Mapping) and len(given) == 1 and isinstance(given.get("version"), str):
        return {"version": given["version"]}
    return None


def describe_refused(refused: Mapping[DeviceKey, str]) -> Sequence[str]:
    """Return a line for each refused device."""
    return [f"{kind}: device {name} is not offered: {why}" for (kind, name), why in refused.items()]


def describe_left_out(left_out: Mapping[AttributeKey, Mapping[str, str]]) -> Sequence[str]:
    """Return a line for each attribute that devices are offered without, however many they are."""
    lines = []
    for (kind, name), reasons in left_out.items():
        device_id, why = next(iter(reasons.items()))
        more = f" and {counted(len(reasons) - 1, 'other device')}" if len(reasons) > 1 else ""
        lines.append(
            f"{kind}: device {device_id}{more}: the attribute {name!r} is not published: {why}"
        )
    return lines


def describe_repeated(repeated: Iterable[AttributeKey]) -> Sequence[str]:
    """Return a line for each name that repeats the domain of the driver."""
    return [
        f"{kind}: the name {name!r} repeats the domain of the driver: call it "
        f"{name.partition('/')[2]!r}, which claims find under the same domain"
        for kind, name in repeated
    ]
