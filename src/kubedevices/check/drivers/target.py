"""What to check: a DRA driver, in one configuration value."""

from dataclasses import dataclass
from typing import Any

from kubedevices.check.drivers.rights import Right
from kubedevices.check.target import NO_TRIGGER, Trigger

NODE_NAME = "check-node"

TOKEN = "secret-of-the-check"
"""The token in the kubeconfig file. No driver may print it."""

TRIGGERED, AFTERWARDS = "trigger", "afterwards"
"""Tracks of rules that run when all others have ended: all copies share the devices that a trigger
changes, and rules about the whole run look at what all copies did."""

PLACEHOLDERS = {
    "{kubeconfig}": "the kubeconfig file of the API server",
    "{node}": "the name of the node",
    "{kubelet_dir}": "the kubelet's root directory, as /var/lib/kubelet",
    "{registry_dir}": "the directory of registration sockets, as /var/lib/kubelet/plugins_registry",
    "{cdi_dir}": "the directory of CDI files, as /var/run/cdi",
    "{pod_uid}": "the UID of the driver's pod, another one for each process",
}
"""What `kubedevices check` replaces in the words of the command."""

_PLACES = ("{kubelet_dir}", "{registry_dir}")


@dataclass(frozen=True)
class DriverTarget:
    """A DRA driver and how to check it.

    command     the command that starts the driver, with the placeholders of `PLACEHOLDERS`
    trigger     a shell command that changes a device, and the command that undoes it
    granted     the rights in the driver's manifests, None without manifests
    guarded     the manifests have an admission policy for ResourceSlices
    parameters  two valid parameter sets of the driver, with different values of the same fields
    at_once     how many copies of the driver run at the same time
    long        also waits for half an hour, and kills the driver 200 times
    quick       does not wait for what a good driver may do only after `SLOWEST_HELPER` seconds
    """

    command: tuple[str, ...]
    trigger: Trigger = NO_TRIGGER
    granted: frozenset[Right] | None = None
    guarded: bool = False
    parameters: tuple[dict[str, Any], ...] = ()
    at_once: int = 8
    long: bool = False
    quick: bool = False

    @property
    def needs_private_view(self) -> bool:
        """Whether no word of the command tells the driver where its directories are."""
        return not any(name in word for name in _PLACES for word in self.command)

    @property
    def has_pod_uid(self) -> bool:
        """Whether the command tells the driver its pod, so that two instances can serve."""
        return any("{pod_uid}" in word for word in self.command)
