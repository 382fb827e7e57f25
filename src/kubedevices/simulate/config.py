"""The settings of one simulated resource, as a value.

`simulator_settings` merges them from all sources; `simulator_file` reads the YAML file.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kubedevices.rules.faults import FaultRule, PreStart

DEVICE_LIMIT = 250_000
"""No list that a kubelet accepts holds more devices, even with the shortest IDs."""

NumaNodes = tuple[int, ...] | Mapping[int, int]
"""NUMA nodes that devices get in turn, or the NUMA node of each device by its index."""


@dataclass(frozen=True, kw_only=True)
class SimulatorConfig:
    """The settings of one simulated resource."""

    resource_name: str = "example.com/simple-device"
    number_devices: int = 2
    plugin_name: str = "simple-device-plugin"
    device_id_prefix: str = "simple-device"
    annotation_prefix: str = ""
    env_prefix: str = ""
    device_file_prefix: str = ""
    node_name: str = field(default_factory=platform.node)
    device_path_style: Literal["index", "id"] = "index"
    numa_nodes: NumaNodes = ()
    cdi: bool = False
    namespace: str = "simple-device-plugin"
    create_device_files: str = ""
    preferred: str | None = None
    pre_start: PreStart | None = None
    faults: FaultRule = field(default_factory=FaultRule)

    @property
    def domain(self) -> str:
        """The part of the resource name before the slash."""
        return self.resource_name.partition("/")[0]

    @property
    def device_type(self) -> str:
        """The part of the resource name after the slash."""
        return self.resource_name.partition("/")[2]

    @property
    def all_faults(self) -> FaultRule:
        """The faults, with those of PreStartContainer."""
        return replace(self.faults, pre_start=self.pre_start)


def check_count(count: int) -> str:
    """Return why a number of devices is wrong, or an empty string."""
    if count < 0:
        return f"{count} is negative; a number of devices is 0 or more"
    return "" if count <= DEVICE_LIMIT else f"{count} is more than any list holds"
