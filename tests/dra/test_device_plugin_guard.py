"""The guard asks the kubelet which devices the device plugin API has."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from kubedevices.dra.device_plugin_guard import GuardTiming, KubeletGuard
from kubedevices.kubelet_api.pod_resources import (
    DeviceEntry,
    PodEntry,
    allocatable_to_wire,
    pod_resources_methods,
)
from kubedevices.wire.unix_grpc import GrpcServer
from tests.waiting import until


class SlowKubelet:
    """Answers when `answers` is set."""

    def __init__(self) -> None:
        self.questions, self.answers = 0, asyncio.Event()
        self.answers.set()
        self.allocatable: list[DeviceEntry] = []

    @contextlib.asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        socket.parent.mkdir(exist_ok=True)
        server = GrpcServer(pod_resources_methods(self), name="podresources")
        await server.start(socket)
        try:
            yield
        finally:
            await server.stop()

    async def list_pods(self) -> list[bytes]:
        return []

    async def get_pod(self, name: str, namespace: str) -> bytes:
        raise NotImplementedError

    async def get_allocatable(self) -> bytes:
        self.questions += 1
        found = [*self.allocatable]
        await self.answers.wait()
        return b"".join(map(allocatable_to_wire, found))

    async def list_pods_v1alpha1(self) -> list[PodEntry]:
        raise NotImplementedError


async def test_claims_that_wait_share_a_question_that_begins_after_they_came(
    short_dir: Path,
) -> None:
    """An answer to an older question may be out of date for them."""
    kubelet, socket = SlowKubelet(), short_dir / "kubelet.sock"
    guard = KubeletGuard("a.com", socket, GuardTiming(young=0.0))
    async with kubelet.serving(socket):
        kubelet.answers.clear()
        first = asyncio.create_task(guard.refusal([("gpu", "1")]))
        await until(lambda: kubelet.questions)
        kubelet.allocatable = [DeviceEntry("a.com/gpu", ("1",))]
        later = [asyncio.create_task(guard.refusal([("gpu", "1")])) for _ in range(50)]
        await asyncio.sleep(0)
        kubelet.answers.set()
        assert not await first
        assert all("a device plugin offers it" in each for each in await asyncio.gather(*later))
        assert kubelet.questions == 2


async def test_a_cancelled_question_is_asked_again_by_the_next_claim(short_dir: Path) -> None:
    """The claims that waited for it do not take it for answered."""
    kubelet, socket = SlowKubelet(), short_dir / "kubelet.sock"
    guard = KubeletGuard("a.com", socket, GuardTiming(young=0.0))
    async with kubelet.serving(socket):
        kubelet.answers.clear()
        first = asyncio.create_task(guard.refusal([("gpu", "1")]))
        await until(lambda: kubelet.questions)
        second = asyncio.create_task(guard.refusal([("gpu", "1")]))
        await asyncio.sleep(0)
        first.cancel()
        kubelet.answers.set()
        assert not await second
        assert guard.view is not None
