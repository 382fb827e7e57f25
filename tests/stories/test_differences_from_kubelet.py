"""Intended differences between our node and a kubelet.

This file has only differences that no test of a module shows. The complete list is
docs/differences-from-kubelet.md.
"""

import asyncio
from pathlib import Path

import pytest

from kubedevices.errors import AdmissionRejected, RpcError
from kubedevices.kubelet_api.pod_resources import PodResourcesClient
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.services.pod_resources import PodResourcesServer
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.waiting import until


def pod(name: str, count: int = 1) -> Pod:
    return Pod(name, containers=(Container("c", {RESOURCE: count}),))


async def test_a_pod_that_ended_is_in_no_answer_of_podresources(short_dir: Path) -> None:
    """Neither List nor Get has a pod that is no longer active."""
    active = {pod("one").uid, pod("two").uid}
    async with (
        DeviceManager(short_dir, active_pods=lambda: active) as manager,
        FakePlugin(short_dir, devices=healthy("a", "b")) as plugin,
    ):
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=2)
        await manager.allocate(pod("one"))
        await manager.allocate(pod("two"))
        server = PodResourcesServer(manager, short_dir / "pod-resources/kubelet.sock")
        await server.start()
        async with await GrpcChannel.dial(server.socket) as channel:
            client = PodResourcesClient(channel)
            active.discard(pod("one").uid)
            with pytest.raises(RpcError, match="pod one in namespace default not found"):
                await client.get_pod("one", "default", timeout=10)
            assert [each.name for each in await client.list_pods(timeout=10)] == ["two"]
            active.clear()
            assert await client.list_pods(timeout=10) == ()
        await server.stop()


async def test_a_pod_before_the_first_list_is_refused(short_dir: Path) -> None:
    """A kubelet starts the pod without the devices that it asked for."""
    async with DeviceManager(short_dir) as manager, FakePlugin(short_dir) as plugin:
        plugin.hang("list")
        await plugin.register()
        await until(lambda: plugin.streams_opened)
        with pytest.raises(AdmissionRejected, match="cannot allocate unregistered device"):
            await manager.allocate(pod("p"))


async def test_a_device_that_turns_unhealthy_during_allocate_is_not_given(
    short_dir: Path,
) -> None:
    """A kubelet does not check the health again after the call."""
    async with (
        DeviceManager(short_dir) as manager,
        FakePlugin(short_dir, devices=healthy("a")) as plugin,
    ):
        await plugin.register()
        await manager.wait_for(RESOURCE, allocatable=1)
        gate = plugin.hang("allocate")
        admission = asyncio.ensure_future(manager.allocate(pod("p")))
        await until(lambda: plugin.allocations)
        await plugin.send(unhealthy("a"))
        await manager.wait_for(RESOURCE, allocatable=0)
        gate.set()
        with pytest.raises(AdmissionRejected, match="no longer healthy"):
            await admission


async def test_a_request_for_zero_devices_is_admitted_without_healthy_devices(
    short_dir: Path,
) -> None:
    """A kubelet refuses the pod."""
    async with (
        DeviceManager(short_dir) as manager,
        FakePlugin(short_dir, devices=unhealthy("a")) as plugin,
    ):
        await plugin.register()
        await manager.wait_for(RESOURCE, capacity=1)
        assert await manager.allocate(pod("p", 0)) == {}
