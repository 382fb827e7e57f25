"""A claim that nobody will unprepare is unprepared by the driver, and no other claim is."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from kubedevices.dra.abandoned_search import AbandonedSearch, SearchTiming
from kubedevices.dra.device_plugin_guard import GuardTiming, KubeletGuard
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.kubelet_api.pod_resources import (
    ClaimEntry,
    ContainerEntry,
    PodEntry,
    pod_to_wire,
)
from kubedevices.values.allocation import ClaimReference
from tests.dra.cluster import OneNode, claim_of
from tests.dra.test_device_plugin_guard import SlowKubelet
from tests.dra.test_driver import UID as DRIVER_CLAIM
from tests.dra.test_driver import Rig as DriverRig
from tests.dra.test_service import DRIVER, ONE, THREE, TWO, BusyCard, Rig
from tests.waiting import until


def deleted(claim: ClaimReference) -> ApiRefused:
    message = f'resourceclaims.resource.k8s.io "{claim.name}" not found'
    return ApiRefused("get resourceclaims", 404, "NotFound", message)


class World:
    """A driver with the prepared claims ONE and TWO; the kubelet has containers with `used`."""

    def __init__(self, directory: Path, author: object = None) -> None:
        self.rig = Rig(directory, author)
        self.used: Collection[tuple[str, str]] | None = ()
        self.is_trusted, self.asked = True, list[str]()
        self.search = AbandonedSearch(
            DRIVER,
            self,
            claims=lambda: self.rig.service._preparation.claims,
            of_pods=self.of_pods,
            free=self.rig.service.work.unprepare_if,
            is_trusted=lambda: self.is_trusted,
            timing=SearchTiming(interval=0.02, pause=0.0, confirm=0.0),
        )

    async def begin(self) -> None:
        await self.rig.service.prepare((ONE, TWO))
        self.rig.claims |= {"c1": deleted(ONE), "c2": deleted(TWO)}

    async def of_pods(self) -> Collection[tuple[str, str]] | None:
        return self.used

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        self.asked.append(claim.name)
        return await self.rig.get_claim(claim)

    @property
    def left(self) -> list[str]:
        return [each.reference.name for each in self.rig.service._preparation.claims]

    async def look(self, times: int = 2) -> list[str]:
        for _ in range(times):
            await self.search.look()
        return self.left


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.begin()
    return made


async def test_a_deleted_claim_without_a_container_is_unprepared(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """After two looks, with a warning that names its devices."""
    world.used = [("default", "c2")]
    assert await world.look(times=1) == ["c1", "c2"]
    assert await world.look(times=1) == ["c2"]
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.startswith("claim default/c1 is unprepared without a call of the kubelet")
    assert "it is deleted" in warning
    assert "gpu-0" in warning
    assert "c2" not in world.asked, "the kubelet has a container with it"


@pytest.mark.parametrize("used", [None, [("default", "c1"), ("default", "c2")]])
async def test_nothing_is_freed_without_the_kubelets_answer(
    world: World, used: Collection[tuple[str, str]] | None
) -> None:
    """Nor are claims that containers have. The API server is not asked then."""
    world.used = used
    assert await world.look(times=4) == ["c1", "c2"]
    assert not world.asked


async def test_nothing_is_freed_without_the_api_server(world: World) -> None:
    """Nor by a server without the slices of this node: it may be another cluster's."""
    world.rig.claims |= {"c1": ApiUnreachable("here", "gone"), "c2": {"nonsense": 1}}
    assert await world.look(times=4) == ["c1", "c2"]
    world.rig.claims |= {"c1": deleted(ONE), "c2": deleted(TWO)}
    world.is_trusted = False
    assert await world.look(times=4) == ["c1", "c2"]


async def test_a_claim_that_a_pod_gets_between_the_looks_stays(world: World) -> None:
    """The time counts anew afterwards."""
    await world.look(times=1)
    world.used = [("default", "c1"), ("default", "c2")]
    await world.look(times=1)
    world.used = ()
    assert await world.look(times=1) == ["c1", "c2"]


async def test_a_claim_that_a_pod_reserves_between_the_looks_stays(world: World) -> None:
    """The kubelet may not have its containers yet. The time counts anew afterwards."""
    await world.look(times=1)
    metadata = {"namespace": "default", "name": "c1", "uid": ONE.uid}
    used = claim_of(ONE.uid, "gpu-0") | {"metadata": metadata}
    used["status"]["reservedFor"] = [{"uid": "pod"}]
    world.rig.claims["c1"] = used
    assert await world.look(times=1) == ["c1"]
    world.rig.claims["c1"] = deleted(ONE)
    assert await world.look(times=1) == ["c1"]
    assert not await world.look(times=1)


async def test_a_claim_that_a_pod_gets_during_the_look_stays(world: World) -> None:
    """Both are asked again in the turn of the claim."""
    await world.look(times=1)
    world.used = [("default", "c2")]
    free = world.search._free

    async def meanwhile(claim: ClaimReference, reason: Callable[[], Awaitable[str]]) -> None:
        world.used = [("default", "c1"), ("default", "c2")]
        await free(claim, reason)

    world.search._free = meanwhile
    assert await world.look(times=1) == ["c1", "c2"]


async def test_claims_of_an_earlier_boot_are_freed_too(tmp_path: Path) -> None:
    """A driver keeps their devices from the device plugin API."""
    world = World(tmp_path)
    await world.begin()
    world.rig.service._preparation._boot_id = "boot-2"
    assert world.rig.service.work.is_held("gpu-0")
    assert not await world.look()
    assert not world.rig.service.work.is_held("gpu-0")


async def test_a_hook_that_fails_is_logged_and_called_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The claim keeps its device meanwhile."""
    world = World(tmp_path, BusyCard(2))
    await world.begin()
    assert await world.look() == ["c1", "c2"]
    assert "claim default/c1 is abandoned, but cannot be unprepared" in caplog.text
    assert "the card is busy" in caplog.text
    assert await world.look(times=1) == ["c1", "c2"], "the time counts anew"
    assert not await world.look(times=1)


async def test_a_claim_that_waits_for_an_abandoned_claim_gets_its_device(world: World) -> None:
    """The conflict is the reason to look at once."""
    service = world.rig.service
    world.search._timing = SearchTiming(interval=3600, pause=0.0, confirm=0.01)
    service.holder_wait.on_conflict = world.search.look_soon
    searching = asyncio.create_task(world.search.run())
    try:
        world.rig.claims["c3"] = claim_of(THREE.uid, "gpu-0")
        assert isinstance((await service.prepare((THREE,)))[THREE.uid], tuple)
    finally:
        searching.cancel()
        await asyncio.wait({searching})


class AskedMeanwhile(World):
    """Is asked to look again during its first look."""

    looks = 0

    async def of_pods(self) -> Collection[tuple[str, str]] | None:
        self.looks += 1
        if self.looks == 1:
            self.search.look_soon()
        return await super().of_pods()


@pytest.mark.parametrize(("pause", "looks"), [(0.0, 2), (3600.0, 1)])
async def test_a_claim_that_begins_to_wait_during_a_look_is_followed_by_a_look(
    tmp_path: Path, pause: float, looks: int
) -> None:
    """After the shortest time between two looks; there is no other before the usual time."""
    world = AskedMeanwhile(tmp_path)
    world.used = None
    await world.begin()
    world.search._timing = SearchTiming(interval=3600, pause=pause)
    searching = asyncio.create_task(world.search.run())
    try:
        world.search.look_soon()
        await until(lambda: world.looks >= looks)
        for _ in range(9):
            await asyncio.sleep(0)
        assert world.looks == looks
    finally:
        searching.cancel()
        await asyncio.wait({searching})


async def test_a_driver_looks_now_and_then(
    short_dir: Path, server: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a conflict too: the kubelet lost its state, and pod and claim were deleted."""
    server.give("one", claim_of(DRIVER_CLAIM, "w-1"))
    rig = DriverRig(short_dir, server)
    rig.options["search_timing"] = SearchTiming(interval=0.05, pause=0.0, confirm=0.0)
    rig.options["guard_timing"] = GuardTiming(young=0.0)
    (short_dir / "k").mkdir()
    async with (
        SlowKubelet().serving(short_dir / "k" / "pod-resources" / "kubelet.sock"),
        rig.driver() as driver,
    ):
        await until(lambda: server.devices)
        assert not (await rig.call("NodePrepareResources")).error
        server.take("one")
        await until(lambda: not driver.claims)
        said = "claim default/one is unprepared without a call of the kubelet"
        await until(lambda: said in caplog.text)


class KubeletWithPods(SlowKubelet):
    """Lists one pod with a claim."""

    claim = "c1"

    async def list_pods(self) -> list[bytes]:
        container = ContainerEntry("main", (), (ClaimEntry(self.claim, "default"),))
        return [pod_to_wire(PodEntry("p", "default", (container,)))]


async def test_the_claims_of_containers_come_from_a_new_answer_of_the_kubelet(
    short_dir: Path,
) -> None:
    """An older answer, and the answer of a kubelet that has just started, do not count."""
    socket = short_dir / "kubelet.sock"
    guard = KubeletGuard(DRIVER, socket, GuardTiming(young=0.0))
    async with KubeletWithPods().serving(socket):
        assert await guard.claims_of_pods() == {("default", "c1")}
    assert await guard.claims_of_pods() is None
    async with KubeletWithPods().serving(socket):
        guard._timing, guard._young_until = GuardTiming(young=3600), None
        assert await guard.claims_of_pods() is None
    absent = KubeletGuard(DRIVER, short_dir / "none" / "kubelet.sock")
    assert await absent.claims_of_pods() is None
