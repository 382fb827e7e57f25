"""The interface of a store of admitted pods.

The device manager waits for `commit` before it answers an admission. `ledger` is the store on disk.
"""

from collections.abc import Awaitable, Collection, Sequence
from typing import NamedTuple, Protocol

from kubedevices.node.damaged_file import Damage
from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import Holding


class AdmittedPod(NamedTuple):
    """A pod and the holdings of its containers.

    `is_of_this_boot`: the pod was admitted, or its devices were verified, since the machine booted.
    Only then its containers may still run.
    """

    pod: Pod
    holdings: Sequence[Holding]
    is_of_this_boot: bool = True


class StoredState(NamedTuple):
    """The content of a store at the start.

    `resources` are all resources that had a device list, also resources of which no pod holds a
    device.
    """

    pods: Sequence[AdmittedPod] = ()
    resources: Collection[str] = ()
    damage: Sequence[Damage] = ()


class PodDevicesStore(Protocol):
    """Stores admitted pods. An error rejects the pod, so a store raises `KubedevicesError`."""

    async def load(self) -> StoredState:
        """Return the stored state; called once at the start."""

    def commit(self, pod: Pod, holdings: Sequence[Holding]) -> Awaitable[None]:
        """Add `holdings` to the stored holdings of the pod; done when they are safe."""

    def release(self, pod_uids: Collection[str]) -> Awaitable[None]:
        """Remove these pods; done when the removal is safe."""

    def mark_verified(self, pod_uid: str) -> Awaitable[None]:
        """Store that the devices of a pod from before the start were verified in this boot."""

    def keep_resources(self, resources: Collection[str]) -> Awaitable[None]:
        """Store the resources with a device list, instead of the resources stored before."""

    async def close(self) -> None:
        """Finish the writes and close. Only `load` may follow. A second call does nothing."""
