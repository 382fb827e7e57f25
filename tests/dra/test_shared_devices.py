"""Devices that several claims have: the work at the first share, its end at the last."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.dra.claims import DeviceGroup
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.shared_devices import SharedDevices, check_configuration, groups_to_undo
from kubedevices.dra.slices import offer_of
from kubedevices.errors import ClaimRefused, NotInTime
from kubedevices.testing.api_server.slice_rules import slice_problems
from kubedevices.testing.workbench import Bench
from kubedevices.values.allocation import ClaimReference
from kubedevices.values.cdi import ContainerEdits
from kubedevices.values.scheduling.scheduler import NotAllocatable, allocate
from tests.dra.cluster import claim_of, claim_service
from tests.dra.test_service import DRIVER, ONE, THREE, TWO

CARD = f"{DRIVER}/card"
NODE = {"metadata": {"name": "node1"}}


class Cards(kd.PolledScanner, kd.Allocator, kd.ContainerPreStarter, kd.ClaimPreparer):
    """Records the calls for its devices."""

    interval = 3600

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.calls: list[str] = []
        self.fails: set[str] = set()

    def list_devices(self) -> kd.DeviceTree:
        cards = [kd.Device(f"card{i}", capacity={"memory": "16Gi"}) for i in range(self.count)]
        return kd.DeviceTree({"card": cards})

    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        (container,) = request.containers
        self._note("allocate", container.device_ids)
        env = {"CARDS": ",".join(container.device_ids)}
        return kd.AllocateResponse([kd.ContainerAllocateResponse(env=env)])

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        self._note("start", request.device_ids)

    def prepare_claim(self, claimed: kd.ClaimedDevices) -> ContainerEdits | None:
        self._note("prepare", claimed.device_ids, claimed.claim.name)
        return ContainerEdits(env=(f"FIRST={claimed.claim.name}",))

    def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        self._note("unprepare", claimed.device_ids, claimed.claim.name)

    def _note(self, what: str, ids: tuple[str, ...], claim: str = "") -> None:
        self.calls.append(" ".join(filter(None, (what, ",".join(ids), claim))))
        if what in self.fails:
            raise OSError(f"cannot {what}")


class Rig:
    """A service over shared cards; `start` makes another process of it."""

    def __init__(self, directory: Path, *, boot: str = "boot-1") -> None:
        self.directory, self.cards = directory, Cards()
        self.scanner = kd.Shared(self.cards, replicas=3)
        self.claims: dict[str, Any] = {}
        self.start(boot)

    def start(self, boot: str = "boot-1") -> None:
        file, self.cdi_dir = self.directory / "prepared.json", self.directory / "cdi"
        preparation = Preparation(DRIVER, "node1", file, self.cdi_dir, boot)
        preparation.start()
        self.service = claim_service(self, preparation, self.scanner.abilities_of("card"))
        tree = self.scanner.change(self.cards.list_devices(), 0.0)
        self.service.update(offer_of(tree, DRIVER))

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(self.claims[claim.name]))
        return found

    async def prepare(self, claim: ClaimReference, *devices: str, **more: str) -> Any:
        share = f"{claim.uid[:8]}-0000-4000-8000-{len(self.claims):012}"
        made = claim_of(claim.uid, *devices, shareID=share, **more)
        self.claims[claim.name] = made
        return (await self.service.prepare((claim,)))[claim.uid]

    async def unprepare(self, claim: ClaimReference) -> str:
        return (await self.service.unprepare((claim,)))[claim.uid]

    def env(self, claim: ClaimReference) -> str:
        return next(each for each in map(Path.read_text, self.files) if claim.uid in each)

    @property
    def files(self) -> list[Path]:
        return sorted(self.cdi_dir.iterdir())


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


FIRST_WORK = ["allocate card0", "start card0", "prepare card0 c1"]


async def test_the_work_is_done_at_the_first_share_and_undone_at_the_last(rig: Rig) -> None:
    """With the author's own ID; every claim gives its container the same."""
    for claim in (ONE, TWO):
        assert isinstance(await rig.prepare(claim, "card0"), tuple)
    assert rig.cards.calls == FIRST_WORK
    assert '"CARDS=card0"' in rig.env(TWO)
    assert '"FIRST=c1"' in rig.env(TWO)
    assert not await rig.unprepare(ONE)
    assert rig.cards.calls == FIRST_WORK
    assert not await rig.unprepare(TWO)
    assert rig.cards.calls == [*FIRST_WORK, "unprepare card0 c1"]
    assert not rig.files


async def test_claims_that_come_at_once_share_one_work(rig: Rig) -> None:
    """Also when all leave at once."""
    await asyncio.gather(*(rig.prepare(each, "card0") for each in (ONE, TWO, THREE)))
    assert [each.partition(" ")[0] for each in rig.cards.calls] == ["allocate", "start", "prepare"]
    await asyncio.gather(*map(rig.unprepare, (ONE, TWO, THREE)))
    assert [each.split()[0] for each in rig.cards.calls[3:]] == ["unprepare"]


async def test_the_next_process_knows_who_uses_the_work(rig: Rig) -> None:
    """It takes over from any claim; after a reboot everything is done again."""
    await rig.prepare(ONE, "card0")
    rig.start()
    await rig.prepare(TWO, "card0")
    await rig.unprepare(ONE)
    rig.start()
    await rig.prepare(THREE, "card0")
    assert rig.cards.calls == FIRST_WORK
    await rig.unprepare(TWO)
    rig.start("boot-2")
    await rig.service.prepare((THREE,))
    assert rig.cards.calls == [*FIRST_WORK, *(each.replace("c1", "c3") for each in FIRST_WORK)]
    await rig.unprepare(THREE)
    assert rig.cards.calls[-1] == "unprepare card0 c3"


async def test_what_another_instance_does_with_a_claim_counts(rig: Rig) -> None:
    """Each instance of the driver remembers no work of a claim that it has finished or undone."""
    older = rig.service
    await rig.prepare(ONE, "card0")
    rig.start()
    newer = rig.service
    await rig.unprepare(ONE)
    del rig.cards.calls[:]
    rig.service = older
    await rig.prepare(TWO, "card0")
    await rig.unprepare(TWO)
    work = [each.replace("c1", "c2") for each in FIRST_WORK]
    assert rig.cards.calls == [*work, "unprepare card0 c2"]
    del rig.cards.calls[:]
    rig.service = newer
    await rig.prepare(TWO, "card0")
    rig.service = older
    await rig.prepare(THREE, "card0")
    assert rig.cards.calls == work


async def test_a_claim_of_several_devices_gets_an_answer_about_its_devices(rig: Rig) -> None:
    """The plugin is asked for the set; what is prepared already is not prepared again."""
    await rig.prepare(ONE, "card0")
    del rig.cards.calls[:]
    await rig.prepare(TWO, "card0", "card1")
    assert rig.cards.calls == ["allocate card0,card1", "start card1", "prepare card1 c2"]
    assert '"CARDS=card0,card1"' in rig.env(TWO)
    await rig.unprepare(ONE)
    await rig.unprepare(TWO)
    assert rig.cards.calls[3:] == ["unprepare card1 c2", "unprepare card0 c1"]


async def test_an_answer_about_several_devices_is_for_no_claim_of_one(rig: Rig) -> None:
    """Which comes later, and would get the other device too."""
    await rig.prepare(ONE, "card0", "card1")
    del rig.cards.calls[:]
    await rig.prepare(TWO, "card0")
    assert rig.cards.calls == ["allocate card0"]
    assert '"CARDS=card0"' in rig.env(TWO)


async def test_a_claim_that_fails_leaves_the_work_to_the_others(rig: Rig) -> None:
    """The first claim stays; the second gave nothing."""
    await rig.prepare(ONE, "card0")
    rig.cards.fails.add("prepare")
    assert "cannot prepare" in await rig.prepare(TWO, "card0", "card1")
    assert rig.cards.calls[-1] == "unprepare card1 c2"
    rig.cards.fails.clear()
    await rig.unprepare(ONE)
    assert rig.cards.calls[-1] == "unprepare card0 c1"


def test_a_device_has_one_configuration() -> None:
    """A claim with another configuration is refused while a claim has a share."""
    group = DeviceGroup("gpu", "card", ("card0",), {"power": 1}, "card0", first=ONE)
    check_configuration(TWO, group, group)
    with pytest.raises(ClaimRefused, match="another configuration for the claim"):
        check_configuration(TWO, group._replace(configuration={"power": 2}), group)


async def test_a_whole_device_and_a_share_exclude_each_other(rig: Rig) -> None:
    """Whichever comes first: the other claim waits for it, and then is refused."""
    await rig.prepare(ONE, "card0")
    rig.claims["c2"] = claim_of(TWO.uid, "card0")
    waiting = asyncio.create_task(rig.service.prepare((TWO,)), name="whole")
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    await rig.unprepare(ONE)
    assert isinstance((await waiting)[TWO.uid], tuple)
    waiting = asyncio.create_task(rig.prepare(THREE, "card0"), name="share")
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    await rig.unprepare(TWO)
    assert isinstance(await waiting, tuple)


def test_a_claim_counts_until_its_work_is_undone() -> None:
    """The checkpoint still has a claim whose work was undone; the next claim begins anew."""
    shared = SharedDevices()
    group = DeviceGroup("r", "card", ("card0",), label="card0", first=ONE)
    shared.note_done("one", [group])
    assert shared.work_of_others("two", {}) == {"card0": group}
    assert groups_to_undo([group], shared.work_of_others("two", {})) == ()
    shared.note_undone("one")
    assert shared.work_of_others("two", {"one": (group,)}) == {}
    shared.forget("one")
    assert shared.work_of_others("two", {"one": (group,)}) == {"card0": group}
    assert groups_to_undo([group], {}) == (group,)


# ---------------------------------------------------------------- with scheduler and kubelet


def test_replicas_are_one_device_with_shares(bench: Bench) -> None:
    """A share does not consume the other capacities: they would allow one claim only."""
    bench.start(kd.Shared(Cards(1), replicas=3), domain=DRIVER, mode="dra")
    bench.wait_published(DRIVER, devices=1)
    (device,) = bench.published(DRIVER)
    assert device["name"] == "card0"
    assert device["attributes"]["id"] == {"string": "card0"}
    assert device["allowMultipleAllocations"] is True
    assert device["capacity"] == {
        "shares": {"value": "3", "requestPolicy": {"default": "1", "validValues": ["1"]}},
        "memory": {"value": "16Gi", "requestPolicy": {"default": "0"}},
    }


def test_a_request_gets_one_share_of_a_device(bench: Bench) -> None:
    """Since Kubernetes 1.36; two requests may get two shares of one device."""
    bench.start(kd.Shared(Cards(2), replicas=2), domain=DRIVER, mode="dra")
    claimed = bench.claim("pod-1", {CARD: 2})
    assert claimed.devices == ("card0", "card1")
    assert claimed.options.env["CARDS"] == "card0,card1"
    with pytest.raises(NotInTime, match="3 wanted, 2 free"):
        bench.claim("pod-2", {CARD: 3}, timeout=0)
    exactly = {"deviceClassName": f"card.{DRIVER}"}
    both = bench.claim("pod-3", [{"name": name, "exactly": exactly} for name in ("a", "b")])
    assert both.devices == ("card0", "card1")
    with pytest.raises(NotInTime, match="0 free"):
        bench.claim("pod-4", {CARD: 1}, timeout=0)
    bench.release("pod-1")
    bench.release("pod-3")
    assert bench.claim("pod-4", {CARD: 2}).devices == ("card0", "card1")


def test_two_requests_may_get_two_shares_of_one_device(bench: Bench) -> None:
    """The container gets the device once."""
    bench.start(kd.Shared(Cards(1), replicas=2), domain=DRIVER, mode="dra")
    bench.claim("first", {CARD: 1})  # this makes the DeviceClass
    bench.release("first")
    exactly = {"deviceClassName": f"card.{DRIVER}"}
    both = bench.claim("pod", [{"name": name, "exactly": exactly} for name in ("a", "b")])
    assert both.devices == ("card0", "card0")
    assert both.options.env["CARDS"] == "card0"


@pytest.mark.parametrize("seed", [1, 2])
def test_500_random_claims_never_exceed_the_capacity(seed: int) -> None:
    """A claim gets shares exactly while enough are free; a whole device is never shared."""
    random = Random(seed)
    tree = kd.Shared(Cards(3), replicas=4).change(Cards(3).list_devices(), 0.0)
    tree.add("card", kd.Device("whole"))
    pool = {"name": "node1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "node1", "pool": pool}
    devices = [*offer_of(tree, DRIVER).objects]
    slices = [{"metadata": {"name": "s"}, "spec": {**spec, "devices": devices}}]
    assert not slice_problems(slices[0])
    held: list[dict[str, Any]] = []
    for number in range(500):
        wanted = random.choice([1, 1, 2, 3])
        exactly = {"deviceClassName": "any", "count": wanted}
        claim: dict[str, Any] = {
            "metadata": {"name": f"{number}"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        }
        held_now = Counter(each["device"] for claim in held for each in results_of_claim(claim))
        free = sum(
            held_now[name] < (1 if name == "whole" else 4)
            for name in ("card0", "card1", "card2", "whole")
        )
        try:
            allocation = allocate(claim, node=NODE, slices=slices, claims=held, classes={"any": {}})
        except NotAllocatable:
            assert free < wanted
        else:
            assert free >= wanted
            held.append({**claim, "status": {"allocation": allocation}})
        results = [each for claim in held for each in results_of_claim(claim)]
        names = Counter(each["device"] for each in results)
        assert all(count <= (1 if name == "whole" else 4) for name, count in names.items())
        shares = [each["shareID"] for each in results if each["device"] != "whole"]
        assert len(shares) == len(set(shares))
        while held and random.random() < 0.45:
            held.remove(random.choice(held))


def results_of_claim(claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = claim["status"]["allocation"]["devices"]["results"]
    return found


def test_the_driver_prepares_a_device_exactly_while_a_claim_has_a_share(bench: Bench) -> None:
    """With random claims that come and go."""
    random, cards = Random(3), Cards(3)
    bench.start(kd.Shared(cards, replicas=4), domain=DRIVER, mode="dra")
    bench.wait_published(DRIVER, devices=3)
    held: dict[str, tuple[str, ...]] = {}
    for number in range(30):
        with contextlib.suppress(NotInTime):
            wanted = {CARD: random.choice([1, 1, 1, 2, 3])}
            held[f"pod-{number}"] = bench.claim(f"pod-{number}", wanted, timeout=0.01).devices
        while held and random.random() < 0.5:
            pod = random.choice([*held])
            bench.release(pod)
            del held[pod]
        assert prepared(cards.calls) == {each for devices in held.values() for each in devices}
    for pod in held:
        bench.release(pod)
    assert prepared(cards.calls) == set()


def prepared(calls: list[str]) -> set[str]:
    """The devices that are prepared; none is prepared twice or undone twice."""
    found: set[str] = set()
    for call in calls:
        what, device, *_ = call.split()
        if what == "prepare":
            assert device not in found
            found.add(device)
        elif what == "unprepare":
            found.remove(device)
    return found
