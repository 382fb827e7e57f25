"""The DRAPlugin service: each claim has its answer, and no failure affects another claim."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.dra import holder_wait
from kubedevices.dra import service as service_module
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.prepared_file import PreparedClaim, PreparedClaims
from kubedevices.dra.slices import offer_of
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.kubelet_api.dra import HealthStatus
from kubedevices.plugin.timing import HookTimeouts
from kubedevices.values.allocation import ClaimReference
from tests.dra.cluster import claim_of, claim_service
from tests.reachable import reachable
from tests.waiting import until

DRIVER = "example.com"


def reference(number: int) -> ClaimReference:
    return ClaimReference("default", f"0000000{number}-0000-4000-8000-000000000000", f"c{number}")


ONE, TWO, THREE = map(reference, (1, 2, 3))


class Rig:
    """A service whose claims are in `claims`, by name; a text instead of a claim is an error of the
    server."""

    def __init__(self, directory: Path, author: object = None, seconds: float = 10) -> None:
        self.claims: dict[str, Any] = {
            each.name: claim_of(each.uid, f"gpu-{i}") for i, each in enumerate((ONE, TWO, THREE))
        }
        self.cdi_dir = directory / "cdi"
        file = directory / "prepared.json"
        preparation = Preparation(DRIVER, "node1", file, self.cdi_dir, "boot-1")
        preparation.start()
        timeouts = HookTimeouts(seconds, seconds, seconds)
        self.service = claim_service(self, preparation, author or self, timeouts=timeouts)
        self.offer()

    def offer(self, health: kd.Health = kd.Health.HEALTHY, reason: str = "") -> None:
        devices = [
            kd.Device(f"gpu-{i}", env={"GPU": f"{i}"}, health=health, reason=reason)
            for i in range(3)
        ]
        self.service.update(offer_of(kd.DeviceTree({"gpu": devices}), DRIVER))

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        found = self.claims.get(claim.name)
        if isinstance(found, Exception):
            raise found
        if found is None:
            raise ApiRefused("get resourceclaims", 404, "NotFound", "not found")
        answer: dict[str, Any] = json.loads(json.dumps(found))
        return answer

    @property
    def texts(self) -> list[str]:
        return [each.read_text() for each in sorted(self.cdi_dir.iterdir())]


async def test_a_failed_claim_does_not_affect_the_other_claims(tmp_path: Path) -> None:
    """Each UID has its own answer: gone, replaced, without allocation, unknown device."""
    rig = Rig(tmp_path)
    rig.claims |= {"c2": claim_of("another", "gpu-1"), "c3": claim_of(THREE.uid, "gpu-9")}
    gone, unallocated = reference(4), reference(5)
    rig.claims["c5"] = {"metadata": {"uid": unallocated.uid}}
    answers = await rig.service.prepare((ONE, TWO, THREE, gone, unallocated))
    assert list(answers) == [each.uid for each in (ONE, TWO, THREE, gone, unallocated)]
    assert isinstance(answers[ONE.uid], tuple)
    words = {TWO: "was replaced", THREE: "no device", gone: "not found", unallocated: "nothing is"}
    for claim, word in words.items():
        assert word in answers[claim.uid]
        assert str(claim) in answers[claim.uid]


async def test_unprepare_works_without_the_claim_object(tmp_path: Path) -> None:
    """The claim may be deleted, or the driver may never have known it."""
    rig = Rig(tmp_path)
    await rig.service.prepare((ONE,))
    rig.claims.clear()
    assert await rig.service.unprepare((ONE, TWO)) == {ONE.uid: "", TWO.uid: ""}
    assert not rig.texts


async def test_concurrent_calls_get_the_same_answer(tmp_path: Path) -> None:
    """For one claim and for several, in one call and in many."""
    rig = Rig(tmp_path)
    answers = await asyncio.gather(*(rig.service.prepare((ONE, TWO, THREE)) for _ in range(20)))
    assert all(each == answers[0] for each in answers)
    assert all(isinstance(each, tuple) for each in answers[0].values())
    assert len(rig.texts) == 3


@pytest.mark.parametrize(
    "error", [ApiUnreachable("here", "gone"), ApiRefused("get", 503, "", "busy")], ids=str
)
async def test_known_claims_are_prepared_without_the_api_server(
    tmp_path: Path, error: Exception
) -> None:
    """Unknown claims have to wait."""
    rig = Rig(tmp_path)
    before = await rig.service.prepare((ONE,))
    rig.claims = {"c1": error, "c2": error}
    assert await rig.service.prepare((ONE,)) == before
    assert str(error) in (await rig.service.prepare((TWO,)))[TWO.uid]


async def test_a_claim_that_only_its_cdi_file_shows_needs_the_api_server(tmp_path: Path) -> None:
    """Its name and what was allocated to it went with the checkpoint."""
    await Rig(tmp_path).service.prepare((ONE,))
    (tmp_path / "prepared.json").write_text("{")
    rig = Rig(tmp_path)
    rig.claims = {"c1": ApiUnreachable("here", "gone")}
    assert isinstance((await rig.service.prepare((ONE,)))[ONE.uid], str)


async def test_a_claim_that_has_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    """A driver lives for months; claims that fail, and claims that nobody knows, count too."""
    rig, kept = Rig(tmp_path), []
    for number in range(10):
        claim, unknown = reference(number), reference(number + 10)
        rig.claims = {claim.name: claim_of(claim.uid, "gpu-0")}
        for each in (claim, claim, unknown):
            await rig.service.prepare((each,))
        await rig.service.unprepare((claim, unknown))
        rig.claims.clear()
        if number in (2, 9):
            kept.append(reachable(rig.service))
    assert kept[0] == kept[1]


class Author(kd.Allocator, kd.ContainerPreStarter):
    """Returns `answer`, or calls it if it is a function; records its calls."""

    def __init__(self, answer: Any = kd.USE_DEFAULT) -> None:
        self.answer, self.calls = answer, [""]

    def allocate(self, request: kd.AllocateRequest) -> Any:
        self.calls.append("allocate " + " ".join(request.containers[0].device_ids))
        return self.answer() if isinstance(self.answer, Callable) else self.answer  # type: ignore[arg-type]

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        self.calls.append("start " + " ".join(request.device_ids))


async def test_allocate_is_called_once_for_each_request(tmp_path: Path) -> None:
    """With all devices of the request; not again for a claim that is ready."""
    author = Author()
    rig = Rig(tmp_path, author)
    rig.claims["c1"] = claim_of(ONE.uid, "gpu-0", "gpu-1")
    for _ in range(2):
        await rig.service.prepare((ONE,))
    assert author.calls[1:] == ["allocate gpu-0 gpu-1", "start gpu-0 gpu-1"]


async def test_an_allocate_answer_becomes_cdi_edits(tmp_path: Path) -> None:
    """The answer is for all devices of the request together."""
    container = kd.ContainerAllocateResponse(
        env={"ALL": "both"}, mounts=[kd.Mount("/a", "/b")], cdi_devices=["vendor.com/gpu=all"]
    )
    rig = Rig(tmp_path, Author(kd.AllocateResponse([container])))
    rig.claims["c1"] = claim_of(ONE.uid, "gpu-0", "gpu-1")
    answer = (await rig.service.prepare((ONE,)))[ONE.uid]
    assert isinstance(answer, tuple), answer
    first, second = answer
    assert first.cdi_ids[1:] == ("vendor.com/gpu=all",)
    assert second.cdi_ids == ()
    (text,) = rig.texts
    assert '"ALL=both"' in text
    assert '"/b"' in text
    assert "GPU=" not in text


async def test_an_exception_of_a_hook_is_reported_to_the_pod(tmp_path: Path) -> None:
    """With the author's text and the line of code; no file of the claim is left."""

    def fail() -> None:
        raise ValueError("the card is on fire")

    rig = Rig(tmp_path, Author(fail))
    answer = (await rig.service.prepare((ONE,)))[ONE.uid]
    assert "ValueError: the card is on fire (test_service.py:" in answer
    rig.claims["c2"] = claim_of(TWO.uid, "gpu-0")
    assert "on fire" in (await rig.service.prepare((TWO,)))[TWO.uid], "the device is free again"


async def test_a_hook_that_hangs_does_not_delay_the_answer(tmp_path: Path) -> None:
    """The kubelet gets an answer before its deadline, and the next claim is prepared."""
    hangs = threading.Event()
    author = Author(hangs.wait)
    rig = Rig(tmp_path, author, seconds=0.05)
    try:
        answer = (await rig.service.prepare((ONE,)))[ONE.uid]
        assert "did not answer within 0.05 s" in answer
        author.answer = kd.USE_DEFAULT
        rig.service._claim_hooks.timeouts = HookTimeouts()
        assert isinstance((await rig.service.prepare((TWO,)))[TWO.uid], tuple)
    finally:
        hangs.set()


async def test_a_cancelled_call_finishes_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is prepared, and ready when the kubelet calls again."""
    release = threading.Event()
    author = Author(lambda: release.wait(60) and kd.USE_DEFAULT)
    rig = Rig(tmp_path, author)
    monkeypatch.setattr(service_module, "ANSWER_LIMIT", 0.05)
    rig.service._claim_hooks.timeouts = HookTimeouts(allocate=60)
    monkeypatch.setattr(
        rig.service._claim_hooks, "_in_time", lambda hook, request, *_: hook(request, None)
    )
    assert "the work goes on" in (await rig.service.prepare((ONE,)))[ONE.uid]
    call = asyncio.create_task(rig.service.prepare((ONE,)))
    await asyncio.sleep(0)
    call.cancel()
    release.set()
    await rig.service.work.settle(60)
    monkeypatch.setattr(service_module, "ANSWER_LIMIT", 60)
    assert isinstance((await rig.service.prepare((ONE,)))[ONE.uid], tuple)
    assert author.calls.count("allocate gpu-0") == 1


async def test_claims_that_come_together_share_questions_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 claims in calls of their own all get an answer, with a few writes instead of 400."""
    rig = Rig(tmp_path)
    claims = [
        ClaimReference("default", f"{n:08}-0000-4000-8000-000000000000", f"c{n}")
        for n in range(200)
    ]
    rig.claims = {each.name: claim_of(each.uid, f"gpu-{n}") for n, each in enumerate(claims)}
    tree = kd.DeviceTree({"gpu": [kd.Device(f"gpu-{n}", env={"N": "1"}) for n in range(200)]})
    rig.service.update(offer_of(tree, DRIVER))
    writes: list[int] = []
    write = PreparedClaims._write

    def counted(self: PreparedClaims, made: dict[str, PreparedClaim]) -> None:
        writes.append(len(made))
        write(self, made)

    monkeypatch.setattr(PreparedClaims, "_write", counted)
    answers = await asyncio.gather(*(rig.service.prepare((each,)) for each in claims))
    assert all(isinstance(each, tuple) for answer in answers for each in answer.values())
    assert len(rig.texts) == 200
    assert len(writes) <= 20
    writes.clear()
    await asyncio.gather(*(rig.service.unprepare((each,)) for each in claims))
    assert not rig.texts
    assert len(writes) <= 10


async def test_an_answer_that_is_late_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each refusal of a claim has a line in the log."""
    release = threading.Event()
    rig = Rig(tmp_path, Author(lambda: release.wait(60) and kd.USE_DEFAULT))
    monkeypatch.setattr(service_module, "ANSWER_LIMIT", 0.05)
    try:
        answer = (await rig.service.prepare((ONE,)))[ONE.uid]
        assert "not ready within" in str(answer)
        assert str(answer) in caplog.text
    finally:
        release.set()
        await rig.service.work.settle(60)


# ------------------------------------------------------------ a device that another claim has


@pytest.fixture
async def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """Return a service in which ONE has gpu-0 and the scheduler has given gpu-0 to TWO."""
    monkeypatch.setattr(holder_wait, "HOLDER_LIMIT", 3600)
    monkeypatch.setattr(service_module, "ANSWER_LIMIT", 60)
    rig = Rig(tmp_path)
    await rig.service.prepare((ONE,))
    rig.claims["c2"] = claim_of(TWO.uid, "gpu-0")
    yield rig
    rig.service.begin_end()
    await rig.service.work.settle(60)


async def waiting_for_holder(rig: Rig, caplog: pytest.LogCaptureFixture) -> "asyncio.Task[Any]":
    """Return the call that prepares TWO, after it has begun to wait for ONE."""
    caplog.set_level(logging.INFO)
    call = asyncio.create_task(rig.service.prepare((TWO,)))
    await until(lambda: "waiting for its end" in caplog.text)
    return call


async def test_a_claim_gets_its_device_when_the_holder_is_unprepared(
    waits: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """After a forced deletion, Prepare comes before Unprepare. Other claims do not wait."""
    call = await waiting_for_holder(waits, caplog)
    assert isinstance((await waits.service.prepare((THREE,)))[THREE.uid], tuple)
    assert not call.done()
    assert await waits.service.unprepare((ONE,)) == {ONE.uid: ""}
    assert isinstance((await call)[TWO.uid], tuple)


async def test_a_claim_waits_for_its_holder_a_limited_time(
    waits: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet gets the name of the holder, and the log has it too."""
    monkeypatch.setattr(holder_wait, "HOLDER_LIMIT", 0.05)
    answer = (await waits.service.prepare((TWO,)))[TWO.uid]
    assert f"the claim {ONE} still holds device gpu-0" in answer
    assert [each for each in caplog.records if each.getMessage() == answer]


async def test_a_waiting_claim_reads_its_allocation_again(
    waits: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The scheduler may have decided again during the wait."""
    call = await waiting_for_holder(waits, caplog)
    waits.claims["c2"] = claim_of(TWO.uid, "gpu-2")
    await waits.service.unprepare((ONE,))
    (device,) = (await call)[TWO.uid]
    assert device.device == "gpu-2"


async def test_a_cancelled_call_does_not_wait_any_longer(
    waits: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would unprepare the claim of a pod that is gone."""
    call = await waiting_for_holder(waits, caplog)
    call.cancel()
    await asyncio.wait({call})
    await waits.service.unprepare((ONE,))
    await waits.service.work.settle(60)
    assert not waits.service._preparation.claims


async def test_unprepare_ends_the_wait_of_the_same_claim(
    waits: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod of the waiting claim was deleted."""
    call = await waiting_for_holder(waits, caplog)
    await waits.service.unprepare((TWO,))
    assert "still holds device" in (await call)[TWO.uid]
    await waits.service.unprepare((ONE,))
    assert not waits.service._preparation.claims


async def test_the_end_of_the_driver_ends_the_wait(
    waits: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet has its answer at once, and asks the next process."""
    call = await waiting_for_holder(waits, caplog)
    waits.service.begin_end()
    assert "still holds device" in (await call)[TWO.uid]


class BusyCard(kd.ClaimPreparer):
    """Fails to undo so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def prepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        """Do nothing."""

    def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        self.times -= 1
        if self.times >= 0:
            raise OSError("the card is busy")


async def test_a_claim_waits_while_the_unprepare_of_the_holder_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets the device when the kubelet's next call succeeds."""
    rig = Rig(tmp_path, BusyCard(1))
    await rig.service.prepare((ONE,))
    rig.claims["c2"] = claim_of(TWO.uid, "gpu-0")
    call = await waiting_for_holder(rig, caplog)
    assert "the card is busy" in (await rig.service.unprepare((ONE,)))[ONE.uid]
    assert not call.done()
    assert await rig.service.unprepare((ONE,)) == {ONE.uid: ""}
    assert isinstance((await call)[TWO.uid], tuple)


async def test_an_unprepare_by_another_instance_ends_the_wait(
    waits: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet may call either instance of a driver during an update."""
    call = await waiting_for_holder(waits, caplog)
    await Rig(tmp_path).service.unprepare((ONE,))
    await waits.service.ensure_files()  # the driver calls it when the file has changed
    assert isinstance((await call)[TWO.uid], tuple)


async def test_a_health_change_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time with all devices; the end of the driver ends the stream."""
    monkeypatch.setattr(service_module, "HEALTH_INTERVAL", 3600)
    rig = Rig(tmp_path)
    lists = rig.service.watch_health()
    first = await anext(lists)
    assert [(each.device, each.health) for each in first] == [
        (f"gpu-{i}", HealthStatus.HEALTHY) for i in range(3)
    ]
    following = asyncio.ensure_future(anext(lists))
    await asyncio.sleep(0)
    rig.offer(kd.Health.UNHEALTHY)
    await until(following.done)
    assert {each.health for each in following.result()} == {HealthStatus.UNHEALTHY}
    following = asyncio.ensure_future(anext(lists))
    await asyncio.sleep(0)
    rig.service.begin_end()
    await until(following.done)
    with pytest.raises(StopAsyncIteration):
        following.result()


async def test_the_reason_for_bad_health_is_the_message(tmp_path: Path) -> None:
    """A changed reason alone is reported at once; the message has at most 1,024 characters."""
    rig = Rig(tmp_path)
    lists = rig.service.watch_health()
    assert {each.message for each in await anext(lists)} == {""}
    for reason, message in (
        ("fan", "fan"),
        ("hot", "hot"),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1021 + "..."),
    ):
        following = asyncio.ensure_future(anext(lists))
        await asyncio.sleep(0)
        rig.offer(kd.Health.UNHEALTHY, reason)
        await until(following.done)
        assert {each.message for each in following.result()} == {message}


async def test_health_is_repeated_without_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A health older than 30 s counts as unknown."""
    monkeypatch.setattr(service_module, "HEALTH_INTERVAL", 0.01)
    lists = Rig(tmp_path).service.watch_health()
    assert [each.device for each in await anext(lists)] == [
        each.device for each in await anext(lists)
    ]
