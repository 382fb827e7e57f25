"""The options of a DRA driver besides the scanner and the domain, and their checks."""

import binascii
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from kubedevices.dra.abandoned_search import SearchTiming
from kubedevices.dra.device_plugin_guard import GuardTiming
from kubedevices.dra.slice_limits import EFFECTS
from kubedevices.errors import SocketPathTooLong, UsageError
from kubedevices.plugin.options import CDI_DIR, check_positive, new_instance
from kubedevices.plugin.timing import HookTimeouts, Timing
from kubedevices.values.cdi.names import SUBDOMAIN
from kubedevices.values.socket_paths import instance_socket

KUBELET_DIR = Path("/var/lib/kubelet")
_SHORTEST_NAME_LENGTH = len("/d.01234567.0123456789abc.sock")
_SOCKET_ADVICE = "choose a shorter domain, or a kubelet with a shorter --root-dir"


class DraOptions(TypedDict, total=False):
    """Keyword arguments of `run` and `serve` with `mode="dra"`; all are optional.

    kubelet_dir: the kubelet's root directory, with `plugins` and `plugins_registry`.
    node_name: the name of the node object (default: the variable NODE_NAME, then the host's name).
    kubeconfig: file with the address of the API server and the credentials (default: the variable
        KUBECONFIG, then the service account of the pod).
    sysfs_root, dev_root: directories where the driver looks up NUMA nodes and links (default: /sys
        and /dev).
    cdi_dir: directory for the CDI files of claims (default: /var/run/cdi).
    allocate_timeout, pre_start_timeout, prepare_timeout: seconds that a hook may take, at most 20
        (default: 10, 20, 20).
    unhealthy_effect: effect of the taint of an unhealthy device: "NoSchedule" (default), "None", or
        "NoExecute", with which Kubernetes evicts the pods that have the device.
    metadata: whether containers get files with the attributes of their devices (default: no).
    guard_timing: how often the driver asks the kubelet for devices of device plugins, for tests.
    search_timing: how often the driver looks for claims that nobody unprepares, for tests.
    timing: all waiting times, for tests.
    """

    kubelet_dir: Path
    node_name: str
    kubeconfig: Path | None
    sysfs_root: Path
    dev_root: Path
    cdi_dir: Path
    allocate_timeout: float
    pre_start_timeout: float
    prepare_timeout: float
    unhealthy_effect: Literal["NoSchedule", "NoExecute", "None"]
    metadata: bool
    guard_timing: GuardTiming
    search_timing: SearchTiming
    timing: Timing


@dataclass(frozen=True)
class DraSettings:
    """The options of `DraOptions` with defaults, checked. Raises `UsageError`."""

    kubelet_dir: Path = KUBELET_DIR
    node_name: str = ""
    kubeconfig: Path | None = None
    sysfs_root: Path = Path("/sys")
    dev_root: Path = Path("/dev")
    cdi_dir: Path = CDI_DIR
    allocate_timeout: float = HookTimeouts().allocate
    pre_start_timeout: float = HookTimeouts().pre_start
    prepare_timeout: float = HookTimeouts().prepare
    unhealthy_effect: str = "NoSchedule"
    metadata: bool = False
    guard_timing: GuardTiming = field(default_factory=GuardTiming)
    search_timing: SearchTiming = field(default_factory=SearchTiming)
    timing: Timing = field(default_factory=lambda: Timing(exit_grace=25.0))
    instance: str = field(default_factory=new_instance, init=False)

    def __post_init__(self) -> None:
        """Fill in the node name and check the values."""
        name = self.node_name or os.environ.get("NODE_NAME") or socket.gethostname().lower()
        if len(name) > 253 or not SUBDOMAIN.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a node")
        object.__setattr__(self, "node_name", name)
        if self.unhealthy_effect not in EFFECTS:
            allowed = ", ".join(EFFECTS)
            raise UsageError(
                f"unhealthy_effect must be one of {allowed}, not {self.unhealthy_effect!r}"
            )
        for path in ("kubelet_dir", "cdi_dir"):
            object.__setattr__(self, path, Path(getattr(self, path)).absolute())
        check_positive(self, "allocate_timeout", "pre_start_timeout", "prepare_timeout")

    @property
    def hook_timeouts(self) -> HookTimeouts:
        """The deadlines of the author's hooks."""
        return HookTimeouts(
            allocate=self.allocate_timeout,
            pre_start=self.pre_start_timeout,
            prepare=self.prepare_timeout,
        )

    def data_dir(self, driver: str) -> Path:
        """Return the directory of a driver's service socket and of its checkpoint.

        This is `plugins/DRIVER`. If the path of a socket would be too long, a hash replaces the end
        of the driver's name.
        """
        directory = self.kubelet_dir / "plugins" / driver
        excess = len(bytes(directory)) + _SHORTEST_NAME_LENGTH - SocketPathTooLong.limit
        if excess <= 0:
            return directory
        mark = f"-{binascii.crc32(driver.encode()):08x}"
        return directory.with_name(driver[: max(1, len(driver) - excess - len(mark))] + mark)

    @property
    def pod_resources(self) -> Path:
        """The kubelet's podresources socket, which tells which pods hold devices of plugins."""
        return self.kubelet_dir / "pod-resources" / "kubelet.sock"

    def service_socket(self, driver: str) -> Path:
        """Return the socket on which a kubelet calls this instance; raises `SocketPathTooLong`."""
        return instance_socket(self.data_dir(driver), driver, self.instance, "dra", _SOCKET_ADVICE)

    def registration_socket(self, driver: str) -> Path:
        """Return the socket by which a kubelet finds this instance; raises `SocketPathTooLong`."""
        directory = self.kubelet_dir / "plugins_registry"
        return instance_socket(directory, driver, self.instance, f"{driver}-reg", _SOCKET_ADVICE)
