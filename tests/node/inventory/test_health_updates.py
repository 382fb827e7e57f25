"""kubedevices.node.inventory.health_updates."""

import asyncio
import logging

import pytest

from kubedevices.node.events import EventKind, EventSource, NodeEvent
from kubedevices.node.inventory.health_updates import QUEUE_LIMIT, HealthUpdates
from kubedevices.node.pods.pod_devices import HeldDevices, PodDevices
from kubedevices.values.allocation import ContainerAllocateResponse

GPU, NIC = "example.com/gpu", "example.com/nic"


class Rig:
    """Pod `p-<n>` holds device `d<n>` of resource `GPU`, and a queue of updates is open."""

    def __init__(self, pods: int = 2) -> None:
        self.events, self.pod_devices = EventSource(), PodDevices()
        for number in range(pods):
            held = HeldDevices({-1: [f"d{number}"]}, ContainerAllocateResponse())
            self.pod_devices.insert(f"p-{number}", "c", GPU, held)
        self.updates = HealthUpdates(self.events, self.pod_devices)

    def publish(self, kind: EventKind, resource: str = GPU, **details: object) -> None:
        self.events.publish(NodeEvent(kind, resource, details=details))

    async def next(self) -> frozenset[str]:
        return await asyncio.wait_for(anext(aiter(self.updates)), 5)


async def test_a_device_that_turns_unhealthy_causes_an_update_for_its_pod() -> None:
    """One update for each list, with the pods that hold a changed device."""
    rig = Rig(3)
    rig.publish(EventKind.HEALTH_CHANGED, devices={"d0": "Unhealthy", "d2": "Unhealthy", "x": ""})
    assert await rig.next() == {"p-0", "p-2"}


async def test_the_same_id_of_another_resource_is_another_device() -> None:
    """A kubelet compares only IDs, and updates the pod of another resource too."""
    rig = Rig()
    rig.publish(EventKind.HEALTH_CHANGED, NIC, devices={"d0": "Unhealthy"})
    rig.publish(EventKind.HEALTH_CHANGED, GPU, devices={"d1": "Unhealthy"})
    assert await rig.next() == {"p-1"}


async def test_a_vanished_device_and_a_lost_plugin_cause_updates() -> None:
    """A kubelet sends no update in either case."""
    rig = Rig()
    rig.publish(EventKind.LIST_CHANGED, appeared=[], vanished=["d1"], moved=[])
    assert await rig.next() == {"p-1"}
    rig.publish(EventKind.DISCONNECTED)
    assert await rig.next() == {"p-0", "p-1"}


async def test_an_unheld_device_causes_no_update() -> None:
    """No update without a pod."""
    rig = Rig()
    rig.publish(EventKind.HEALTH_CHANGED, devices={"d9": "Unhealthy"})
    rig.publish(EventKind.REGISTERED)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(aiter(rig.updates)), 0.05)


async def test_a_full_queue_keeps_the_first_hundred_updates(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """FeatureGateResourceHealthStatus: of 200 changes a hundred are stored, with a warning."""
    rig = Rig(200)
    with caplog.at_level(logging.WARNING):
        for number in range(200):
            rig.publish(EventKind.HEALTH_CHANGED, devices={f"d{number}": "Unhealthy"})
    assert "device update channel is full" in caplog.text
    assert [await rig.next() for _ in range(QUEUE_LIMIT)] == [{f"p-{n}"} for n in range(100)]


async def test_a_closed_queue_gets_no_more_updates() -> None:
    """No update is stored for a closed reader."""
    rig = Rig()
    rig.updates.close()
    rig.publish(EventKind.HEALTH_CHANGED, devices={"d0": "Unhealthy"})
    with pytest.raises(StopAsyncIteration):
        await rig.next()
