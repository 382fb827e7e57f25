"""A driver from start to stop: sockets, slices, claims and files."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.dra import sockets
from kubedevices.dra.driver import DraDriver
from kubedevices.errors import InvalidResourceName, SocketPathTooLong, UsageError
from kubedevices.kubelet_api.clients import PluginRegistrationClient
from kubedevices.plugin.timing import Timing
from kubedevices.values.allocation import PluginInfo
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.dra.cluster import OneNode, claim_of, write_kubeconfig
from tests.kubelet_api.protobuf_classes import message_class
from tests.waiting import until

DRIVER = "example.com"
UID = "00000001-0000-4000-8000-000000000000"
V1 = "k8s.io.kubelet.pkg.apis.dra.v1"


class Widgets(kd.PolledScanner):
    interval = 3600

    def __init__(self, *devices: kd.Device) -> None:
        self.devices = list(devices)

    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree({"widget": self.devices})


class Rig:
    """A kubelet's directory, an API server, and a driver between them."""

    def __init__(self, directory: Path, api: OneNode) -> None:
        self.directory, self.api = directory, api
        self.data_dir = directory / "k" / "plugins" / DRIVER
        self.registry = directory / "k" / "plugins_registry"
        self.cdi_dir = directory / "cdi"
        self.scanner = Widgets(kd.Device("w-0", env={"W": "0"}), kd.Device("w-1", env={"W": "1"}))
        self.options: dict[str, Any] = {
            "kubelet_dir": directory / "k",
            "node_name": "node1",
            "kubeconfig": directory / "config",
            "cdi_dir": self.cdi_dir,
            "timing": Timing(look_interval=0.05),
        }
        write_kubeconfig(directory / "config", api.url)

    @property
    def service(self) -> Path:
        """The service socket of the newest instance; a name without file if there is none."""
        return max(self.data_dir.glob("dra.*.sock"), default=self.data_dir / "none")

    @property
    def registration(self) -> Path:
        """The registration socket of the newest instance."""
        return max(self.registry.glob(f"{DRIVER}-reg.*.sock"), default=self.registry / "none")

    @contextlib.asynccontextmanager
    async def driver(self, scanner: kd.Scanner | None = None) -> AsyncIterator[DraDriver]:
        scanner = scanner or self.scanner
        async with kd.serve(scanner, domain=DRIVER, mode="dra", **self.options) as driver:
            await until(lambda: driver.has_started)
            yield driver

    async def call(self, method: str, service: Path | None = None) -> Any:
        """Call the service for the claim `one`; return the entry of the claim."""
        claim = {"namespace": "default", "uid": UID, "name": "one"}
        request = message_class(f"{V1}.{method}Request")(claims=[claim])
        channel = await GrpcChannel.dial(service or self.service, timeout=10)
        try:
            path = f"/{V1}.DRAPlugin/{method}"
            answer = await channel.unary(path, request.SerializeToString(), timeout=30)
        finally:
            await channel.close()
        return message_class(f"{V1}.{method}Response").FromString(answer).claims[UID]

    async def register(
        self, socket: Path | None = None, *, registered: bool = True, error: str = ""
    ) -> PluginInfo:
        """Do what a kubelet does with a socket that it finds."""
        channel = await GrpcChannel.dial(socket or self.registration, timeout=10)
        try:
            client = PluginRegistrationClient(channel)
            info = await client.get_info(timeout=10)
            await client.notify_registration_status(registered=registered, error=error, timeout=10)
        finally:
            await channel.close()
        return info


@pytest.fixture
def rig(short_dir: Path, server: OneNode) -> Rig:
    return Rig(short_dir, server)


async def test_a_driver_tells_the_kubelet_its_socket_and_services(rig: Rig) -> None:
    """All services that a kubelet may call, newest first."""
    async with rig.driver() as driver:
        info = await rig.register()
        assert info == PluginInfo(
            "DRAPlugin",
            DRIVER,
            str(rig.service),
            (
                "v1.DRAPlugin",
                "v1beta1.DRAPlugin",
                "v1.DRAResourceHealth",
                "v1alpha1.DRAResourceHealth",
            ),
        )
        assert driver.is_registered


async def test_a_refused_driver_goes_on(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The kubelet tries again."""
    async with rig.driver() as driver:
        await rig.register(registered=False, error="not today")
        assert "the kubelet refused the driver: not today" in caplog.text
        await rig.register()
        assert driver.is_registered


async def test_a_driver_is_ready_when_kubelet_and_api_server_know_it(rig: Rig) -> None:
    """Until then the page of its health says what is missing, and why."""
    rig.api.answer_all(403, "no", "not for you")
    waiting = DraDriver(rig.scanner, domain=DRIVER, **rig.options)
    assert waiting.why_not_ready == (f"driver {DRIVER}: the scanner has not reported yet",)
    async with rig.driver() as driver:
        await until(lambda: "needs the RBAC rule" in str(driver.why_not_ready))
        kubelet, server = driver.why_not_ready
        assert kubelet == f"driver {DRIVER}: no kubelet has registered it"
        assert server.startswith(f"driver {DRIVER}: its devices are not published: ")
        await rig.register()
        assert driver.why_not_ready == [server]
        rig.api.answer_all()
        await until(lambda: not driver.why_not_ready)
        assert rig.api.devices == [["w-0", "w-1"]]


async def test_a_claim_is_prepared_and_unprepared(rig: Rig) -> None:
    """From the scanner's device to a CDI file, and back."""
    rig.api.give("one", claim_of(UID, "w-1"))
    async with rig.driver():
        await until(lambda: rig.api.devices == [["w-0", "w-1"]])
        prepared = await rig.call("NodePrepareResources")
        assert not prepared.error
        (device,) = prepared.devices
        assert list(device.cdi_device_ids) == [f"example.com/claim={UID}-w-1"]
        (file,) = rig.cdi_dir.iterdir()
        assert '"W=1"' in file.read_text()
        assert not (await rig.call("NodeUnprepareResources")).error
        assert not [*rig.cdi_dir.iterdir()]


async def test_a_new_device_is_published(rig: Rig) -> None:
    """A refused device is logged."""
    async with rig.driver():
        rig.scanner.devices += [kd.Device("w-2"), kd.Device("bad", capacity={"a-b": 1})]
        rig.scanner.trigger()
        await until(lambda: rig.api.devices == [["w-0", "w-1", "w-2"]])


async def test_a_device_that_is_withheld_while_the_others_are_published_is_not_forgotten(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the guard learns meanwhile is published afterwards."""
    begun, may_end = list[str](), asyncio.Event()

    async def publish() -> None:
        begun.append("once")
        await may_end.wait()

    async with rig.driver() as driver:
        monkeypatch.setattr(driver, "_publish", publish)
        driver._guard_changed.set()
        await until(lambda: begun)
        driver._guard_changed.set()
        may_end.set()
        await until(lambda: len(begun) == 2, timeout=10)


async def test_removed_sockets_are_created_again(rig: Rig) -> None:
    """One after the other, both at once, and with their directories."""
    async with rig.driver() as driver:
        for gone in ([rig.service], [rig.registration], [rig.service, rig.registration]):
            for path in gone:
                path.unlink()
            await until(lambda: driver.has_started)
            await rig.register()
        rig.registration.unlink()
        rig.registration.parent.rmdir()
        await until(lambda: driver.has_started)
        await rig.register()


async def test_the_sockets_can_be_removed_without_waiting(rig: Rig) -> None:
    """A kubelet would dial the sockets of a process that has to exit at once."""
    async with rig.driver() as driver:
        driver.unlink_sockets()
        assert not rig.service.exists()
        assert not rig.registration.exists()
        foreign = driver.sockets.service
        foreign.write_text("of somebody else")
        driver.unlink_sockets()
        assert foreign.read_text() == "of somebody else"


async def test_the_registry_may_vanish_between_two_looks(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet empties its directories while it starts: the driver looks there all the time."""
    looks = 0

    def gone(*_: object) -> list[str]:
        nonlocal looks
        looks += 1
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "plugins_registry")

    async with rig.driver() as driver:
        await rig.register()
        monkeypatch.setattr(sockets, "names", gone)
        rig.registration.unlink()
        await until(lambda: driver.has_started)
        await rig.register()  # after a registration the driver looks
        await until(lambda: looks)
        rig.registration.unlink()
        await until(lambda: driver.has_started)
        await rig.register()


async def test_a_removed_cdi_file_is_written_again(rig: Rig) -> None:
    """The kubelet does not call Prepare before it starts a container again."""
    rig.api.give("one", claim_of(UID, "w-1"))
    async with rig.driver():
        await rig.call("NodePrepareResources")
        (file,) = rig.cdi_dir.iterdir()
        file.unlink()
        await until(file.exists)


async def test_a_stopped_driver_removes_only_its_sockets(rig: Rig) -> None:
    """Pods go on, and the slices stay for the next process. Sockets of a killed one do no harm."""
    rig.api.give("one", claim_of(UID, "w-1"))
    async with rig.driver():
        await rig.call("NodePrepareResources")
        await until(lambda: rig.api.devices == [["w-0", "w-1"]])
    assert not rig.service.exists()
    assert not rig.registration.exists()
    (file,) = rig.cdi_dir.iterdir()
    rig.api.take()
    writes, watches = len(rig.api.writes), rig.api.watches
    async with rig.driver():
        assert not (await rig.call("NodeUnprepareResources")).error
        assert not file.exists()
        await until(lambda: rig.api.watches > watches)
        assert len(rig.api.writes) == writes


async def test_a_scanner_that_fails_ends_the_driver(rig: Rig) -> None:
    """As in mode device-plugin."""
    rig.scanner.list_devices = lambda: None  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(kd.KubedevicesError, match="DeviceTree"):
        await DraDriver(rig.scanner, domain=DRIVER, **rig.options).run()
    assert not rig.registration.exists()


async def test_an_attribute_that_is_left_out_is_warned_of_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Two devices lack the attribute, later a third: one warning, and all devices are offered."""
    long = {"model": "x" * 65}
    rig.scanner.devices = [kd.Device(f"w-{number}", attributes=long) for number in range(2)]
    async with rig.driver():
        await until(lambda: rig.api.devices == [["w-0", "w-1"]])
        rig.scanner.devices.append(kd.Device("w-2", attributes=long))
        rig.scanner.trigger()
        await until(lambda: rig.api.devices == [["w-0", "w-1", "w-2"]])
    (line,) = [each.message for each in caplog.records if "not published" in each.message]
    assert line.startswith("widget: device w-0 and 1 other device: the attribute 'model' is not")


async def test_a_name_that_repeats_the_domain_is_warned_of_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Two scans, two devices, one warning."""
    name = f"{DRIVER}/model"
    rig.scanner.devices = [kd.Device("w-0", attributes={name: "a"})]
    async with rig.driver():
        await until(lambda: rig.api.devices == [["w-0"]])
        rig.scanner.devices.append(kd.Device("w-1", attributes={name: "b"}))
        rig.scanner.trigger()
        await until(lambda: rig.api.devices == [["w-0", "w-1"]])
    (line,) = [each.message for each in caplog.records if "repeats the domain" in each.message]
    assert line.startswith(f"widget: the name {name!r} repeats")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"domain": "x" * 60 + ".com"}, InvalidResourceName),
        ({"node_name": "Node 1"}, UsageError),
        ({"allocate_timeout": 0}, UsageError),
        ({"unhealthy_effect": "no-schedule"}, UsageError),
        ({"kubelet_dir": Path("/" + "x" * 90)}, SocketPathTooLong),
    ],
    ids=str,
)
async def test_invalid_driver_options_are_refused_before_the_scan(
    rig: Rig, changes: dict[str, Any], error: type[Exception]
) -> None:
    """Before anything is scanned."""
    with pytest.raises(error):
        DraDriver(rig.scanner, **{"domain": DRIVER, **rig.options, **changes})


async def test_a_driver_can_be_stopped_before_it_runs(rig: Rig) -> None:
    """By an early signal."""
    driver = DraDriver(rig.scanner, domain=DRIVER, **rig.options)
    driver.stop()
    async with asyncio.timeout(60):
        await driver.run()
    assert not rig.service.parent.exists()


class Waits(Widgets, kd.Allocator):
    """Waits for an event in Allocate."""

    def __init__(self, *devices: kd.Device) -> None:
        super().__init__(*devices)
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def allocate(self, request: kd.AllocateRequest) -> Any:
        self.is_asked.set()
        await self.may_answer.wait()
        return kd.USE_DEFAULT


async def test_a_running_call_ends_before_the_driver(rig: Rig) -> None:
    """The registration socket is removed at once; a health stream delays nothing."""
    rig.scanner = waits = Waits(*rig.scanner.devices)
    rig.api.give("one", claim_of(UID, "w-1"))
    async with rig.driver() as driver:
        service = driver.sockets.service
        health = await GrpcChannel.dial(service, timeout=10)
        lists = health.stream("/v1.DRAResourceHealth/NodeWatchResources", b"")
        assert await anext(lists)
        call = asyncio.create_task(rig.call("NodePrepareResources", service))
        await waits.is_asked.wait()
        driver.stop()
        await until(lambda: not rig.registration.exists())
        await until(lambda: not service.exists())
        assert not call.done()
        waits.may_answer.set()
        assert not (await call).error
        await health.close()
    assert [*rig.cdi_dir.iterdir()]
