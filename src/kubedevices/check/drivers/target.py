"""What to check: a DRA driver, in one configuration value, and all durations of a run."""

from dataclasses import dataclass
from typing import Any

from kubedevices.check.drivers.rights import Right
from kubedevices.check.target import NO_TRIGGER, Trigger
from kubedevices.check.timing import Durations

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


SLOWEST_HELPER = 95.0
"""Seconds until a driver on k8s.io/dynamic-resource-allocation has published deleted slices again.

The helper waits 30 s after the last event, and 60 s after its own last write (the life of an entry
in its cache), in which it does not see that a slice is gone. So a shorter limit says nothing.
"""


@dataclass(frozen=True, slots=True)
class DriverTiming(Durations):
    """Limits for the driver and pauses of the check, in own seconds of the driver.

    `check.busy_machine` says what own seconds are.
    """

    start: float = 40  # from the start of the process until it is registered and has published
    call: float = 45  # deadline of the kubelet for Prepare and Unprepare
    again: float = 10  # until it is registered again after the kubelet's restart
    published: float = SLOWEST_HELPER  # until slices are back after somebody deleted them
    repaired: float = SLOWEST_HELPER + 5  # until it has recovered from errors of the API server
    stop: float = 10
    wiped: float = 60  # until it is registered again, or ends, after its sockets are gone
    first_health: float = 5
    change: float = 15  # until a change of a device is published

    settle: float = 1  # nothing new is published for so long: the driver is ready
    quiet: float = 15  # in which a driver without changes may not write
    absent: float = 3  # for which the kubelet is away
    before_kubelet: float = 40  # for which the driver runs before its kubelet
    api_away: float = 12
    refusing: float = 6  # for which the API server refuses
    hold: float = 0.5
    idle: float = 35 * 60  # without a call, only in a long run


QUICK = DriverTiming(
    start=15, call=20, again=8, published=8, repaired=10, stop=8, wiped=12, quiet=4,
    before_kubelet=6, api_away=3, refusing=3, change=8, absent=1,
)  # fmt: skip
"""The times of `--quick`."""
