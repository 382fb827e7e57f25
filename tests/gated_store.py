"""Stores of pods without a file: one that stores nothing, one that waits and fails on demand."""

import asyncio
from collections.abc import Collection, Sequence

from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import Holding
from kubedevices.node.pods.pod_devices_store import StoredState


class PodDevicesInMemory:
    """A store without a file: the pods are only in the memory of the device manager."""

    async def load(self) -> StoredState:
        """Return an empty state."""
        return StoredState()

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        """Do nothing."""

    async def release(self, pod_uids: Collection[str]) -> None:
        """Do nothing."""

    async def mark_verified(self, pod_uid: str) -> None:
        """Do nothing."""

    async def keep_resources(self, resources: Collection[str]) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class GatedStore(PodDevicesInMemory):
    """Each change waits until the gate is open; then it fails if `error` is set."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Holding]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.asked = 0

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        await self._wait()
        self.kept.setdefault(pod.uid, []).extend(holdings)

    async def release(self, pod_uids: Collection[str]) -> None:
        await self._wait()
        for pod_uid in pod_uids:
            self.kept.pop(pod_uid, None)

    async def _wait(self) -> None:
        self.asked += 1
        await self.gate.wait()
        if self.error:
            raise self.error
