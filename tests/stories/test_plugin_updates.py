"""No update is lost, with few and with many devices, for any action of the kubelet."""

import asyncio
from functools import cache
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.plugin.timing import Timing
from kubedevices.serving.modes import serve
from tests.fake_kubelet import FakeKubelet
from tests.registrar_rig import registrar
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets


@cache
def widget(number: int, is_sick: bool) -> kd.Device:
    health = kd.Health.UNHEALTHY if is_sick else kd.Health.HEALTHY
    return kd.Device(f"widget-{number}", health=health, numa_nodes=(number % 2,))


def fleet(count: int, sick: int | None = None) -> list[kd.Device]:
    """Return `count` devices on two NUMA nodes, one of them unhealthy."""
    return [widget(number, number == sick) for number in range(count)]


def seen(devices: list[kd.Device]) -> dict[str, str]:
    return {device.id: str(device.health) for device in devices}


@pytest.mark.parametrize("wipe", [True, False], ids=["wiped", "kept"])
@pytest.mark.parametrize("count", [3, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_updates_during_ten_restarts_arrive(short_dir: Path, count: int, wipe: bool) -> None:
    """Restart, one health change, one new device, ten times: every change arrives."""
    scanner = Widgets(widget=fleet(count))
    async with (
        FakeKubelet(short_dir) as kubelet,
        serve(scanner, domain=DOMAIN, socket_dir=short_dir),
    ):
        await kubelet.wait_for(RESOURCE, count)
        for turn in range(10):
            await kubelet.restart(wipe=wipe)
            now = fleet(count, sick=turn)
            scanner.show(widget=now)
            await kubelet.wait_for(RESOURCE, seen(now))
            now = fleet(count + turn + 1, sick=turn)
            scanner.show(widget=now)
            await kubelet.wait_for(RESOURCE, seen(now))


async def test_updates_between_two_kubelets_are_not_lost(short_dir: Path) -> None:
    """The first list for the next kubelet has all changes since the last kubelet."""
    scanner = Widgets(widget=fleet(1))
    async with (
        FakeKubelet(short_dir) as kubelet,
        serve(scanner, domain=DOMAIN, socket_dir=short_dir),
    ):
        for turn in range(2, 12):
            await kubelet.wait_for(RESOURCE, turn - 1)
            await kubelet.stop(leave_socket=True)
            scanner.show(widget=fleet(turn))
            await kubelet.start()
        connected = await kubelet.wait_for(RESOURCE, 11)
        assert len(connected.lists[0]) == 11


async def test_ten_thousand_devices_with_topology_fit(short_dir: Path) -> None:
    """The list of 10,000 devices is far below a kubelet's limit and arrives whole."""
    scanner = Widgets(widget=fleet(10_000))
    async with (
        FakeKubelet(short_dir) as kubelet,
        serve(scanner, domain=DOMAIN, socket_dir=short_dir),
    ):
        connected = await kubelet.wait_for(RESOURCE, 10_000)
        (listing,) = connected.lists
        assert [device.id for device in listing] == [f"widget-{n}" for n in range(10_000)]
        assert {device.numa_nodes for device in listing} == {(0,), (1,)}


async def test_twenty_restarts_are_noticed_at_once(short_dir: Path) -> None:
    """The plugin registers at most 1.5 s after kubelet.sock exists again, of 20 times.

    On a busy machine a few may take longer. What waits for a back-off takes longer each time.
    """
    loop = asyncio.get_running_loop()
    times = []
    async with (
        FakeKubelet(short_dir) as kubelet,
        serve(Widgets(widget=fleet(8)), domain=DOMAIN, socket_dir=short_dir),
    ):
        await kubelet.wait_for(RESOURCE, 8)
        for turn in range(20):
            await kubelet.stop(leave_socket=turn % 2 == 0)
            await asyncio.sleep(0.02 * (turn % 4))
            await kubelet.start()
            back = loop.time()
            await kubelet.wait_for(RESOURCE, 8)
            times.append(loop.time() - back)
    assert sorted(times)[-4] <= 1.5, times


async def test_restarts_are_noticed_without_file_events(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without inotify the plugin looks every second."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("kubedevices.host.inotify.Inotify", refuse)
    loop = asyncio.get_running_loop()
    timing = Timing(again_soon=60)  # or the end of the stream would wake it
    async with (
        FakeKubelet(short_dir) as kubelet,
        serve(Widgets(widget=fleet(8)), domain=DOMAIN, socket_dir=short_dir, timing=timing),
    ):
        await kubelet.wait_for(RESOURCE, 8)
        for turn in range(3):
            await kubelet.restart(wipe=turn != 1)
            back = loop.time()
            await kubelet.wait_for(RESOURCE, 8)
            assert loop.time() - back < 10  # 1 s on an idle machine, and 60 without looks


async def test_two_plugins_with_one_name_register_ever_more_slowly(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They replace each other, with growing pauses and a log line."""
    async with FakeKubelet(short_dir) as kubelet:
        kubelet.one_per_resource = True
        mine = serve(Widgets(widget=fleet(1)), domain=DOMAIN, socket_dir=short_dir, timing=QUICK)
        async with mine as runner, registrar(short_dir):
            await until(lambda: "stop one of the two" in caplog.text)
            before = len(kubelet.requests)
            await asyncio.sleep(2)
            # Without back-off there would be one every 20 ms from each.
            assert len(kubelet.requests) - before <= 8
            assert runner.is_serving("widget")
        assert len({request.endpoint for request in kubelet.requests}) == 2


async def test_a_rival_plugin_does_not_matter_if_both_streams_stay(short_dir: Path) -> None:
    """A kubelet such as 1.32 keeps both streams; each plugin registers once."""
    async with FakeKubelet(short_dir) as kubelet:
        mine = serve(Widgets(widget=fleet(1)), domain=DOMAIN, socket_dir=short_dir, timing=QUICK)
        async with mine, registrar(short_dir):
            await until(lambda: len(kubelet.connected(RESOURCE)) == 2)
            await asyncio.sleep(2 * QUICK.again_first)
            assert len(kubelet.requests) == 2
