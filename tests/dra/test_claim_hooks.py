"""The hooks of a plugin author for claims: parameters, order, failures and late calls."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.dra.device_plugin_guard import KubeletGuard
from kubedevices.dra.names import DeviceKey
from kubedevices.dra.slices import offer_of
from kubedevices.errors import ApiUnreachable, ClaimRefused
from kubedevices.plugin.timing import HookTimeouts
from kubedevices.values.allocation import ClaimReference
from kubedevices.values.cdi import ContainerEdits
from tests.dra.cluster import claim_of
from tests.dra.test_service import DRIVER, ONE, TWO, Rig
from tests.waiting import until


@dataclass(frozen=True)
class GpuConfig:
    power: int = 100
    mode: str = "shared"


class Author(kd.ClaimPreparer):
    """Records its calls; `fails` has the names of methods that raise."""

    parameters = GpuConfig

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.parameters_seen: list[Any] = []
        self.fails: set[str] = set()
        self.hangs: dict[str, threading.Event] = {}

    def prepare_claim(self, claimed: kd.ClaimedDevices) -> ContainerEdits | None:
        self.parameters_seen.append(claimed.parameters)
        self._do("prepare", claimed)
        return ContainerEdits(env=(f"POWER={claimed.parameters.power}",))

    def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        self._do("unprepare", claimed)

    def _do(self, what: str, claimed: kd.ClaimedDevices) -> None:
        self.calls.append(f"{what} {claimed.claim.name} {' '.join(claimed.device_ids)}")
        if what in self.hangs:
            assert self.hangs[what].wait(60)
        if what in self.fails:
            raise OSError(f"cannot {what}")


@pytest.fixture
def author() -> Author:
    return Author()


@pytest.fixture
def rig(author: Author, tmp_path: Path) -> Rig:
    return Rig(tmp_path, author)


def configure(rig: Rig, claim: ClaimReference, *entries: dict[str, Any]) -> None:
    config = [
        {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": each}}
        for each in entries
    ]
    rig.claims[claim.name]["status"]["allocation"]["devices"]["config"] = config


async def prepare(rig: Rig, claim: ClaimReference) -> Any:
    return (await rig.service.prepare((claim,)))[claim.uid]


async def unprepare(rig: Rig, claim: ClaimReference) -> str:
    return (await rig.service.unprepare((claim,)))[claim.uid]


def edits_of(rig: Rig) -> str:
    (text,) = rig.texts
    return text


async def test_configuration_comes_as_the_authors_dataclass(rig: Rig, author: Author) -> None:
    """A missing key has its default; the edits are added to the edits of the device."""
    configure(rig, ONE, {"power": 300})
    assert isinstance(await prepare(rig, ONE), tuple)
    assert author.parameters_seen == [GpuConfig(power=300, mode="shared")]
    assert '"POWER=300"' in edits_of(rig)
    assert '"GPU=0"' in edits_of(rig)


async def test_a_wrong_configuration_is_refused_before_any_hook(rig: Rig, author: Author) -> None:
    """The pod gets the error; the device is free, and no hook was called."""
    configure(rig, ONE, {"powr": 300})
    assert "the request gpu: powr: unknown, did you mean 'power'?" in await prepare(rig, ONE)
    assert not author.calls
    assert rig.service._preparation.known(ONE.uid) is None


async def test_configuration_for_a_type_without_parameters_is_refused(tmp_path: Path) -> None:
    """Also for a scanner without any hook for claims."""
    rig = Rig(tmp_path)
    configure(rig, ONE, {"power": 300})
    assert "takes none for gpu: remove it" in await prepare(rig, ONE)


async def test_a_claim_is_prepared_once_and_undone_once(rig: Rig, author: Author) -> None:
    """However often the kubelet calls."""
    for _ in range(3):
        await prepare(rig, ONE)
    for _ in range(3):
        assert not await unprepare(rig, ONE)
    assert author.calls == ["prepare c1 gpu-0", "unprepare c1 gpu-0"]


async def test_old_devices_of_a_claim_are_unprepared_first(rig: Rig, author: Author) -> None:
    """The claim was deallocated and allocated again without a call to the driver."""
    await prepare(rig, ONE)
    rig.claims["c1"] = claim_of(ONE.uid, "gpu-2")
    assert isinstance(await prepare(rig, ONE), tuple)
    assert author.calls == ["prepare c1 gpu-0", "unprepare c1 gpu-0", "prepare c1 gpu-2"]


async def test_the_next_process_knows_what_to_undo(
    rig: Rig, author: Author, tmp_path: Path
) -> None:
    """Also without the API server and without the device."""
    configure(rig, ONE, {"power": 300})
    await prepare(rig, ONE)
    again = Rig(tmp_path, author)
    again.claims["c1"] = ApiUnreachable("here", "gone")
    assert isinstance(await prepare(again, ONE), tuple)
    again.service.update(offer_of(kd.DeviceTree(), DRIVER))
    assert not await unprepare(again, ONE)
    assert author.calls == ["prepare c1 gpu-0", "unprepare c1 gpu-0"]


async def test_a_failed_prepare_is_undone(rig: Rig, author: Author) -> None:
    """The kubelet gets the author's text, and the next claim may have the device."""
    author.fails = {"prepare"}
    assert "OSError: cannot prepare (test_claim_hooks.py:" in await prepare(rig, ONE)
    assert author.calls == ["prepare c1 gpu-0", "unprepare c1 gpu-0"]
    assert rig.service._preparation.known(ONE.uid) is None
    author.fails = set()
    rig.claims["c2"] = rig.claims["c1"] | {"metadata": {"uid": TWO.uid}}
    assert isinstance(await prepare(rig, TWO), tuple)


async def test_a_failed_undo_keeps_the_devices_of_the_claim(
    rig: Rig, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other claim gets a device in an unknown state; the kubelet repeats its call."""
    monkeypatch.setattr("kubedevices.dra.holder_wait.HOLDER_LIMIT", 0.01)
    await prepare(rig, ONE)
    author.fails = {"unprepare"}
    assert "OSError: cannot unprepare" in await unprepare(rig, ONE)
    rig.claims["c2"] = rig.claims["c1"] | {"metadata": {"uid": TWO.uid}}
    assert "still holds device gpu-0" in await prepare(rig, TWO)
    author.fails = set()
    assert not await unprepare(rig, ONE)
    assert isinstance(await prepare(rig, TWO), tuple)


async def test_a_late_prepare_is_undone_after_it_returns(rig: Rig, author: Author) -> None:
    """The kubelet gets an answer in time, other claims go on, and no two hooks run at once."""
    author.hangs["prepare"] = threading.Event()
    rig.service._claim_hooks.timeouts = HookTimeouts(prepare=0.05)
    assert "Author.prepare_claim did not answer within 0.05 s" in await prepare(rig, ONE)
    assert author.calls == ["prepare c1 gpu-0"]
    rig.service._claim_hooks.timeouts = HookTimeouts(prepare=60)
    retry = asyncio.ensure_future(unprepare(rig, ONE))
    release = author.hangs.pop("prepare")
    assert isinstance(await prepare(rig, TWO), tuple)
    assert author.calls[1:] == ["prepare c2 gpu-1"]
    assert not retry.done()
    release.set()
    assert not await retry
    await until(lambda: not rig.service.work._tasks)
    assert set(author.calls[2:]) == {"unprepare c1 gpu-0"}
    assert rig.service._preparation.known(ONE.uid) is None
    assert isinstance(await prepare(rig, ONE), tuple)


async def late_prepare(rig: Rig, author: Author) -> threading.Event:
    """Return the event that ends the late `prepare_claim` of ONE; other calls do not hang."""
    author.hangs["prepare"] = threading.Event()
    rig.service._claim_hooks.timeouts = HookTimeouts(prepare=0.05)
    assert "did not answer within" in await prepare(rig, ONE)
    rig.service._claim_hooks.timeouts = HookTimeouts(prepare=60)
    return author.hangs.pop("prepare")


async def test_a_repeated_prepare_waits_for_the_late_call(rig: Rig, author: Author) -> None:
    """Then the claim is undone and prepared anew."""
    release = await late_prepare(rig, author)
    retry = asyncio.ensure_future(prepare(rig, ONE))
    assert isinstance(await prepare(rig, TWO), tuple)
    assert not retry.done()
    release.set()
    assert isinstance(await retry, tuple)
    assert author.calls[2:] == ["unprepare c1 gpu-0", "prepare c1 gpu-0"]


async def test_what_another_instance_has_prepared_is_not_undone_after_a_late_call(
    rig: Rig, author: Author, tmp_path: Path
) -> None:
    """The kubelet may call the other instance while the hook of this one still runs."""
    release = await late_prepare(rig, author)
    assert isinstance(await prepare(Rig(tmp_path, Author()), ONE), tuple)
    release.set()
    await until(lambda: not rig.service.work._tasks)
    assert author.calls == ["prepare c1 gpu-0"]
    assert len(rig.texts) == 1


@pytest.mark.parametrize("call", [prepare, unprepare])
async def test_a_call_that_waited_for_its_turn_begins_no_hook_beside_a_late_call(
    rig: Rig,
    author: Author,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Rig, ClaimReference], Awaitable[Any]],
) -> None:
    """The call before it has become late; also if the claim has other devices by now."""
    monkeypatch.setattr("kubedevices.dra.claim_work.LATE_CALL_LIMIT", 0.01)
    author.hangs["prepare"] = release = threading.Event()
    rig.service._claim_hooks.timeouts = HookTimeouts(prepare=0.3)
    first = asyncio.ensure_future(prepare(rig, ONE))
    await until(lambda: author.calls)
    rig.claims["c1"] = claim_of(ONE.uid, "gpu-2")
    second = asyncio.ensure_future(call(rig, ONE))
    try:
        assert "did not answer within" in await first
        assert "has still not returned" in await second
        with pytest.raises(ClaimRefused, match="has still not returned"):
            await rig.service.work.unprepare_if(ONE, lambda: call(rig, TWO))
        assert not [each for each in author.calls if "unprepare c1" in each]
    finally:
        author.hangs.clear()
        release.set()
        await until(lambda: not rig.service.work._tasks)


async def test_a_prepare_that_waits_for_its_turn_ends_with_an_unprepare(
    rig: Rig, author: Author
) -> None:
    """The pod has gone: nobody would unprepare the claim again."""
    author.hangs["prepare"] = release = threading.Event()
    first = asyncio.ensure_future(prepare(rig, ONE))
    await until(lambda: author.calls)
    second = asyncio.ensure_future(prepare(rig, ONE))
    for _ in range(9):
        await asyncio.sleep(0)
    gone = asyncio.ensure_future(unprepare(rig, ONE))
    await asyncio.sleep(0)
    release.set()
    assert isinstance(await first, tuple)
    assert "it was unprepared meanwhile" in await second
    assert not await gone
    assert not rig.texts


class TakenDevices(KubeletGuard):
    """Finds every device in the device plugin API."""

    async def refusal(self, keys: Collection[DeviceKey]) -> str:
        return f"taken: {keys}"


async def test_the_guard_is_asked_for_devices_that_are_new_to_a_claim(
    rig: Rig, author: Author, tmp_path: Path
) -> None:
    """A pod that goes on after a reboot of the node has its device in mode dra already."""
    await prepare(rig, ONE)
    rig.service._preparation._boot_id = "boot-2"
    rig.service.work._guard = TakenDevices(DRIVER, tmp_path / "none")
    assert isinstance(await prepare(rig, ONE), tuple)
    assert "taken: " in await prepare(rig, TWO)
    assert author.calls == ["prepare c1 gpu-0"] * 2


async def test_a_claim_waits_a_limited_time_for_its_late_call(
    rig: Rig, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the late hook."""
    author.hangs["prepare"] = release = threading.Event()
    rig.service._claim_hooks.timeouts = HookTimeouts(prepare=0.05)
    await prepare(rig, ONE)
    monkeypatch.setattr("kubedevices.dra.claim_work.LATE_CALL_LIMIT", 0.01)
    assert "Author.prepare_claim has still not returned" in await prepare(rig, ONE)
    author.hangs.clear()
    rig.service._claim_hooks.timeouts = HookTimeouts(prepare=60)
    assert isinstance(await prepare(rig, TWO), tuple), "another claim has its turn"
    release.set()
    await until(lambda: not rig.service.work._tasks)
    assert author.calls.count("unprepare c1 gpu-0") == 1


class Editing(kd.PostAllocator):
    """Edits the framework's answer."""

    def post_allocate(self, response: kd.AllocateResponse, request: kd.AllocateRequest) -> None:
        (container,) = response.containers
        container.env["IDS"] = ",".join(request.containers[0].device_ids)
        container.annotations["example.com/note"] = "x"


async def test_an_authors_post_allocate_edits_what_a_container_gets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the framework gives stays; the log names what CDI cannot do."""
    rig = Rig(tmp_path, Editing())
    assert isinstance(await prepare(rig, ONE), tuple)
    assert '"IDS=gpu-0"' in edits_of(rig)
    assert '"GPU=0"' in edits_of(rig)
    assert "do not get annotations such as example.com/note" in caplog.text


class Answering(kd.Allocator, kd.PostAllocator):
    """Answers itself."""

    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        return kd.AllocateResponse([kd.ContainerAllocateResponse(env={"MINE": "1"})])

    def post_allocate(self, response: kd.AllocateResponse, request: kd.AllocateRequest) -> None:
        response.containers[0].env["EDITED"] = "1"


async def test_an_authors_own_answer_is_not_edited(tmp_path: Path) -> None:
    """As in a device plugin: `post_allocate` is for the answer of the framework."""
    rig = Rig(tmp_path, Answering())
    assert isinstance(await prepare(rig, ONE), tuple)
    assert '"MINE=1"' in edits_of(rig)
    assert "EDITED" not in edits_of(rig)
