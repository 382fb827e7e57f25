"""The simulated devices of this moment, and the effect of steps on them. Pure.

`simulator` reports these devices, and `simulator_answers` allocates them.
"""

import fnmatch
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kubedevices.errors import UsageError
from kubedevices.errors.words import counted
from kubedevices.kubelet_api.convert import reported_to_wire
from kubedevices.plugin.device_list import MAX_LIST_SIZE
from kubedevices.simulate.config import SimulatorConfig
from kubedevices.values.device import Device, DeviceSpec, Health, ReportedDevice
from kubedevices.values.device_tree import DeviceTree

if TYPE_CHECKING:
    from kubedevices.simulate.step_keys import SimulatorStep


_AROUND_AN_ID = 64
"""Upper limit of the bytes of a device in a list, without its ID."""


class SimulatedDevices:
    """The devices of all resources, with all steps applied."""

    def __init__(self, configs: Sequence[SimulatorConfig]) -> None:
        self._configs = configs
        self._resources: dict[str, _Resource] = {}
        self.start_again()

    def start_again(self) -> None:
        """Undo every step."""
        self._resources = {config.device_type: _Resource(config) for config in self._configs}

    def tree(self) -> DeviceTree:
        """Return all devices."""
        return DeviceTree({name: each.devices.values() for name, each in self._resources.items()})

    def of(self, device_type: str) -> Mapping[str, Device]:
        """Return the devices of one resource."""
        return self._resources[device_type].devices

    def apply(self, step: "SimulatorStep") -> int:
        """Apply `step`; return how many devices it concerned. Raises `UsageError`."""
        names = [step.resource] if step.resource else [*self._resources]
        if step.resource and step.resource not in self._resources:
            known = ", ".join(self._resources)
            raise UsageError(f"unknown resource {step.resource!r}, known: {known}")
        return sum(len(self._resources[name].apply(step)) for name in names)


class _Resource:
    """The devices of one resource. Each has its own index, the number in its paths."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.devices: dict[str, Device] = {}
        self._config = config
        self._indexes: dict[str, int] = {}
        self._resize(config.number_devices)

    def apply(self, step: "SimulatorStep") -> Sequence[str]:
        """Apply `step`; return the IDs of the devices that it concerned."""
        if step.set_ is not None:
            chosen = fnmatch.filter(self.devices, step.set_.id)
            self.devices |= {
                each: replace(self.devices[each], health=step.set_.health) for each in chosen
            }
            return chosen
        if step.count is not None:
            return self._resize(step.count)
        if step.remove is not None:
            return self._remove(fnmatch.filter(self.devices, step.remove))
        if step.faults is not None:  # faults change the answers, not the devices
            return [*self.devices]
        free = self._free_indexes()
        added = [*dict.fromkeys(step.add)]
        for device_id in added:
            known = self._indexes.get(device_id)
            self._put(device_id, next(free) if known is None else known)
        return added

    def _resize(self, count: int) -> Sequence[str]:
        if surplus := [*self.devices][count:]:
            return self._remove(surplus)
        added: list[str] = []
        for index in self._free_indexes():
            if len(self.devices) >= count:
                break
            device_id = device_id_of(self._config, index)
            if device_id not in self.devices:  # a step may have added this ID with another index
                self._put(device_id, index)
                added.append(device_id)
        return added

    def _free_indexes(self) -> Iterator[int]:
        """Yield the indexes that no device has, in ascending order."""
        taken = {*self._indexes.values()}
        return (index for index in itertools.count() if index not in taken)

    def _put(self, device_id: str, index: int) -> None:
        self.devices[device_id] = make_device(self._config, device_id, index)
        self._indexes[device_id] = index

    def _remove(self, ids: Sequence[str]) -> Sequence[str]:
        for device_id in ids:
            del self.devices[device_id], self._indexes[device_id]
        return ids


def device_id_of(config: SimulatorConfig, index: int) -> str:
    """Return the ID of a device whose ID no step gives."""
    return f"{config.device_id_prefix}-{config.node_name}-{index}"


def make_device(config: SimulatorConfig, device_id: str, index: int) -> Device:
    """Return a healthy device."""
    suffix = str(index) if config.device_path_style == "index" else device_id
    env, annotations, specs = {}, {}, []
    if config.env_prefix:
        env[f"{config.env_prefix}_{device_id}"] = f"/dev/{suffix}"
    if config.annotation_prefix:
        annotations[f"{config.annotation_prefix}-{device_id}"] = ""
    if config.device_file_prefix:
        name = f"{config.device_file_prefix}-{suffix}"
        specs.append(DeviceSpec(f"{config.create_device_files or '/dev'}/{name}", f"/dev/{name}"))
    return Device(
        device_id,
        specs=specs,
        env=env,
        annotations=annotations,
        numa_nodes=numa_nodes_of(config, index),
    )


def numa_nodes_of(config: SimulatorConfig, index: int) -> tuple[int, ...]:
    """Return the NUMA node of a device as a tuple, which is empty without a NUMA node."""
    nodes = config.numa_nodes
    if isinstance(nodes, Mapping):
        return (nodes[index],) if index in nodes else ()
    return (nodes[index % len(nodes)],) if nodes else ()


def list_problem(config: SimulatorConfig) -> str:
    """Return why a kubelet would not accept a list with all devices, or an empty string."""
    count, size = config.number_devices, 0
    if count * (len(device_id_of(config, count).encode()) + _AROUND_AN_ID) <= MAX_LIST_SIZE:
        return ""
    for index in range(count):
        device_id, nodes = device_id_of(config, index), numa_nodes_of(config, index)
        size += len(reported_to_wire(ReportedDevice(device_id, Health.HEALTHY, nodes or None)))
        if size > MAX_LIST_SIZE:
            return (
                f"{count} is more than a kubelet accepts in one list: "
                f"{counted(index, 'device')} with IDs such as {device_id}"
            )
    return ""


def with_cdi(device: Device) -> Device:
    """Return `device` with everything that it gives to a container also as CDI edits.

    A CDI device needs at least one edit: a device that gives nothing sets a variable with its ID.
    """
    from kubedevices.values.cdi import edits_of  # noqa: PLC0415 - most simulators do not use CDI

    env = dict(device.env)
    if not (env or device.specs or device.mounts):
        env["SIMULATED_" + re.sub("[^A-Za-z0-9_]", "_", device.id)] = device.id
    edits = edits_of(env=env.items(), devices=device.specs, mounts=device.mounts)
    return replace(device, cdi=edits)
