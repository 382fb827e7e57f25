"""Where admitted pods are kept: the one seam between deciding who holds what and keeping it.

The device manager waits for `commit` before it acknowledges a pod. What is kept in memory is gone
with the process; the `ledger` keeps it on disk.
"""

from collections.abc import Awaitable, Collection, Sequence
from typing import NamedTuple, Protocol

from kubedevices.node.damaged_file import Damage
from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import Holding


class AdmittedPod(NamedTuple):
    """A pod and everything its containers hold.

    `is_of_this_boot`: it was admitted, or its devices were last verified, since the machine booted.
    Only then can its containers still be running.
    """

    pod: Pod
    holdings: Sequence[Holding]
    is_of_this_boot: bool = True


class StoredState(NamedTuple):
    """What a store remembers at the start.

    `resources`: all that had a device list, held by pods or not.
    """

    pods: Sequence[AdmittedPod] = ()
    resources: Collection[str] = ()
    damage: Sequence[Damage] = ()


class PodDevicesStore(Protocol):
    """Keeps admitted pods. What it raises rejects the pod, so it raises `KubedevicesError`."""

    async def load(self) -> StoredState:
        """Return what was kept, once at start."""

    def commit(self, pod: Pod, holdings: Sequence[Holding]) -> Awaitable[None]:
        """Keep `holdings` beside what the pod held before; done when they are safe."""

    def release(self, pod_uids: Collection[str]) -> Awaitable[None]:
        """Forget these pods; done when that is safe."""

    def mark_verified(self, pod_uid: str) -> Awaitable[None]:
        """Remember that the devices of a pod from before were verified in this boot."""

    def keep_resources(self, resources: Collection[str]) -> Awaitable[None]:
        """Remember which resources have a device list, instead of those before."""

    async def close(self) -> None:
        """Finish; nothing but `load` is asked afterwards. Harmless when repeated."""


class PodDevicesInMemory:
    """Keeps nothing: the device manager's own memory is all there is."""

    async def load(self) -> StoredState:
        """Return nothing: every start is the first."""
        return StoredState()

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """Nothing has to be made safe."""

    async def release(self, pod_uids: Collection[str]) -> None:
        """Nothing has to be forgotten."""

    async def mark_verified(self, pod_uid: str) -> None:
        """Nothing is from before."""

    async def keep_resources(self, resources: Collection[str]) -> None:
        """Nothing has to be remembered."""

    async def close(self) -> None:
        """Nothing has to be finished."""
