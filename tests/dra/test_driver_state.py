"""What a driver keeps for its next process, and what it does not do beside other processes."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

import kubedevices as kd
from kubedevices.dra.abandoned_search import SearchTiming
from kubedevices.dra.driver import DraDriver
from kubedevices.dra.names import DeviceKey
from kubedevices.errors import DriverTaken, UsageError
from kubedevices.values.allocation import ClaimReference
from tests.dra.cluster import OneNode, claim_of
from tests.dra.test_driver import DRIVER, UID, Rig, Widgets
from tests.waiting import until


@pytest.fixture
def rig(short_dir: Path, server: OneNode) -> Rig:
    return Rig(short_dir, server)


class Gadgets(kd.PolledScanner):
    """Offers another device type than `Widgets`."""

    interval = 3600

    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree({"gadget": [kd.Device("g-0")]})


class ChosenGuard:
    """Says what a test chooses; no container has a claim."""

    def __init__(self) -> None:
        self.publishes = True
        self.keys: Mapping[DeviceKey, str] | None = {}
        self.changed: Callable[[], None] = lambda: None

    def withheld(self, tree: kd.DeviceTree) -> Mapping[DeviceKey, str] | None:
        return self.keys

    async def refusal(self, keys: Collection[DeviceKey]) -> str:
        return ""

    async def claims_of_pods(self) -> Collection[tuple[str, str]]:
        return ()

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        self.changed = changed
        await asyncio.Event().wait()
        raise AssertionError


@contextlib.asynccontextmanager
async def guarded(rig: Rig, guard: ChosenGuard, **more: Any) -> AsyncIterator[DraDriver]:
    """Run a driver with this guard."""
    driver = DraDriver(rig.scanner, domain=DRIVER, guard=guard, **rig.options, **more)
    running = asyncio.create_task(driver.run(), name="driver")
    await until(lambda: driver.has_started)
    try:
        yield driver
    finally:
        driver.stop()
        await running


async def test_another_deployment_is_refused_for_as_long_as_the_driver_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never has a socket by then: a kubelet would call it for the claims of the first driver."""
    monkeypatch.setattr(socket, "gethostname", lambda: "host")
    async with rig.driver():
        with pytest.raises(DriverTaken):
            async with asyncio.timeout(10):
                await DraDriver(Gadgets(), domain=DRIVER, **rig.options).run()
        assert len([*rig.registry.iterdir()]) == 1
    async with rig.driver(Gadgets()):
        await until(lambda: rig.api.devices == [["g-0"]])


async def test_the_next_process_knows_which_devices_slices_may_have(rig: Rig) -> None:
    """Even if no API server answers it, and its scanner no longer finds one of them."""
    async with rig.driver():
        await until(lambda: rig.api.devices == [["w-0", "w-1"]])
    rig.api.answer_all(403, "no", "not for you")
    async with rig.driver(Widgets(kd.Device("w-1"))) as driver:
        kept = [name for name in ("w-0", "w-1", "w-2") if driver.reason_to_keep(name)]
        assert kept == ["w-0", "w-1"]


async def test_refusals_of_an_earlier_process_are_forgotten(rig: Rig) -> None:
    """The kubelet repeats its calls, and a claim that nobody wants any more has no problem."""
    file = rig.data_dir / "refused.json"
    rig.data_dir.mkdir(parents=True)
    file.write_text(json.dumps({"version": 1, "claims": []}))
    async with rig.driver():
        assert not file.exists()


class WrongParameters(Widgets, kd.ClaimPreparer):
    """Has parameters with a field that JSON cannot express."""

    @dataclass
    class Parameters:
        """The parameters of a claim."""

        at: complex = 0j

    parameters = Parameters

    def prepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        raise AssertionError

    def unprepare_claim(self, claimed: kd.ClaimedDevices) -> None:
        raise AssertionError


async def test_wrong_parameters_of_an_author_end_the_driver_before_its_first_socket(
    rig: Rig,
) -> None:
    """The author sees the mistake at the first start, and not at the first claim."""
    scanner = WrongParameters(kd.Device("w-0"))
    with pytest.raises(UsageError, match=r"Parameters\.at"):
        async with asyncio.timeout(10):
            await DraDriver(scanner, domain=DRIVER, **rig.options).run()
    assert not rig.registry.exists()


async def test_slices_stay_until_the_guard_knows_and_go_when_it_forbids_them(rig: Rig) -> None:
    """A guard that knows nothing yet must not take devices out, which pods may have."""
    guard = ChosenGuard()
    async with guarded(rig, guard):
        await until(lambda: rig.api.devices == [["w-0", "w-1"]])
    guard.keys = None
    async with guarded(rig, guard) as driver:
        assert driver.publisher.wanted == ()
        assert not driver.publisher.is_empty
        guard.keys = {("widget", "w-1"): "a device plugin has it"}
        guard.changed()
        await until(lambda: rig.api.devices == [["w-0"]])
        assert driver.withheld == guard.keys
        guard.publishes = False
        guard.changed()
        await until(lambda: rig.api.devices == [])
        await until(lambda: driver.publisher.is_empty)
        await driver.forget_slices()
        assert not (rig.data_dir / "has-slices").exists()


async def test_an_abandoned_claim_is_unprepared_once_the_devices_are_published(rig: Rig) -> None:
    """An API server that the kubeconfig names by mistake knows no claim: nothing is unprepared."""
    rig.api.give("one", claim_of(UID, "w-1"))
    rig.api.refuse("list", "resourceslices", 403, "Forbidden", "not for you")
    quick = SearchTiming(interval=0.02, pause=0.01, confirm=0.0)
    async with guarded(rig, ChosenGuard(), search_timing=quick) as driver:
        assert not (await rig.call("NodePrepareResources")).error
        rig.api.take("one")
        await until(lambda: driver.publisher.errors > 1)
        assert driver.claims
        rig.api.answer_all()
        await until(lambda: not driver.claims)


async def test_a_claim_that_waits_for_a_device_hurries_the_search_for_abandoned_claims(
    rig: Rig,
) -> None:
    """Its pod need not wait for the next usual look."""
    rig.api.give("one", claim_of(UID, "w-1"))
    slow = SearchTiming(interval=3600.0, pause=0.01, confirm=0.0)
    async with guarded(rig, ChosenGuard(), search_timing=slow) as driver:
        await until(lambda: driver.publisher.is_published)
        assert not (await rig.call("NodePrepareResources")).error
        rig.api.take("one")
        other = UID.replace("00000001", "00000002")
        rig.api.give("two", claim_of(other, "w-1"))
        claim = ClaimReference("default", other, "two")
        assert not isinstance((await driver.claim_log.prepare((claim,)))[other], str)
