"""One scanner, any number of device types, from start to stop."""

import asyncio
import contextlib
import gc
import logging
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kubedevices as kd
from kubedevices.errors import (
    InvalidResourceName,
    KubedevicesError,
    RegistrationRefused,
    RpcError,
    ScanFailed,
    SocketInUse,
    SocketPathTooLong,
    StatusCode,
    UsageError,
)
from kubedevices.host.sysfs import NumaReader
from kubedevices.plugin.runner import PluginRunner
from kubedevices.serving.modes import serve
from kubedevices.values.allocation import ContainerAllocateRequest
from kubedevices.values.cdi import ContainerEdits
from kubedevices.wire.unix_grpc import GrpcServer
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, healthy, widgets, without_instance


def sockets(directory: Path) -> list[str]:
    """Name every file that is left besides kubelet.sock; of instances their stems."""
    names = (path.name for path in directory.iterdir())
    return without_instance(name for name in names if name != "kubelet.sock")


def take_its_socket(runner: kd.PluginRunner, foreign: socket.socket) -> Path:
    """Listen where `runner` is going to serve widgets."""
    path = runner.settings.socket_of(RESOURCE, "widget")
    foreign.bind(str(path))
    foreign.listen()
    return path


def running(
    scanner: kd.Scanner, directory: Path, **options: Any
) -> contextlib.AbstractAsyncContextManager[PluginRunner]:
    options = {"timing": QUICK, **options}
    return serve(scanner, domain=DOMAIN, socket_dir=directory, **options)


# ---------------------------------------------------------------- device types


async def test_every_type_is_a_resource_of_its_own(kubelet: FakeKubelet) -> None:
    """Two device types are two sockets, two registrations and two lists."""
    scanner = Widgets(widget=widgets("w1", "w2"), gadget=widgets("g1"))
    async with running(scanner, kubelet.socket_dir) as runner:
        await kubelet.wait_for(RESOURCE, healthy("w1", "w2"))
        await kubelet.wait_for("example.com/gadget", healthy("g1"))
        assert sockets(kubelet.socket_dir) == ["example.com-gadget.sock", "example.com-widget.sock"]
        assert set(runner.servers) == {"widget", "gadget"}
        assert runner.servers["widget"].resource == RESOURCE
        await until(lambda: runner.is_registered("widget") and runner.is_registered("gadget"))
        assert repr(runner) == "<PluginRunner example.com: widget, gadget>"
    assert sockets(kubelet.socket_dir) == []


async def test_updates_additions_and_removals_are_followed(kubelet: FakeKubelet) -> None:
    """A changed type is sent again, a new one appears, a missing one goes with its socket."""
    scanner = Widgets(widget=widgets("w1"), gadget=widgets("g1"))
    async with running(scanner, kubelet.socket_dir) as runner:
        await kubelet.wait_for("example.com/gadget", 1)
        await kubelet.wait_for(RESOURCE, 1)
        scanner.show(widget=widgets("w1", "w2", unhealthy=("w1",)), tool=widgets("t1"))
        await kubelet.wait_for(RESOURCE, {"w1": "Unhealthy", "w2": "Healthy"})
        await kubelet.wait_for("example.com/tool", 1)
        await until(lambda: not kubelet.connected("example.com/gadget"))
        await until(lambda: set(runner.servers) == {"widget", "tool"})
        assert sockets(kubelet.socket_dir) == ["example.com-tool.sock", "example.com-widget.sock"]
        # The same registration served both lists of widgets.
        assert [request.resource_name for request in kubelet.requests].count(RESOURCE) == 1


async def test_a_type_without_devices_is_registered(kubelet: FakeKubelet) -> None:
    """A declared type is a resource with capacity 0, and devices may come later."""
    scanner = Widgets(widget=[])
    async with running(scanner, kubelet.socket_dir):
        await kubelet.wait_for(RESOURCE, {})
        scanner.show(widget=widgets("w1"))
        await kubelet.wait_for(RESOURCE, healthy("w1"))


async def test_a_type_that_comes_back_gets_a_new_server(kubelet: FakeKubelet) -> None:
    """After removal and return there is a new server, a new stream and the new devices."""
    scanner = Widgets(widget=widgets("w1"))
    async with running(scanner, kubelet.socket_dir) as runner:
        await kubelet.wait_for(RESOURCE, 1)
        first = runner.servers["widget"]
        scanner.show()
        await until(lambda: not runner.servers)
        # A server stops after it is taken out.
        await until(lambda: sockets(kubelet.socket_dir) == [])
        scanner.show(widget=widgets("w1", "w2"))
        await kubelet.wait_for(RESOURCE, 2)
        assert runner.servers["widget"] is not first
        assert all(listing for listing in kubelet.lists(RESOURCE)), "an empty list was sent"


async def test_a_type_that_comes_back_waits_for_its_socket(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the old server takes to stop: the new one does not find its path taken."""
    stop = GrpcServer.stop

    async def stop_slowly(server: GrpcServer, grace: float = 0) -> None:
        await asyncio.sleep(0.2)
        await stop(server, grace)

    scanner = Widgets(widget=widgets("w1"))
    async with running(scanner, kubelet.socket_dir) as runner:
        await kubelet.wait_for(RESOURCE, 1)
        monkeypatch.setattr(GrpcServer, "stop", stop_slowly)
        scanner.show()
        await until(lambda: not runner.servers)
        scanner.show(widget=widgets("w1", "w2"))
        await kubelet.wait_for(RESOURCE, 2)
    assert sockets(kubelet.socket_dir) == []
    monkeypatch.undo()


@pytest.mark.parametrize("delay", [0, 0.01, 0.1])
@pytest.mark.parametrize("kubelet_answers", [True, False], ids=["answering", "hanging"])
async def test_a_type_removed_while_it_starts(
    kubelet: FakeKubelet, delay: float, kubelet_answers: bool
) -> None:
    """Removed 0, 10 and 100 ms after it was added: no socket, no stream, nobody left."""
    scanner = Widgets(other=widgets("o1"))
    async with running(scanner, kubelet.socket_dir) as runner:
        await kubelet.wait_for("example.com/other", 1)
        if not kubelet_answers:
            kubelet.register_gate = asyncio.Event()
        scanner.show(other=widgets("o1"), widget=widgets("w1"))
        await asyncio.sleep(delay)
        scanner.show(other=widgets("o1"))
        await until(lambda: set(runner.servers) == {"other"})
        await until(lambda: sockets(kubelet.socket_dir) == ["example.com-other.sock"])
        if kubelet.register_gate is not None:
            kubelet.register_gate.set()
        await until(lambda: not kubelet.connected(RESOURCE))
        scanner.show(other=widgets("o2"))
        await kubelet.wait_for("example.com/other", healthy("o2"))
        assert not kubelet.connected(RESOURCE)
        assert sockets(kubelet.socket_dir) == ["example.com-other.sock"]


async def test_calls_of_a_removed_type_delay_nothing(kubelet: FakeKubelet) -> None:
    """A hook that still runs delays neither other types nor, for long, its own type's return."""
    hanging = threading.Event()

    class Hanging(Widgets, kd.Allocator):
        def allocate(self, request: kd.AllocateRequest) -> Any:
            hanging.set()
            may_go_on.wait(10)
            return kd.USE_DEFAULT

    may_go_on = threading.Event()
    scanner = Hanging(widget=widgets("w1"), other=widgets("o1"))
    timing = QUICK._replace(call_grace=1)
    async with running(scanner, kubelet.socket_dir, timing=timing):
        connected = await kubelet.wait_for(RESOURCE, 1)
        asked = kd.AllocateRequest((ContainerAllocateRequest(("w1",)),))
        call = asyncio.create_task(connected.client.allocate(asked, timeout=10))
        await until(hanging.is_set)
        scanner.show(other=widgets("o1"))
        await until(lambda: not kubelet.connected(RESOURCE))
        scanner.show(other=widgets("o1", "o2"), widget=widgets("w2"))
        await kubelet.wait_for("example.com/other", 2)
        assert not call.done()
        may_go_on.set()
        assert len((await call).containers) == 1
        await kubelet.wait_for(RESOURCE, healthy("w2"))


async def test_a_kubelet_that_does_not_read_delays_no_notification(kubelet: FakeKubelet) -> None:
    """Without any stream 1000 notifications take less than a second, and the last counts."""
    scanner = Widgets(widget=widgets("w0"), other=widgets("o0"))
    kubelet.open_streams = False
    async with running(scanner, kubelet.socket_dir) as runner:
        await until(lambda: len(kubelet.accepted) == 2)
        other = next(each for each in kubelet.accepted if each.resource != RESOURCE)
        kubelet.watch(other)
        started = time.thread_time()
        for n in range(1000):
            scanner.show(widget=widgets(f"w{n}"), other=widgets(f"o{n}"))
        assert time.thread_time() - started < 1
        await kubelet.wait_for("example.com/other", healthy("o999"))
        await until(lambda: "w999" in runner.servers["widget"].devices)


async def test_a_slow_look_up_of_one_type_delays_no_other_type(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NUMA nodes are read in a thread per type: a device file that hangs hangs alone."""
    may_go_on = threading.Event()

    def hang(_: NumaReader, paths: Sequence[str]) -> tuple[int, ...]:
        if "/dev/slow" in paths:
            may_go_on.wait(10)
        return (3,)

    monkeypatch.setattr(NumaReader, "nodes_of", hang)
    slow, fast = kd.Device("s", paths=["/dev/slow"]), kd.Device("f", paths=["/dev/fast"])
    scanner = Widgets(slow=[slow], fast=[fast])
    async with running(scanner, kubelet.socket_dir):
        connected = await kubelet.wait_for("example.com/fast", 1)
        assert connected.lists[0][0].numa_nodes == (3,)
        assert not kubelet.connected("example.com/slow")
        may_go_on.set()
        await kubelet.wait_for("example.com/slow", 1)


async def test_options_reach_the_wire(kubelet: FakeKubelet) -> None:
    """Socket name and hooks of the plugin are what the kubelet is told."""

    class Starting(Widgets, kd.ContainerPreStarter):
        def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
            pass

    scanner = Starting(widget=widgets("w1"))
    options = {"socket_name": lambda device_type: f"mine-{device_type}.sock"}
    async with running(scanner, kubelet.socket_dir, **options):
        connected = await kubelet.wait_for(RESOURCE, 1)
        assert connected.options.pre_start_required
        assert kubelet.requests[0].options == connected.options
        assert without_instance([kubelet.requests[0].endpoint]) == ["mine-widget.sock"]


async def test_registration_none_serves_only(kubelet: FakeKubelet) -> None:
    """With registration "none" the socket is there and kubelet.sock is left alone."""
    scanner = Widgets(widget=widgets("w1"))
    async with running(scanner, kubelet.socket_dir, registration="none") as runner:
        await until(lambda: runner.is_serving("widget"))
        assert not runner.is_registered("widget")
        assert sockets(kubelet.socket_dir) == ["example.com-widget.sock"]
    assert not kubelet.requests


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (ValueError("no bus"), ScanFailed, "scanner Widgets failed: ValueError: no bus"),
        (UsageError("bad file"), UsageError, "bad file"),
    ],
)
async def test_a_scan_that_raises_ends_everything(
    kubelet: FakeKubelet, raised: Exception, expected: type[KubedevicesError], text: str
) -> None:
    """The servers stop, their sockets are removed, the error is raised."""
    scanner = Widgets(widget=widgets("w1"))
    runner = PluginRunner(scanner, domain=DOMAIN, socket_dir=kubelet.socket_dir, timing=QUICK)
    task = asyncio.create_task(runner.run())
    await kubelet.wait_for(RESOURCE, 1)
    scanner.end(raised)
    with pytest.raises(expected, match=text):
        await asyncio.wait_for(task, 5)
    assert sockets(kubelet.socket_dir) == []


async def test_a_scan_that_returns_is_a_clean_end(kubelet: FakeKubelet) -> None:
    """Run() returns, and the sockets are gone."""
    scanner = Widgets(widget=widgets("w1"))
    runner = PluginRunner(scanner, domain=DOMAIN, socket_dir=kubelet.socket_dir, timing=QUICK)
    task = asyncio.create_task(runner.run())
    await kubelet.wait_for(RESOURCE, 1)
    scanner.end()
    await asyncio.wait_for(task, 5)
    assert sockets(kubelet.socket_dir) == []
    assert not runner.servers


async def test_stop_from_another_thread(kubelet: FakeKubelet) -> None:
    """stop() may be called anywhere; a scanner that waits for the end may tidy up."""
    scanner = Widgets(widget=widgets("w1"))
    runner = PluginRunner(scanner, domain=DOMAIN, socket_dir=kubelet.socket_dir, timing=QUICK)
    task = asyncio.create_task(runner.run())
    await kubelet.wait_for(RESOURCE, 1)
    thread = threading.Thread(target=runner.stop)
    thread.start()
    await asyncio.wait_for(task, 5)
    thread.join()
    assert scanner.is_ended
    runner.stop()  # once more is no mistake


async def test_a_scan_that_does_not_end_is_not_waited_for(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An author's `except BaseException` keeps no plugin alive that has failed or was stopped."""
    may_end = asyncio.Event()

    class Stubborn(Widgets):
        async def scan(self, notifier: kd.Notifier) -> None:
            notifier.notify(self.tree)
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await may_end.wait()

    runner = PluginRunner(
        Stubborn(widget=widgets("w1")), domain=DOMAIN, socket_dir=short_dir, registration="none",
        timing=QUICK._replace(exit_grace=0.1),
    )  # fmt: skip
    task = asyncio.create_task(runner.run())
    await until(lambda: runner.is_ready)
    runner.stop()
    await asyncio.wait({task}, timeout=5)
    assert task.done()
    assert "Stubborn.scan goes on although it was cancelled" in caplog.text
    assert sockets(short_dir) == []
    may_end.set()


async def test_stop_before_run(short_dir: Path) -> None:
    """A runner that was stopped before it began does not begin."""
    runner = PluginRunner(Widgets(), domain=DOMAIN, socket_dir=short_dir)
    runner.stop()
    await asyncio.wait_for(runner.run(), 5)


async def test_a_plain_def_scan_runs_in_a_thread(kubelet: FakeKubelet) -> None:
    """A scanner whose `scan` is no coroutine cannot block the loop."""

    class Plain(kd.Scanner):
        def scan(self, notifier: kd.Notifier) -> None:  # type: ignore[override]
            notifier.notify(kd.DeviceTree({"widget": widgets("w1")}))
            ended.wait(10)

    ended = threading.Event()
    async with running(Plain(), kubelet.socket_dir):
        await kubelet.wait_for(RESOURCE, 1)
        ended.set()


async def test_a_refused_registration_ends_everything(kubelet: FakeKubelet) -> None:
    """With the kubelet's text, and with the sockets of all types removed."""
    scanner = Widgets(widget=widgets("w1"), other=widgets("o1"))
    kubelet.refuse_with = RpcError(StatusCode.UNKNOWN, "no such thing")
    runner = PluginRunner(scanner, domain=DOMAIN, socket_dir=kubelet.socket_dir, timing=QUICK)
    with pytest.raises(RegistrationRefused, match="no such thing"):
        await asyncio.wait_for(runner.run(), 5)
    assert sockets(kubelet.socket_dir) == []


async def test_an_isolated_failure_leaves_the_others_alone(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """With "isolate" one type that cannot be served is logged and tried again."""
    scanner = Widgets(widget=widgets("w1"), other=widgets("o1"))
    scanner.may_scan = asyncio.Event()
    with socket.socket(socket.AF_UNIX) as foreign:
        async with running(scanner, kubelet.socket_dir, on_server_error="isolate") as runner:
            take_its_socket(runner, foreign)
            scanner.may_scan.set()
            await kubelet.wait_for("example.com/other", 1)
            await until(lambda: caplog.text.count("is already in use") >= 2)
            assert not kubelet.connected(RESOURCE)
            foreign.close()
            await kubelet.wait_for(RESOURCE, 1)
            assert len(kubelet.connected("example.com/other")) == 1


async def test_a_live_socket_of_another_process_ends_everything(short_dir: Path) -> None:
    """By default a type that cannot be served ends the plugin; the foreign socket stays."""
    with socket.socket(socket.AF_UNIX) as foreign:
        runner = PluginRunner(Widgets(widget=widgets("w1")), domain=DOMAIN, socket_dir=short_dir)
        path = take_its_socket(runner, foreign)
        with pytest.raises(SocketInUse):
            await asyncio.wait_for(runner.run(), 5)
        assert path.is_socket()


@pytest.mark.parametrize("on_server_error", ["exit", "isolate"])
async def test_a_list_that_grows_too_large_keeps_what_fitted(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture, on_server_error: str
) -> None:
    """Beyond the limit neither the type nor any other loses a device; it is told loudly."""
    scanner = Widgets(widget=widgets("w1", "w2"), other=widgets("o1"))
    options: dict[str, Any] = {"max_list_size": 1000, "on_server_error": on_server_error}
    many = widgets(*(f"w{n}" for n in range(100)))
    async with running(scanner, kubelet.socket_dir, **options) as runner:
        connected = await kubelet.wait_for(RESOURCE, 2)
        await until(lambda: runner.is_ready)
        scanner.show(widget=many, other=widgets("o1", "o2"))
        await kubelet.wait_for(f"{DOMAIN}/other", 2)
        await until(lambda: runner.too_large)
        assert not runner.is_ready
        assert "a list of 100 devices has" in caplog.text
        assert "2 are offered as before, 98 are left out until all fit again" in caplog.text
        scanner.show(widget=widgets(*(f"w{n}" for n in range(1, 100)), unhealthy=("w1",)), other=[])
        await until(lambda: dict(connected.devices) == {"w1": "Unhealthy", "w2": "Healthy"})
        scanner.show(widget=widgets("w1", "w2", "w3"), other=[])
        await kubelet.wait_for(RESOURCE, 3)
        await until(lambda: runner.is_ready)
        assert "all 3 devices fit again" in caplog.text


async def test_a_first_list_that_is_too_large_delays_no_other_type(
    kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not registered before it fits, so that an older instance is not replaced by nothing."""
    scanner = Widgets(widget=widgets(*(f"w{n}" for n in range(100))), other=widgets("o1"))
    async with running(scanner, kubelet.socket_dir, max_list_size=1000) as runner:
        await kubelet.wait_for(f"{DOMAIN}/other", 1)
        await until(lambda: runner.too_large)
        assert not runner.is_ready
        assert RESOURCE not in {each.resource for each in kubelet.accepted}
        assert "it is not served until it fits" in caplog.text
        scanner.show(widget=widgets("w1"), other=widgets("o1"))
        await kubelet.wait_for(RESOURCE, 1)
        await until(lambda: runner.is_ready)


# ---------------------------------------------------------------- wrong use


@pytest.mark.parametrize("domain", ["", "Example.com", "kubernetes.io", "a/b", "x_y.com"])
def test_a_domain_that_no_kubelet_accepts(domain: str) -> None:
    """A wrong domain is told before anything is scanned."""
    with pytest.raises(InvalidResourceName, match="resource name"):
        PluginRunner(Widgets(), domain=domain)


@pytest.mark.parametrize("on_server_error", ["exit", "isolate"])
async def test_a_device_type_that_no_kubelet_accepts(short_dir: Path, on_server_error: Any) -> None:
    """A wrong device type ends the plugin when it first appears, also with "isolate"."""
    scanner = Widgets(**{"no good": widgets("w1")}, widget=widgets("w1"))
    runner = PluginRunner(
        scanner, domain=DOMAIN, socket_dir=short_dir, on_server_error=on_server_error
    )
    with pytest.raises(InvalidResourceName, match=r"example\.com/no good") as caught:
        await asyncio.wait_for(runner.run(), 5)
    assert caught.value.exit_code == 2
    assert sockets(short_dir) == []


async def test_a_directory_too_long_for_a_socket(short_dir: Path) -> None:
    """Said with the path and its length, exit code 3."""
    directory = short_dir / ("x" * 100)
    directory.mkdir()
    runner = PluginRunner(Widgets(widget=widgets("w1")), domain=DOMAIN, socket_dir=directory)
    with pytest.raises(SocketPathTooLong, match="choose a shorter") as caught:
        await asyncio.wait_for(runner.run(), 5)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("scanner", "text"), [(Widgets, r"write Widgets\(\)"), (object(), "needs a Scanner object")]
)
def test_an_object_that_is_no_scanner_is_refused(scanner: Any, text: str) -> None:
    """A class instead of an object, and anything else, is told in one sentence."""
    with pytest.raises(UsageError, match=text):
        PluginRunner(scanner, domain=DOMAIN)


# ---------------------------------------------------------------- serve


async def test_serve_raises_the_plugins_error_in_the_body(short_dir: Path) -> None:
    """When the plugin fails, the body of `async with` does not wait for ever."""
    scanner = Widgets(widget=widgets("w1"))

    async def body() -> None:
        async with FakeKubelet(short_dir) as kubelet, running(scanner, short_dir):
            await kubelet.wait_for(RESOURCE, 1)
            scanner.end(OSError("unplugged"))
            await asyncio.sleep(60)

    started = time.monotonic()
    with pytest.raises(ScanFailed, match="unplugged"):
        await asyncio.wait_for(body(), 20)
    assert time.monotonic() - started < 10


async def test_serve_passes_on_the_bodys_error_and_cancellation(short_dir: Path) -> None:
    """An error of the body, or its cancellation from outside, stops the plugin and goes on."""
    with pytest.raises(ZeroDivisionError):
        async with running(Widgets(widget=widgets("w1")), short_dir):
            raise ZeroDivisionError
    inside = asyncio.Event()

    async def body() -> None:
        async with running(Widgets(widget=widgets("w1")), short_dir):
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(body())
    await inside.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
    assert sockets(short_dir) == []


async def test_serve_after_a_scanner_that_ended(kubelet: FakeKubelet) -> None:
    """A scan that returns while the body runs is no error."""
    scanner = Widgets(widget=widgets("w1"))
    async with running(scanner, kubelet.socket_dir) as runner:
        await kubelet.wait_for(RESOURCE, 1)
        scanner.end()
        await until(lambda: not runner.servers)


async def test_a_hundred_starts_and_stops_leave_nothing_behind(
    kubelet: FakeKubelet, tmp_path: Path
) -> None:
    """After 100 cycles there are as many threads, file descriptors and sockets as before."""

    class Polled(kd.PolledScanner):
        def list_devices(self) -> kd.DeviceTree:
            widget = kd.Device("w1", cdi=ContainerEdits(env=("A=1",)))
            return kd.DeviceTree({"widget": [widget], "other": []})

    gc.collect()  # files that other tests left to it must not be closed while we count
    logging.getLogger("kubedevices").setLevel(logging.ERROR)
    before: tuple[int, int, int] | None = None
    for cycle in range(100):
        async with running(Polled(), kubelet.socket_dir, cdi_dir=tmp_path):
            await kubelet.wait_for(RESOURCE, 1)
        await until(lambda: not any(each.is_open for each in kubelet.accepted))
        for connected in kubelet.accepted:
            await connected.channel.close()
        kubelet.accepted.clear()
        assert sockets(kubelet.socket_dir) == []
        if cycle == 4:  # by then everything that is loaded once has been loaded
            before = await count_resources()
    assert await count_resources() == before


async def count_resources() -> tuple[int, int, int]:
    """Count threads, open files and tasks, once the last thread of a hook has ended."""
    await until(lambda: not any(t.name.startswith("hook") for t in threading.enumerate()))
    return threading.active_count(), count_open_files(), len(asyncio.all_tasks())


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_plugin_without_devices_says_so_once(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it looks as if nothing happened; what never was served does not end either."""
    caplog.set_level(logging.INFO)
    async with running(Widgets(), short_dir) as runner:
        await until(lambda: runner.has_scanned)
    assert [record.message for record in caplog.records] == [
        "the scanner reports no devices: nothing is served until it does"
    ]
