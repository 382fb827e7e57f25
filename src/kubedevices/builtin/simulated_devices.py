"""Which simulated devices there are now, and what a step makes of them. Pure.

For `simulator`, which reports them, and for `simulator_answers`, which hands them out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kubedevices.builtin.simulator_config import SimulatorConfig
from kubedevices.device import Device, DeviceSpec, Health
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import UsageError

if TYPE_CHECKING:
    from kubedevices.builtin.simulator_steps import Step


class SimulatedDevices:
    """The devices of one resource or several, as steps leave them."""

    def __init__(self, configs: Sequence[SimulatorConfig]) -> None:
        self._configs = {config.device_type: config for config in configs}
        self._devices: dict[str, dict[str, Device]] = {}
        self.start_again()

    def start_again(self) -> None:
        """Undo every step."""
        self._devices = {
            name: {device.id: device for device in make_devices(config)}
            for name, config in self._configs.items()
        }

    def tree(self) -> DeviceTree:
        """Return what there is now."""
        return DeviceTree({name: found.values() for name, found in self._devices.items()})

    def of(self, device_type: str) -> Mapping[str, Device]:
        """Return the devices of one resource."""
        return self._devices.get(device_type, {})

    def apply(self, step: "Step") -> int:
        """Do what `step` says; return how many devices it concerned. Raises `UsageError`."""
        names = [step.resource] if step.resource else [*self._devices]
        if step.resource and step.resource not in self._devices:
            known = ", ".join(self._devices)
            raise UsageError(f"there is no resource {step.resource!r}, only {known}")
        return sum(self._apply(step, name) for name in names)

    def _apply(self, step: "Step", name: str) -> int:
        devices = self._devices[name]
        if step.set_ is not None:
            chosen = [each for each in devices if fnmatchcase(each, step.set_.id)]
            for device_id in chosen:
                health = Health(step.set_.health)
                devices[device_id] = replace(devices[device_id], health=health)
        elif step.count is not None:
            before = devices.keys() ^ set()
            self._devices[name] = {
                device.id: devices.get(device.id, device)
                for device in make_devices(replace(self._configs[name], number_devices=step.count))
            }
            chosen = [*(before ^ self._devices[name].keys())]
        elif step.remove is not None:
            chosen = [each for each in devices if fnmatchcase(each, step.remove)]
            for device_id in chosen:
                del devices[device_id]
        else:
            chosen = [*step.add]
            for device_id in chosen:
                devices[device_id] = make_device(self._configs[name], device_id, len(devices))
        return len(chosen)


def make_devices(config: SimulatorConfig) -> Iterator[Device]:
    """Yield every device of `config`."""
    for index in range(config.number_devices):
        device_id = f"{config.device_id_prefix}-{config.node_name}-{index}"
        yield make_device(config, device_id, index)


def make_device(config: SimulatorConfig, device_id: str, index: int) -> Device:
    """Return one device, healthy."""
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
        numa_nodes=_numa_nodes(config, index),
    )


def _numa_nodes(config: SimulatorConfig, index: int) -> tuple[int, ...]:
    nodes = config.numa_nodes
    if isinstance(nodes, Mapping):
        return (nodes[index],) if index in nodes else ()
    return (nodes[index % len(nodes)],) if nodes else ()


def with_cdi(device: Device) -> Device:
    """Return `device` with all it gives said in CDI as well.

    A CDI device must do something: one that gives nothing sets a variable with its ID.
    """
    from kubedevices.cdi import edits_of  # noqa: PLC0415 - most simulators need none of it

    env = dict(device.env)
    if not (env or device.specs or device.mounts):
        env["SIMULATED_" + re.sub("[^A-Za-z0-9_]", "_", device.id)] = device.id
    edits = edits_of(env=env.items(), devices=device.specs, mounts=device.mounts)
    return replace(device, cdi=edits)
