"""Converts a device tree to the devices of ResourceSlices. Pure.

Each device has two attributes in the domain of the driver. `type` is the device type, so that a
DeviceClass can select one type. `id` is the device ID, because the name of a device in a slice is a
label that differs from most IDs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kubedevices.device import Device
from kubedevices.device_tree import DeviceTree
from kubedevices.dra import limits
from kubedevices.dra.limits import device_problem
from kubedevices.dra.names import DeviceKey, device_labels

STANDARD = "resource.kubernetes.io"
NUMA_NODE = f"{STANDARD}/numaNode"
PCI_BUS_ID = f"{STANDARD}/pciBusID"
PCIE_ROOT = f"{STANDARD}/pcieRoot"
DeviceObject = dict[str, Any]
"""An element of `spec.devices` of a ResourceSlice."""

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
    devices that an API server would refuse, each with the reason.
    """

    devices: Mapping[str, TypedDevice]
    objects: tuple[DeviceObject, ...]
    refused: Mapping[DeviceKey, str]

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
    for key, label in device_labels(tree).items():
        device_type, device_id = key
        device = tree.devices(device_type)[device_id]
        made = _device_object(label, device_type, device, driver, effect)
        problem = made if isinstance(made, str) else device_problem(made)
        if problem or label in devices:
            refused[key] = problem or f"another device has the name {label!r} already"
            continue
        assert isinstance(made, dict)
        devices[label] = TypedDevice(device_type, device)
        objects.append(made)
    return Offer(devices, tuple(objects), refused)


def _device_object(
    label: str, device_type: str, device: Device, driver: str, effect: str
) -> DeviceObject | str:
    """Return the device as an object of the API, or the reason why that is impossible."""
    attributes: dict[str, Any] = {"type": {"string": device_type}}
    if len(device.id.encode()) <= limits.TEXT_LIMIT:
        attributes["id"] = {"string": device.id}
    if device.numa_nodes is not None and len(device.numa_nodes) == 1:
        attributes[NUMA_NODE] = {"int": device.numa_nodes[0]}
    for name, given in device.attributes.items():
        if name in _OWN_ATTRIBUTES or name in (f"{driver}/{own}" for own in _OWN_ATTRIBUTES):
            return f"the attribute {name!r} is set by the framework: choose another name"
        value = _value(given)
        if value is None:
            return f"the attribute {name!r}: {given!r} is not a number, text or truth value"
        attributes[name] = value
    made: DeviceObject = {"name": label, "attributes": attributes}
    if device.capacity:
        made["capacity"] = {name: {"value": str(size)} for name, size in device.capacity.items()}
    if not device.is_healthy:
        made["taints"] = [{"key": f"{driver}/unhealthy", "effect": effect}]
    return made


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
