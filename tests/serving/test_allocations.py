"""A device stays in DRA while a claim has it, prepared or not; other devices do not wait."""

import pytest

from kubedevices.dra import allocations as allocations_module
from kubedevices.serving import switch as switch_module
from kubedevices.testing.api_server import HANG_UP
from tests.dra.cluster import CLAIMS, claim_of
from tests.serving.node_rig import BOTH, NodeRig, uid_of
from tests.serving.test_switch import offered
from tests.waiting import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocations_module, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(allocations_module, "_LAST_PAUSE", 0.05)


async def test_a_device_of_a_claim_that_is_not_prepared_yet_stays_in_dra(rig: NodeRig) -> None:
    """Its pod starts after the change of the mode; the device leaves DRA with the claim."""
    async with rig.settled("dra"):
        rig.give("1", "w-0")
        rig.choose("device-plugin")
        await until(lambda: offered(rig) == {"w-1"})
        asked = len(rig.api.requests)
        await until(lambda: len(rig.api.requests) > asked + 3)
        assert offered(rig) == {"w-1"}
        assert not (await rig.prepare("1"))["1"]
        assert not (await rig.unprepare("1"))["1"]
        asked = len(rig.api.requests)
        await until(lambda: len(rig.api.requests) > asked + 3)
        assert offered(rig) == {"w-1"}, "a second pod may share the claim"
        rig.api.take("1")
        await until(lambda: offered(rig) == BOTH)
    assert rig.api.calls(CLAIMS) <= 3, "all claims are not listed at each look"


async def test_the_claims_are_listed_again_after_the_next_change(rig: NodeRig) -> None:
    """A list from before does not know the claims of today."""
    async with rig.settled("dra"):
        rig.choose("device-plugin")
        await until(lambda: offered(rig) == BOTH)
        rig.choose("dra")
        await until(lambda: rig.published == BOTH)
        rig.give("1", "w-0")
        rig.choose("device-plugin")
        await until(lambda: offered(rig) == {"w-1"})


@pytest.mark.parametrize("end", ["deallocated", "replaced", "other device"])
async def test_a_claim_that_no_longer_has_the_device_lets_it_go(rig: NodeRig, end: str) -> None:
    """The scheduler decided again, or somebody created another claim of the name."""
    async with rig.settled("dra"):
        rig.give("1", "w-0")
        rig.choose("device-plugin")
        await until(lambda: offered(rig) == {"w-1"})
        ends = {
            "deallocated": {"metadata": {"uid": uid_of("1")}},
            "replaced": claim_of("another", "w-9"),
            "other device": claim_of(uid_of("1"), "w-0", driver="other.com"),
        }
        rig.api.give("1", ends[end])
        await until(lambda: offered(rig) == BOTH)


@pytest.mark.parametrize("look", [0.02, 0.5])
async def test_the_next_process_keeps_the_device_too(rig: NodeRig, look: float) -> None:
    """From the file, also if it first decides when there are no slices any more."""
    async with rig.settled("dra"):
        rig.give("1", "w-0")
        rig.choose("device-plugin")
        await until(lambda: offered(rig) == {"w-1"} and not rig.api.slices)
    timing = rig.options["handover_timing"]._replace(look=look)
    async with rig.serving(handover_timing=timing):
        await until(lambda: offered(rig) == {"w-1"})
        asked = len(rig.api.requests)
        await until(lambda: len(rig.api.requests) > asked + 3)
        assert offered(rig) == {"w-1"}
        rig.api.take()
        await until(lambda: offered(rig) == BOTH)


async def test_without_a_list_of_the_claims_the_devices_stay_in_dra(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the missing right, once."""
    async with rig.settled("dra"):
        rig.api.refuse("list", "resourceclaims", 403, "no")
        rig.choose("device-plugin")
        await until(lambda: rig.api.calls(CLAIMS) > 3)
        assert not offered(rig)
        rig.api.fault = lambda _request: None
        await until(lambda: offered(rig) == BOTH)
    lines = [each.message for each in caplog.records if "devices stay in DRA" in each.message]
    assert len(lines) == 1
    assert "resources: [resourceclaims], verbs: [list]" in lines[0]


@pytest.mark.parametrize("boot", ["this-boot", "the-next-boot"])
async def test_devices_that_were_never_published_wait_for_nobody(
    rig: NodeRig, monkeypatch: pytest.MonkeyPatch, boot: str
) -> None:
    """After a restart of the process or the host, without the API server and the kubelet."""
    options = {"mode_file": None, "dra_devices": ["widget/w-0"]}
    async with rig.serving("split", **options):
        await until(lambda: rig.published == {"w-0"} and offered(rig) == {"w-1"})
    rig.api.fault = lambda _request: HANG_UP
    rig.pods.is_broken = True
    monkeypatch.setattr(switch_module, "read_boot_id", lambda: boot)
    async with rig.serving("split", **options):
        await until(lambda: offered(rig) == {"w-1"})
    async with rig.serving("split", **options | {"dra_devices": ["widget/w-1"]}) as switch:
        await until(lambda: switch.driver.knows_claims and switch.has_scanned)
        asked = rig.steps
        await until(lambda: rig.has_made(20, since=asked))
        assert not offered(rig), "a slice may still have w-0"


async def test_a_state_file_of_an_older_version_means_any_device(rig: NodeRig) -> None:
    """The device plugin waits for the API server then."""
    data = rig.directory / "k" / "plugins" / "example.com"
    data.mkdir(parents=True)
    (data / "has-slices").write_bytes(b"")
    rig.api.fault = lambda _request: HANG_UP
    async with rig.serving("device-plugin"):
        await until(lambda: len(rig.api.requests) > 2)
        assert not offered(rig)
        rig.api.fault = lambda _request: None
        await until(lambda: offered(rig) == BOTH)
