"""Admitted pods in memory and in the store: both always agree."""

import asyncio

import pytest

from kubedevices.errors import LedgerWriteFailed
from kubedevices.node.admission.admitted_pods import AdmittedPods
from kubedevices.node.events import EventSource
from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import PodDevices
from kubedevices.node.pods.pod_devices_store import StoredState
from tests.gated_store import GatedStore
from tests.ledger_rows import GADGET, WIDGET, admitted, holdings, pod


class StoreWithOldPod(GatedStore):
    async def load(self) -> StoredState:
        return StoredState([admitted("old")])


class Rig:
    """Admitted pods over a slow store."""

    def __init__(self) -> None:
        self.store, self.pod_devices, self.source = StoreWithOldPod(), PodDevices(), EventSource()
        self.events = self.source.subscribe()
        self.admitted = AdmittedPods(self.pod_devices, self.store, self.source)

    async def add(self, name: str = "p") -> None:
        """Do what an admission does."""
        for holding in holdings(pod(name)):
            self.pod_devices.insert(*holding)
        await self.admitted.add(pod(name), holdings(pod(name)))

    def told(self) -> list[str]:
        return [str(event.kind) for event in self.events.backlog]

    def is_consistent(self) -> bool:
        """Whether memory and store have the same pods."""
        uids = {pod.uid for pod in self.admitted}
        return uids == {*self.store.kept} == {*self.pod_devices.pod_uids()}


@pytest.fixture
async def rig() -> Rig:
    """Give a rig without pods."""
    return Rig()


async def test_a_stored_pod_is_known_until_its_removal(rig: Rig) -> None:
    """The pod is found by its UID."""
    await rig.add()
    assert pod().uid in rig.admitted
    assert rig.admitted.get(pod().uid) == pod()
    assert len(rig.admitted) == 1
    released = await rig.admitted.remove(pod().uid)
    assert {name: {*ids} for name, ids in released.items()} == {
        WIDGET: {"w0", "w1"},
        GADGET: {"g0"},
    }
    assert rig.told() == ["allocated", "released"]
    assert rig.is_consistent()
    assert await rig.admitted.remove(pod().uid) == {}


async def test_a_pod_without_a_change_is_not_written(rig: Rig) -> None:
    """The same pod without new devices is not written; a pod with a changed manifest is."""
    await rig.add()
    rig.store.gate.clear()
    await rig.admitted.add(pod(), ())
    adding = asyncio.ensure_future(rig.admitted.add(Pod("p", "other", uid=pod().uid), ()))
    await asyncio.sleep(0)
    assert not adding.done()
    rig.store.gate.set()
    await adding
    assert rig.is_consistent()


async def test_pods_of_an_earlier_start_hold_their_devices(rig: Rig) -> None:
    """No event is published, because the pods did not get the devices now."""
    await rig.admitted.load()
    assert [each.name for each in rig.admitted] == ["old"]
    assert rig.pod_devices.reserved()[WIDGET] == {"w0", "w1"}
    assert rig.told() == []


async def test_a_pod_that_cannot_be_stored_holds_no_device(rig: Rig) -> None:
    """The error goes to the caller. The next try can succeed."""
    rig.store.error = LedgerWriteFailed("no space")
    with pytest.raises(LedgerWriteFailed):
        await rig.add()
    assert rig.is_consistent()
    assert not len(rig.pod_devices)
    rig.store.error = None
    await rig.add()
    assert rig.is_consistent()


async def test_a_pod_that_cannot_be_removed_from_the_store_keeps_its_devices(rig: Rig) -> None:
    """Otherwise a second pod would get the devices, and both would hold them after a restart."""
    await rig.add()
    rig.store.error = LedgerWriteFailed("no space")
    with pytest.raises(LedgerWriteFailed):
        await rig.admitted.remove(pod().uid)
    assert pod().uid in rig.admitted
    assert rig.pod_devices.reserved()[WIDGET] == {"w0", "w1"}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancelled_commit_is_finished_and_answered(
    rig: Rig, fails: bool, times: int
) -> None:
    """The caller of an admission or a release gets its result, not its own cancellation."""
    rig.store.gate.clear()
    rig.store.error = LedgerWriteFailed("no space") if fails else None
    adding = asyncio.create_task(rig.add())
    for _ in range(times):
        await asyncio.sleep(0)
        adding.cancel()
        await asyncio.sleep(0)
    assert not adding.done()
    rig.store.gate.set()
    if fails:
        with pytest.raises(LedgerWriteFailed):
            await adding
        assert rig.is_consistent()
        assert len(rig.admitted) == 0
        return
    await adding
    assert rig.is_consistent()
    assert len(rig.admitted) == 1
    rig.store.gate.clear()
    removing = asyncio.create_task(rig.admitted.remove(pod().uid))
    await asyncio.sleep(0)
    removing.cancel()
    await asyncio.sleep(0)
    rig.store.gate.set()
    assert set(await removing) == {WIDGET, GADGET}
    assert rig.is_consistent()
    assert not len(rig.admitted)
