"""The calls of `Bench` for DRA drivers: the work of the scheduler and the kubelet.

The first of these calls starts the API server and the kubelet, so a bench for device plugins does
not start them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubedevices.errors import needs_h11
from kubedevices.testing.workbench.plugins import PluginHolder

if TYPE_CHECKING:
    from kubedevices.dra.options import DraOptions
    from kubedevices.plugin.scanner import Scanner
    from kubedevices.testing.workbench.dra_node import (
        Claimed,
        DraNode,
        DriverPlugin,
        Wanted,
    )
    from kubedevices.values.scheduling.kinds import Object

__tracebackhide__ = True  # a failing test shows its own lines, not ours


class ClaimCalls(PluginHolder):
    """The calls of `Bench` for DRA drivers."""

    _root: Path
    _dra: "DraNode | None" = None
    cdi_dir: Path

    @property
    def dra(self) -> "DraNode":
        """The API server and the kubelet of this bench. Use them only on the bench's own loop."""
        if self._dra is None:
            with needs_h11("mode dra"):
                from kubedevices.testing.workbench.dra_node import DraNode  # noqa: PLC0415 - with h11
            node = DraNode(self._root, self.cdi_dir)
            self._thread.call(node.start())
            self._dra = node
        return self._dra

    def _start_driver(
        self, scanner: "Scanner", domain: str, options: "DraOptions | Any"
    ) -> "DriverPlugin":
        from kubedevices.dra.device_plugin_guard import GuardTiming  # noqa: PLC0415 - with h11
        from kubedevices.testing.workbench.dra_node import NODE_NAME, DriverPlugin  # noqa: PLC0415

        node = self.dra
        options.setdefault("kubelet_dir", node.kubelet_dir)
        options.setdefault("node_name", NODE_NAME)
        options.setdefault("kubeconfig", node.kubeconfig)
        options.setdefault("cdi_dir", self.cdi_dir)
        # This kubelet knows all its pods at once.
        options.setdefault("guard_timing", GuardTiming(pending=0.05, young=0))
        return DriverPlugin(self._thread, scanner, domain, options)

    def device_class(self, wanted: "str | Object") -> str:
        """Create a DeviceClass, and return its name, for the requests of `claim`.

        `wanted` is a manifest; or `example.com/widget`: the class of all devices of this type,
        which `claim` creates too unless it exists. Raises `ApiRefused` for a manifest that an API
        server would refuse.
        """
        node = self.dra
        return self._thread.do(lambda: node.device_class(wanted))

    def claim(
        self,
        pod: str,
        wanted: "Wanted",
        *,
        config: Sequence["Object"] = (),
        pod_group: str = "",
        timeout: float = 20,
    ) -> "Claimed":
        """Create a ResourceClaim for a pod, allocate it and prepare it; return the prepared claim.

        `wanted` is `{"example.com/widget": 2}` or `{"example.com/widget": "all"}`; or requests as
        in `spec.devices.requests` of a claim; or the name of another pod's claim, to share it.
        `config` is `spec.devices.config`. With `pod_group` the pod is in this PodGroup, and the
        claim is reserved for the group: it keeps its devices until `release_pod_group`, and is
        unprepared when no pod of the group is here.

        Raises `NotInTime` if the devices are not allocatable within `timeout` seconds;
        `DynamicResourcesFailed`, with the text of the pod's event, if the driver refuses or answers
        wrongly; `UnresolvableCdiDevices` for names that no CDI file has.
        """
        return self._call(self.dra.claim(pod, wanted, config, timeout, pod_group=pod_group))

    def release_pod_group(self, name: str) -> None:
        """Delete a PodGroup after its pods: claims that are reserved for nobody else are freed.

        Raises `UsageError` while pods of the group are here.
        """
        self._call(self.dra.release_pod_group(name))

    def published(self, driver: str) -> Sequence["Object"]:
        """Return the devices of a driver's ResourceSlices in order, of complete pools only."""
        node = self.dra
        return self._thread.do(lambda: node.published(driver))

    def wait_published(self, driver: str, *, devices: int, timeout: float = 20) -> None:
        """Return when a driver has published this number of devices; raises `NotInTime`."""
        self._call(self.dra.wait_published(driver, devices, timeout))

    def health(self, claimed: "Claimed") -> Mapping[str, str]:
        """Return `Healthy`, `Unhealthy` or `Unknown` for each device of a claim, as a pod shows."""
        node = self.dra
        return self._thread.do(lambda: node.health(claimed))
