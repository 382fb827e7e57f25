"""The DRAPlugin service: each claim has its answer, and no failure affects another claim."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.allocation import ClaimReference
from kubedevices.dra import service as service_module
from kubedevices.dra.preparation import Preparation
from kubedevices.dra.service import ClaimService
from kubedevices.dra.slices import offer_of
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.kubelet_api.dra import HealthStatus
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.timing import HookTimeouts
from tests import waiting
from tests.dra.api_server import claim_of

until = partial(waiting.until, timeout=60)

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
        self.service = ClaimService(
            DRIVER,
            "node1",
            self,
            preparation,
            lambda _type: Hooks(author or self),
            dev_root=Path("/dev"),
            timeouts=HookTimeouts(seconds, seconds, seconds),
        )
        self.offer()

    def offer(self, health: kd.Health = kd.Health.HEALTHY) -> None:
        devices = [kd.Device(f"gpu-{i}", env={"GPU": f"{i}"}, health=health) for i in range(3)]
        self.service.update(offer_of(kd.DeviceTree({"gpu": devices}), DRIVER))

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        found = self.claims.get(claim.name)
        if isinstance(found, Exception):
            raise found
        if found is None:
            raise ApiRefused("get resourceclaims", 404, "NotFound", "not found")
        answer: dict[str, Any] = found
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
    await rig.service.settle(60)
    monkeypatch.setattr(service_module, "ANSWER_LIMIT", 60)
    assert isinstance((await rig.service.prepare((ONE,)))[ONE.uid], tuple)
    assert author.calls.count("allocate gpu-0") == 1


async def test_a_health_change_is_reported_at_once(tmp_path: Path) -> None:
    """Each time with all devices."""
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


async def test_health_is_repeated_without_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A health older than 30 s counts as unknown."""
    monkeypatch.setattr(service_module, "HEALTH_INTERVAL", 0.01)
    lists = Rig(tmp_path).service.watch_health()
    assert [each.device for each in await anext(lists)] == [
        each.device for each in await anext(lists)
    ]
