"""Admitted pods in memory and in the store: the same in both, whatever goes wrong in between."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from kubedevices.errors import LedgerWriteFailed
from kubedevices.node.admission.admitted_pods import AdmittedPods
from kubedevices.node.events import EventSource
from kubedevices.node.pods.pod import Pod
from kubedevices.node.pods.pod_devices import Holding, PodDevices
from kubedevices.node.pods.pod_devices_store import PodDevicesInMemory, StoredState
from tests.ledger_rows import GADGET, WIDGET, admitted, holdings, pod


class SlowStore(PodDevicesInMemory):
    """Keeps pods when its gate is opened, or fails."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Holding]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def load(self) -> StoredState:
        return StoredState([admitted("old")])

    async def commit(self, pod: Pod, holdings: Sequence[Holding]) -> None:
        await self._wait()
        self.kept.setdefault(pod.uid, []).extend(holdings)

    async def release(self, pod_uids: Collection[str]) -> None:
        await self._wait()
        for pod_uid in pod_uids:
            self.kept.pop(pod_uid, None)

    async def _wait(self) -> None:
        await self.gate.wait()
        if self.error:
            raise self.error


class Rig:
    """Admitted pods over a slow store."""

    def __init__(self) -> None:
        self.store, self.pod_devices, self.source = SlowStore(), PodDevices(), EventSource()
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
        """Whether memory and store say the same."""
        uids = {pod.uid for pod in self.admitted}
        return uids == {*self.store.kept} == {*self.pod_devices.pod_uids()}


@pytest.fixture
async def rig() -> Rig:
    """A rig without pods."""
    return Rig()


async def test_a_pod_is_there_when_it_is_kept(rig: Rig) -> None:
    """And known by its uid, from then to its removal."""
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


async def test_a_pod_that_changes_nothing_is_not_written(rig: Rig) -> None:
    """Admitted again with what it has: no disk is waited for; another manifest is written."""
    await rig.add()
    rig.store.gate.clear()
    await rig.admitted.add(pod(), ())
    adding = asyncio.ensure_future(rig.admitted.add(Pod("p", "other", uid=pod().uid), ()))
    await asyncio.sleep(0)
    assert not adding.done()
    rig.store.gate.set()
    await adding
    assert rig.is_consistent()


async def test_pods_from_before_hold_their_devices(rig: Rig) -> None:
    """Without an event: they did not get them now."""
    await rig.admitted.load()
    assert [each.name for each in rig.admitted] == ["old"]
    assert rig.pod_devices.reserved()[WIDGET] == {"w0", "w1"}
    assert rig.told() == []


async def test_a_pod_that_cannot_be_kept_holds_nothing(rig: Rig) -> None:
    """The error goes to the caller; the next try may succeed."""
    rig.store.error = LedgerWriteFailed("no space")
    with pytest.raises(LedgerWriteFailed):
        await rig.add()
    assert rig.is_consistent()
    assert not len(rig.pod_devices)
    rig.store.error = None
    await rig.add()
    assert rig.is_consistent()


async def test_a_pod_that_cannot_be_forgotten_keeps_its_devices(rig: Rig) -> None:
    """Or they would be given to another, and to both after a restart."""
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
    """Admission and release: the answer is what happened, not that somebody was impatient."""
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
