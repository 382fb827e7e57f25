"""`--listen` where DRA comes into it."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.dra.driver import DraDriver
from kubedevices.kubelet_api.clients import PluginRegistrationClient
from kubedevices.serving.driver_pages import pages_beside
from kubedevices.serving.modes import make_runner
from kubedevices.serving.plugin_pages import PluginPages
from kubedevices.serving.switch import ApiSwitch
from kubedevices.testing.api_server import ApiFault
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.serving.node_rig import DOMAIN, NodeRig, a_node
from tests.serving.test_plugin_pages import numbers, page
from tests.waiting import until

READY = (200, "ok\n")


class Pages:
    """Asks for pages without blocking the loop that serves them."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def ready(self) -> tuple[int, str]:
        return await asyncio.to_thread(page, self._url, "/readyz")

    async def state(self) -> Any:
        return json.loads((await asyncio.to_thread(page, self._url, "/state"))[1])

    async def numbers(self) -> dict[tuple[str, ...], float]:
        """Return the numbers of the driver; each names it, and this label is left out."""
        found = await asyncio.to_thread(numbers, self._url)
        start, kept = "kubedevices_driver_", {}
        for (name, *rest), value in found.items():
            if name.startswith(start):
                rest.remove(DOMAIN)
            kept[name.removeprefix(start), *rest] = value
        return kept


@pytest.fixture
async def rig(short_dir: Path) -> AsyncIterator[NodeRig]:
    async with a_node(short_dir) as running:
        yield running


@contextlib.asynccontextmanager
async def pages_of(
    runner: DraDriver | ApiSwitch, scanner: kd.Scanner, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Pages]:
    caplog.set_level("INFO")
    async with pages_beside(PluginPages("127.0.0.1:0", scanner), runner):
        found = re.findall(r"pages at (http://\S+):", caplog.text)
        yield Pages(found[-1])


async def register(rig: NodeRig) -> None:
    """Do what a kubelet does when it has found the driver."""
    registry = rig.directory / "k" / "plugins_registry"
    await until(lambda: any(registry.glob(f"{DOMAIN}-reg.*.sock")))
    (socket,) = registry.glob(f"{DOMAIN}-reg.*.sock")
    async with await GrpcChannel.dial(socket, timeout=60) as channel:
        client = PluginRegistrationClient(channel)
        await client.notify_registration_status(registered=True, timeout=60)


async def test_a_driver_is_ready_when_kubelet_and_api_server_know_it(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """Not before; what is missing is said. It says what it has and who has it."""
    names = ("kubelet_dir", "node_name", "kubeconfig", "cdi_dir", "guard_timing", "timing")
    options: dict[str, Any] = {key: rig.options[key] for key in names}
    rig.pods.held["w-1"] = "old"
    rig.scanner.devices.append(kd.Device("bad", capacity={"memory": "a lot"}))
    serving = kd.serve(rig.scanner, domain=DOMAIN, mode="dra", **options)
    async with serving as driver, pages_of(driver, rig.scanner, caplog) as pages:
        await until(lambda: rig.published == {"w-0"})
        await until(lambda: driver.publisher.is_published)
        assert await pages.ready() == (503, "driver example.com: no kubelet has registered it\n")
        found = await pages.numbers()
        assert found["registered",] == found["claim_seconds_count", "unprepare"] == 0
        await register(rig)
        assert await pages.ready() == READY
        rig.give("1", "w-0")
        rig.give("2", "w-1")
        await rig.prepare("1", "2")
        told = (await pages.state())["driver"]
        assert told["name"] == DOMAIN
        assert [(each["id"], each["state"], each["why"]) for each in told["devices"]] == [
            ("w-0", "published", ""),
            ("w-1", "withheld", "the pod default/old holds it as a device of a device plugin"),
            ("bad", "refused", "the capacity 'memory': 'a lot' is not a quantity such as 10Gi"),
        ]
        claims = {each["name"]: (each["prepared"], each["problem"]) for each in told["claims"]}
        assert claims["1"] == (True, "")
        assert "the pod default/old holds it" in claims["2"][1]
        found = await pages.numbers()
        assert found["devices", "widget", "published"] == 1
        assert found["devices", "widget", "withheld"] == 1
        assert found["devices", "widget", "refused"] == 1
        assert found["claims", "prepared"] == found["claims", "refused"] == 1
        assert found["claim_errors_total", "prepare"] == 1
        assert found["device_claimed", "1", "default", "w-0"] == 1
        assert found["claim_seconds_count", "prepare"] == 1
        assert found["api_requests_total", "resourceclaims", "get"] == 2
        assert found["registered",] == found["published",] == found["slices",] == 1


async def test_an_unreachable_api_server_is_reported(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is that of the log."""
    rig.choose("dra")
    async with rig.serving() as switch, pages_of(switch, rig.scanner, caplog) as pages:
        await until(lambda: switch.driver.publisher.is_published)
        await register(rig)
        assert await pages.ready() == READY
        rig.api.fault = lambda _request: ApiFault(500, "out of order")
        rig.scanner.devices.append(kd.Device("w-9"))
        rig.scanner.trigger()

        await until(lambda: switch.driver.publisher.problem)
        status, text = await pages.ready()
        assert status == 503
        assert "its devices are not published: " in text
        told = await pages.state()
        assert told["driver"]["problem"] == switch.driver.publisher.problem
        assert told["ready"] is False
        assert (await pages.numbers())["publish_errors_total",] > 0
        assert "out of order" in text


async def test_a_switch_is_ready_in_either_mode(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """As a device plugin nobody asks for the driver, as a driver nobody for the plugin."""
    async with rig.serving() as switch, pages_of(switch, rig.scanner, caplog) as pages:
        await until(lambda: rig.pods.offered and switch.plugin.is_ready)
        assert await pages.ready() == READY
        assert (await pages.state())["mode"] == "device-plugin"
        rig.choose("dra")
        await until(lambda: rig.published and switch.driver.publisher.is_published)
        await register(rig)
        assert await pages.ready() == READY
        told = await pages.state()
        assert (told["mode"], told["ready"]) == ("dra", True)


async def test_the_state_says_which_devices_are_for_the_other_api(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """With a split, these are withheld for good."""
    serving = rig.serving("split", dra_devices=["widget/*-1"])
    async with serving as switch, pages_of(switch, rig.scanner, caplog) as pages:
        await until(lambda: rig.published == {"w-1"})
        told = (await pages.state())["driver"]
        assert [(each["id"], each["state"], each["why"]) for each in told["devices"]] == [
            ("w-0", "withheld", "it is for the device plugin API"),
            ("w-1", "published", ""),
        ]


async def test_a_switch_is_not_ready_before_the_first_devices(
    rig: NodeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """No device is in the device plugin then, which is right only if there is none."""
    for_dra = make_runner(rig.scanner, DOMAIN, "dra", rig.options)
    switch = make_runner(rig.scanner, DOMAIN, "device-plugin", rig.options)
    assert isinstance(for_dra, ApiSwitch), "the mode may change by its file"
    assert isinstance(switch, ApiSwitch)
    async with pages_of(switch, rig.scanner, caplog) as pages:
        assert await pages.ready() == (503, "the scanner has not reported yet\n")
