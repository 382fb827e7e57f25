"""Converts a device tree to the devices of ResourceSlices. Pure.

Each device has two attributes in the domain of the driver. `type` is the device type, so that a
DeviceClass can select one type. `id` is the device ID, because the name of a device in a slice is a
label that differs from most IDs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubedevices.device import Device
from kubedevices.device_tree import DeviceTree
from kubedevices.dra import limits
from kubedevices.dra.limits import attribute_problem, device_problem
from kubedevices.dra.names import DeviceKey, device_labels
from kubedevices.words import counted

STANDARD = "resource.kubernetes.io"
NUMA_NODE = f"{STANDARD}/numaNode"
PCI_BUS_ID = f"{STANDARD}/pciBusID"
PCIE_ROOT = f"{STANDARD}/pcieRoot"
DeviceObject = dict[str, Any]
"""An element of `spec.devices` of a ResourceSlice."""

AttributeKey = tuple[str, str]
"""A device type, and the name of an attribute of its devices."""

_OWN_ATTRIBUTES = ("id", "type")


class TypedDevice(NamedTuple):
    """One device that a driver offers, with its device type."""

    device_type: str
    device: Device


@dataclass(frozen=True)
class Offer:
    """All devices that a driver offers on its node.

    `devices` has each device by its label, in the order in which the scheduler tries them.
    `objects` are the same devices as objects of the API, in the same order. `refused` has the
    devices that an API server would refuse, each with the reason. `left_out` has the attributes
    that an API server would refuse, by device type and name of the attribute: the IDs of the
    devices that are offered without it, each with the reason.
    """

    devices: Mapping[str, TypedDevice]
    objects: tuple[DeviceObject, ...]
    refused: Mapping[DeviceKey, str]
    left_out: Mapping[AttributeKey, Mapping[str, str]] = field(default_factory=dict)

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
            objects = tuple(each for each in objects if self.key_of(each["name"]) not in withheld)
        size = limits.DEVICES_PER_SLICE
        starts = range(0, max(1, len(objects)), size)
        return [objects[start : start + size] for start in starts]

    def key_of(self, label: str) -> DeviceKey:
        """Return the device type and ID of a device by its name in the slice."""
        return self.devices[label].device_type, self.devices[label].device.id


def offer_of(tree: DeviceTree, driver: str, effect: str = "NoSchedule") -> Offer:
    """Return the devices of `tree` that `driver` offers, and the devices that are refused.

    `effect` is the effect of the taint of an unhealthy device.
    """
    devices: dict[str, TypedDevice] = {}
    objects: list[DeviceObject] = []
    refused: dict[DeviceKey, str] = {}
    left_out: dict[AttributeKey, dict[str, str]] = {}
    for key, label in device_labels(tree).items():
        device_type, device_id = key
        device = tree.devices(device_type)[device_id]
        made, unusable = _device_object(label, device_type, device, driver, effect)
        problem = device_problem(made)
        if problem or label in devices:
            refused[key] = problem or f"another device has the name {label!r} already"
            continue
        for name, why in unusable.items():
            left_out.setdefault((device_type, name), {})[device_id] = why
        devices[label] = TypedDevice(device_type, device)
        objects.append(made)
    return Offer(devices, tuple(objects), refused, left_out)


def _device_object(
    label: str, device_type: str, device: Device, driver: str, effect: str
) -> tuple[DeviceObject, Mapping[str, str]]:
    """Return the device as an object of the API, and why attributes of its author are missing."""
    attributes: dict[str, Any] = {"type": {"string": device_type}}
    if len(device.id.encode()) <= limits.TEXT_LIMIT:
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
    if device.capacity:
        made["capacity"] = {name: {"value": str(size)} for name, size in device.capacity.items()}
    if not device.is_healthy:
        made["taints"] = [{"key": f"{driver}/unhealthy", "effect": effect}]
    return made, left_out


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
