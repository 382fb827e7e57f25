"""Where admitted pods are kept: the one seam between deciding who holds what and keeping it.

The device manager waits for `commit` before it acknowledges a pod. What is kept in memory is gone
with the process.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from kubedevices.node.pod import Pod
from kubedevices.node.pod_devices import Holding


class AdmittedPod(NamedTuple):
    """A pod and everything its containers hold."""

    pod: Pod
    holdings: Sequence[Holding]


class PodDevicesStore(Protocol):
    """Keeps admitted pods. What it raises rejects the pod, so it raises `KubedevicesError`."""

    async def load(self) -> Sequence[AdmittedPod]:
        """Return what was kept, once at start."""

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """Keep `holdings` beside what the pod held before; return when they are safe."""

    async def release(self, pod_uids: Collection[str]) -> None:
        """Forget these pods; return when that is safe."""

    async def close(self) -> None:
        """Finish; nothing is asked afterwards."""


class PodDevicesInMemory:
    """Keeps nothing: the device manager's own memory is all there is."""

    async def load(self) -> Sequence[AdmittedPod]:
        """Return nothing: every start is the first."""
        return ()

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """Nothing has to be made safe."""

    async def release(self, pod_uids: Collection[str]) -> None:
        """Nothing has to be forgotten."""

    async def close(self) -> None:
        """Nothing has to be finished."""
