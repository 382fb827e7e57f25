"""Devices that do not exist, reported and allocated like real ones: `kubedevices simulate`.

Answers as simple-device-plugin does, registers again after a kubelet restart as that does not.
"""

import logging
import re
from collections.abc import Iterator, Mapping

from kubedevices.allocation import AllocateRequest
from kubedevices.builtin.simulator_config import SimulatorConfig
from kubedevices.device import Device, DeviceSpec
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import RpcError, StatusCode
from kubedevices.plugin.capabilities import USE_DEFAULT, AllocateAnswer, Allocator
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner

_log = logging.getLogger(__name__)


class Simulator(Scanner, Allocator):
    """Reports the same healthy devices for ever."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.config = config
        self.domain, _, self.device_type = config.resource_name.partition("/")
        self._tree = DeviceTree()
        self._tree.declare(self.device_type)
        for device in make_devices(config):
            self._tree.add(self.device_type, device)

    def socket_name(self, device_type: str) -> str:
        """Return the socket's name, which does not follow from the resource's."""
        del device_type  # there is only one
        return f"{self.config.plugin_name}.sock"

    async def scan(self, notifier: Notifier) -> None:
        """Report once and wait for the end."""
        self._warn_of_dropped_variables()
        notifier.notify(self._tree)
        await notifier.wait_stopped()

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Refuse unknown devices in the original's words; the rest is the default answer."""
        known = self._tree.devices(self.device_type)
        for container in request.containers:
            for device_id in container.device_ids:
                if device_id not in known:
                    text = f"requested device {device_id} is not available"
                    raise RpcError(StatusCode.NOT_FOUND, text)
        return USE_DEFAULT

    def _warn_of_dropped_variables(self) -> None:
        for device in self._tree.devices(self.device_type).values():
            for name in device.env:
                if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
                    _log.warning(
                        "variables such as %s are no names for a shell, which drops them; "
                        "other programs in the container see them",
                        name,
                    )
                    return


def make_devices(config: SimulatorConfig) -> Iterator[Device]:
    """Yield every device of `config`."""
    for index in range(config.number_devices):
        device_id = f"{config.device_id_prefix}-{config.node_name}-{index}"
        suffix = str(index) if config.device_path_style == "index" else device_id
        env, annotations, specs = {}, {}, []
        if config.env_prefix:
            env[f"{config.env_prefix}_{device_id}"] = f"/dev/{suffix}"
        if config.annotation_prefix:
            annotations[f"{config.annotation_prefix}-{device_id}"] = ""
        if config.device_file_prefix:
            specs.append(DeviceSpec(f"/dev/{config.device_file_prefix}-{suffix}"))
        yield Device(
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
