"""The settings of one simulated resource: their meanings, defaults and checks.

`settings` merges them from all sources; `simulation_file` reads the YAML file.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from kubedevices.config.checks import absolute
from kubedevices.config.keys import Declared, key
from kubedevices.plugin.allocation_policy import POLICIES
from kubedevices.rules.faults import FaultRule, PreStart
from kubedevices.values.resource_name import explain_resource_name

DEVICE_LIMIT = 250_000
"""No list that a kubelet accepts holds more devices, even with the shortest IDs."""

NumaNodes = tuple[int, ...] | Mapping[int, int]
"""NUMA nodes that devices get in turn, or the NUMA node of each device by its index."""


def _resource_name(name: str) -> str:
    problem = explain_resource_name(name)
    return f"{name!r} is not a resource name: {problem}" if problem else ""


def check_count(count: int) -> str:
    """Return why a number of devices is wrong, or an empty string."""
    if count < 0:
        return f"{count} is negative; a number of devices is 0 or more"
    return "" if count <= DEVICE_LIMIT else f"{count} is more than any list holds"


def _file_name(name: str) -> str:
    if name in {"", "kubelet"} or "/" in name or not name.isprintable():
        return f"{name!r} cannot be the name of a socket"
    return ""


def _prefix(prefix: str) -> str:
    if "/" in prefix or not prefix.isprintable():
        return f"{prefix!r} must not contain '/' or characters that cannot be printed"
    return ""


def _env_prefix(prefix: str) -> str:
    ok = "=" not in prefix and prefix.isprintable()
    return "" if ok else f"{prefix!r} cannot be part of a variable's name"


def _numa_node(number: int) -> str:
    if number < 0:
        return f"{number} is negative"
    return "" if number < 2**31 else f"{number} is not a NUMA node"


@dataclass(frozen=True, kw_only=True)
class SimulatorConfig(Declared):
    """The settings of one simulated resource."""

    resource_name: str = key(
        "full name of the resource", default="example.com/simple-device", check=_resource_name
    )
    number_devices: int = key(
        "number of devices, may be 0", default=2, name="numberDevicesOnNode", check=check_count
    )
    plugin_name: str = key(
        "the name of the socket begins with it", default="simple-device-plugin", check=_file_name
    )
    device_id_prefix: str = key(
        "device IDs are PREFIX-NODE-0, PREFIX-NODE-1 ...",
        default="simple-device",
        name="deviceIDPrefix",
        check=_prefix,
    )
    annotation_prefix: str = key(
        "annotation PREFIX-ID for each device of a container", default="", check=_prefix
    )
    env_prefix: str = key(
        "variable PREFIX_ID for each device of a container", default="", check=_env_prefix
    )
    device_file_prefix: str = key(
        "device file /dev/PREFIX-0 for each device of a container", default="", check=_prefix
    )
    node_name: str = key(
        "part of the device IDs, by default the host's name",
        default_factory=platform.node,
        check=_prefix,
    )
    device_path_style: Literal["index", "id"] = key(
        "variables and device files name a device by its 'index' or its 'id'", default="index"
    )
    numa_nodes: NumaNodes = key(
        "NUMA nodes in turn (0,1), or by index (0=0,1=1)",
        default=(),
        check=_numa_node,
        check_key=_numa_node,
        hint="[0, 1] in turn, or {0: 0, 1: 1} by index",
    )
    cdi: bool = key(
        "devices are CDI devices too, in a file that follows every change: true or false",
        default=False,
    )
    namespace: str = key(
        "Kubernetes namespace of a deployment; the simulator itself does not use it",
        default="simple-device-plugin",
    )
    create_device_files: str = key(
        "directory in which device files are created", default="", check=absolute
    )
    preferred: str | None = key(
        "which devices to allocate first", default=None, choices=(*POLICIES,)
    )
    pre_start: PreStart | None = key("faults of PreStartContainer", default=None)
    faults: FaultRule = key(
        "faults on purpose", default_factory=FaultRule, without=("preStart", "timeline")
    )

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
