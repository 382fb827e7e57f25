"""The bench: every call and every fault; a closed bench leaves no thread, process or file."""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import (
    AdmissionRejected,
    DevicesUnavailable,
    InvalidResourceName,
    KubedevicesError,
    NoHealthyDevices,
    NoPrivateView,
    NotInTime,
    PluginNotStarted,
    PreStartFailed,
    RegistrationRefused,
    RpcError,
    ScanFailed,
    StatusCode,
    UnregisteredResource,
    UsageError,
)
from kubedevices.node.topology.options import TopologySettings
from kubedevices.testing.workbench import Bench
from kubedevices.testing.workbench import bench as bench_module
from kubedevices.values.device import ReportedDevice
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR
from tests.host_needs import needs
from tests.plugin_process import ROOT
from tests.waiting import until_sync
from tests.widgets import DOMAIN, QUICK, RESOURCE, Widgets, widgets

# ---------------------------------------------------------------- devices and pods


@pytest.fixture
def scanner(bench: Bench) -> Widgets:
    """Three widgets, registered."""
    scanner = Widgets(widget=widgets("a", "b", "c"))
    bench.start(scanner, domain=DOMAIN, timing=QUICK)
    bench.wait_for(RESOURCE, capacity=3, allocatable=3)
    return scanner


def test_the_answer_has_devices_and_options(bench: Bench, scanner: Widgets) -> None:
    """The answer has the devices by resource and the options of the plugin."""
    got = bench.allocate("p", "main", {RESOURCE: 1})
    assert got.by_resource == {RESOURCE: got.devices}
    assert got.options.env == {"WIDGET": got.devices[0]}
    assert bench.options("p", "main") == got.options


def test_devices_have_their_health(bench: Bench, scanner: Widgets) -> None:
    """An unhealthy device counts in the capacity only."""
    scanner.show(widget=widgets("a", "b", unhealthy=("b",)))
    bench.wait_for(RESOURCE, capacity=2, allocatable=1)
    assert bench.devices(RESOURCE) == {
        "a": ReportedDevice("a", "Healthy"),
        "b": ReportedDevice("b", "Unhealthy"),
    }
    assert bench.numbers(RESOURCE) == (2, 1)
    assert bench.numbers("example.com/other") == (0, 0)


def test_containers_can_be_added_to_a_pod(bench: Bench, scanner: Widgets) -> None:
    """Containers are added one by one; a refused container does not change the others."""
    first = bench.allocate("p", "one", {RESOURCE: 1})
    second = bench.allocate("p", "two", {RESOURCE: 1})
    assert bench.allocate("p", "one", {RESOURCE: 1}) == first
    with pytest.raises(DevicesUnavailable):
        bench.allocate("p", "three", {RESOURCE: 2})
    assert {*bench.release("p")[RESOURCE]} == {*first.devices, *second.devices}
    assert len(bench.allocate("q", "main", {RESOURCE: 3}).devices) == 3


def test_an_unknown_resource_is_an_error(bench: Bench) -> None:
    """A misspelt resource raises an error, unless zero devices are requested."""
    with pytest.raises(UnregisteredResource, match=r"example\.com/wigdet"):
        bench.allocate("p", "main", {"example.com/wigdet": 1})
    assert bench.allocate("p", "main", {}).devices == ()
    with pytest.raises(UsageError, match="allocate something for it first"):
        bench.options("other", "main")


class Picky(Widgets, kd.Allocator, kd.ContainerPreStarter):
    """Refuses Allocate of several devices, and every PreStartContainer."""

    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        if len(request.containers[0].device_ids) > 1:
            raise RpcError(StatusCode.FAILED_PRECONDITION, "one at a time")
        return kd.USE_DEFAULT  # type: ignore[return-value]

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        raise ValueError("no power")


def test_errors_of_a_plugin_are_raised(bench: Bench) -> None:
    """The test gets the errors of Allocate and PreStartContainer, not the node's text for them."""
    bench.start(Picky(widget=widgets("a", "b")), domain=DOMAIN)
    bench.wait_for(RESOURCE)
    with pytest.raises(RpcError, match="one at a time"):
        bench.allocate("p", "main", {RESOURCE: 2})
    bench.allocate("p", "main", {RESOURCE: 1})
    with pytest.raises(PreStartFailed, match="no power"):
        bench.options("p", "main")


def test_numa_alignment() -> None:
    """A bench with a topology policy raises `AdmissionRejected` if the alignment fails."""
    devices = [kd.Device(str(node), numa_nodes=(node,)) for node in (0, 1)]
    settings = TopologySettings(policy="single-numa-node", numa_nodes=(0, 1))
    with Bench(topology=settings) as bench:
        bench.start(Widgets(widget=devices), domain=DOMAIN)
        bench.wait_for(RESOURCE, allocatable=2)
        with pytest.raises(AdmissionRejected, match="Topology"):
            bench.allocate("p", "main", {RESOURCE: 2})


# ---------------------------------------------------------------- plugins that fail


class Failing(kd.PolledScanner):
    """Fails in its scan."""

    def list_devices(self) -> kd.DeviceTree:
        raise OSError("no bus")


def test_a_wait_ends_with_the_plugin(bench: Bench) -> None:
    """`wait_for` raises the failure of a plugin at once."""
    bench.start(Failing(), domain=DOMAIN)
    with pytest.raises(ScanFailed, match="no bus"):
        bench.wait_for(RESOURCE)


def test_a_wait_timeout_on_the_bench_reports_the_device_counts(
    bench: Bench, scanner: Widgets
) -> None:
    """The message has the numbers, a note the plugins."""
    with pytest.raises(NotInTime, match="widget capacity 3") as caught:
        bench.wait_for(RESOURCE, capacity=4, timeout=0.1)
    assert "ScannerPlugin" in caught.value.__notes__[0]


def test_an_unseen_failure_is_raised_at_the_end() -> None:
    """`close` raises it, unless another error is raised already."""
    bench = Bench()
    plugin = bench.start(Failing(), domain=DOMAIN)
    until_sync(lambda: not plugin.is_running)
    with pytest.raises(ScanFailed):
        bench.close()
    bench.close()
    bench = Bench()
    plugin = bench.start(Failing(), domain=DOMAIN)
    until_sync(lambda: not plugin.is_running)
    with pytest.raises(ZeroDivisionError), bench:
        raise ZeroDivisionError


def test_wrong_usage_is_raised_at_once(bench: Bench) -> None:
    """No plugin runs afterwards."""
    with pytest.raises(InvalidResourceName):
        bench.start(Failing(), domain="not a domain")
    with pytest.raises(UsageError, match="0 plugins run"):
        bench.kill_plugin()


def test_a_plugin_is_stopped(bench: Bench, scanner: Widgets) -> None:
    """Afterwards its devices are unhealthy and its socket is removed."""
    plugin = bench.start(Widgets(gadget=[kd.Device("g")]), domain=DOMAIN)
    bench.wait_for("example.com/gadget")
    plugin.stop()
    bench.wait_for("example.com/gadget", capacity=1, allocatable=0)
    assert not plugin.is_running
    with pytest.raises(NoHealthyDevices):
        bench.allocate("p", "main", {"example.com/gadget": 1})


def test_a_killed_scanner_leaves_its_socket(bench: Bench, scanner: Widgets) -> None:
    """Like a killed process; a new plugin replaces the stale socket."""
    bench.kill_plugin()
    bench.wait_for(RESOURCE, allocatable=0)
    assert [path.name for path in bench.socket_dir.glob("*.sock")].count("kubelet.sock") == 1
    (socket,) = bench.socket_dir.glob("example.com-widget.*.sock")
    assert socket.is_socket()
    bench.start(Widgets(widget=widgets("a")), domain=DOMAIN)
    bench.wait_for(RESOURCE, allocatable=1)


# ---------------------------------------------------------------- programs


def command(devices: Path, *what: str) -> tuple[str, ...]:
    module = "tests.stories.widget_plugin"
    return (sys.executable, "-m", module, "{socket_dir}", str(devices), *what)


@pytest.fixture
def devices(short_dir: Path) -> Path:
    """Two device files, in a directory whose neighbours are ours, too."""
    directory = short_dir / "dev"
    directory.mkdir()
    for name in ("w0", "w1"):
        (directory / name).touch()
    return directory


def test_a_program_is_attached(bench: Bench, devices: Path) -> None:
    """The program gets the directory in its arguments; SIGTERM ends it."""
    plugin = bench.attach(*command(devices), cwd=ROOT)
    bench.wait_for(RESOURCE, allocatable=2)
    assert len(bench.allocate("p", "main", {RESOURCE: 2}).devices) == 2
    plugin.stop()
    assert plugin.returncode == 0
    assert "registered" in plugin.output
    bench.wait_for(RESOURCE, allocatable=0)


def test_a_program_is_killed_and_another_takes_over(bench: Bench, devices: Path) -> None:
    """A program that the test kills has not failed."""
    plugin = bench.attach(*command(devices), cwd=ROOT)
    bench.wait_for(RESOURCE, allocatable=2)
    bench.kill_plugin()
    assert plugin.returncode == -9
    bench.wait_for(RESOURCE, allocatable=0)
    bench.attach(*command(devices), cwd=ROOT)
    bench.wait_for(RESOURCE, allocatable=2)


def test_a_program_that_fails_is_quoted(bench: Bench, devices: Path) -> None:
    """The error has the exit code and the last lines of the output, and comes at once."""
    bench.attach(*command(devices, "domain"), cwd=ROOT)
    with pytest.raises(PluginNotStarted, match=r"exit code 2\n.*Not A Domain"):
        bench.wait_for(RESOURCE)
    with pytest.raises(PluginNotStarted, match="No such file"):
        bench.attach("/nowhere/plugin")


def test_variables_are_added_to_the_environment(bench: Bench, tmp_path: Path) -> None:
    """`{socket_dir}` is replaced in variables as well."""
    script = 'echo "$DIR $HOME"; exec sleep 60'
    plugin = bench.attach("sh", "-c", script, env={"DIR": "{socket_dir}"}, cwd=tmp_path)
    until_sync(lambda: "\n" in plugin.output)
    assert plugin.output == f"{bench.socket_dir} {os.environ['HOME']}\n"


@needs("mount")
def test_a_program_finds_the_bench_at_the_kubelets_paths(bench: Bench, devices: Path) -> None:
    """For plugins with fixed paths: no other process sees the files, and `stop` works as usual."""
    before = sorted(Path("/var/lib").iterdir())
    words = [
        str(DEVICE_PLUGIN_DIR) if word == "{socket_dir}" else word for word in command(devices)
    ]
    assert str(DEVICE_PLUGIN_DIR) in words
    plugin = bench.attach(*words, cwd=ROOT, kubelet_paths=True)
    bench.wait_for(RESOURCE, allocatable=2)
    look = bench.attach("sh", "-c", "touch /var/run/cdi/seen; sleep 60", kubelet_paths=True)
    until_sync((bench.cdi_dir / "seen").exists)
    look.kill()
    plugin.stop()
    assert plugin.returncode == 0
    assert sorted(Path("/var/lib").iterdir()) == before
    assert not Path("/var/run/cdi/seen").exists()


def test_a_program_that_cannot_have_the_kubelets_paths_is_not_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the reason and says what helps."""
    monkeypatch.setattr(bench_module, "DEVICE_PLUGIN_DIR", bench.socket_dir)  # not the host's
    monkeypatch.setattr(bench_module, "GENERATED_DIRECTORY", "/etc/passwd/cdi")
    with pytest.raises(NoPrivateView, match=r"/etc/passwd|unshare"):
        bench.attach("true", kubelet_paths=True)


def test_a_program_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    """`stop` raises `NotInTime`; the children of the program end as well."""
    plugin = bench.attach("sh", "-c", "trap '' TERM; sleep 60 & echo $!; while :; do wait; done")
    until_sync(lambda: "\n" in plugin.output)
    child = int(plugin.output)
    with pytest.raises(NotInTime, match="still running after SIGTERM"):
        plugin.stop(timeout=0.1)
    until_sync(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---------------------------------------------------------------- restarts


def test_a_restart_reads_everything_back(bench: Bench, scanner: Widgets) -> None:
    """The plugin registers again, and the pod still holds its devices."""
    held = bench.allocate("p", "main", {RESOURCE: 2})
    bench.restart()
    bench.wait_for(RESOURCE, allocatable=3)
    assert len(bench.allocate("q", "main", {RESOURCE: 1}).devices) == 1
    with pytest.raises(DevicesUnavailable):
        bench.allocate("r", "main", {RESOURCE: 1})
    assert {*bench.release("p")[RESOURCE]} == {*held.devices}


@pytest.mark.parametrize(
    ("how", "file", "socket"),
    [("restart", True, False), ("wipe", False, False), ("replace_socket", True, True)],
)
def test_files_after_each_form_of_restart(bench: Bench, how: str, file: bool, socket: bool) -> None:
    """Each form of restart removes what its name says."""
    (bench.socket_dir / "file").touch()
    bench.start(Widgets(gadget=widgets("a")), domain=DOMAIN)
    bench.wait_for("example.com/gadget")
    (stale,) = bench.socket_dir.glob("example.com-gadget.*.sock")
    bench.kill_plugin()
    before = (bench.socket_dir / "kubelet.sock").stat()
    getattr(bench, how)()
    assert (bench.socket_dir / "file").exists() is file
    assert stale.exists() is socket
    after = (bench.socket_dir / "kubelet.sock").stat()
    assert (before.st_ino, before.st_ctime_ns) != (after.st_ino, after.st_ctime_ns)


@pytest.mark.parametrize("how", ["restart", "wipe", "replace_socket"])
def test_plugins_register_again_after_each_restart(
    bench: Bench, scanner: Widgets, how: str
) -> None:
    """Our plugin registers again after each form of restart, with the current devices."""
    getattr(bench, how)()
    scanner.show(widget=widgets("a"))
    bench.wait_for(RESOURCE, capacity=1, allocatable=1)


def test_a_restart_may_take_a_given_time(bench: Bench, scanner: Widgets) -> None:
    """The pause is between stop and start."""
    began = time.monotonic()
    bench.restart(away=0.2)
    assert time.monotonic() - began >= 0.2
    bench.wait_for(RESOURCE, allocatable=3)


def test_time_can_be_advanced(bench: Bench, scanner: Widgets) -> None:
    """After the grace period the resource of a lost plugin is gone."""
    bench.kill_plugin()
    bench.wait_for(RESOURCE, capacity=3, allocatable=0)
    bench.advance(minutes=4)
    assert bench.numbers(RESOURCE) == (3, 0)
    bench.advance(seconds=90)
    assert bench.numbers(RESOURCE) == (0, 0)


def test_the_grace_period_can_be_short() -> None:
    """For a plugin in another process, whose clock cannot be moved."""
    with Bench(grace_period=0.1) as bench:
        bench.start(Widgets(widget=widgets("a")), domain=DOMAIN)
        bench.wait_for(RESOURCE)
        bench.kill_plugin()
        until_sync(lambda: bench.numbers(RESOURCE) == (0, 0))


# ---------------------------------------------------------------- faults


def test_a_cancelled_stream_is_noticed(bench: Bench, scanner: Widgets) -> None:
    """The devices are unhealthy until the plugin has registered again."""
    bench.cancel_stream(RESOURCE)
    assert bench.numbers(RESOURCE) == (3, 0)
    bench.wait_for(RESOURCE, allocatable=3)
    assert bench.attempts(RESOURCE) == 2
    with pytest.raises(UnregisteredResource):
        bench.cancel_stream("example.com/other")


def test_a_refused_plugin_gets_the_reason(bench: Bench) -> None:
    """Our plugin ends with the node's text; after `behave` the next plugin registers."""
    with bench.refuse("the node is full"):
        plugin = bench.start(Widgets(widget=widgets("a")), domain=DOMAIN)
        bench.wait_attempts(RESOURCE, 1)
        with pytest.raises(RegistrationRefused, match="the node is full"):
            plugin.wait_ended()
    assert bench.numbers(RESOURCE) == (0, 0)
    bench.start(Widgets(widget=widgets("a")), domain=DOMAIN)
    bench.wait_for(RESOURCE, allocatable=1)
    with pytest.raises(NotInTime, match="not ended"):
        bench.start(Widgets(gadget=widgets("a")), domain=DOMAIN).wait_ended(timeout=0.05)


def test_a_hanging_node_answers_register_after_behave(bench: Bench) -> None:
    """No plugin registers until `behave`; then the waiting Register call succeeds."""
    bench.hang()
    bench.start(Widgets(widget=widgets("a")), domain=DOMAIN)
    bench.wait_attempts(RESOURCE, 1)
    with pytest.raises(NotInTime, match="no resource is registered"):
        bench.wait_for(RESOURCE, timeout=0.2)
    with pytest.raises(NotInTime, match="it is: 1 times"):
        bench.wait_attempts(RESOURCE, 2, timeout=0.1)
    bench.behave()
    bench.wait_for(RESOURCE, allocatable=1)
    assert bench.attempts(RESOURCE) == 1


def test_a_slow_node_answers_register_late(bench: Bench) -> None:
    """The plugin registers after the delay."""
    bench.slow(0.3)
    began = time.monotonic()
    bench.start(Widgets(widget=widgets("a")), domain=DOMAIN)
    bench.wait_for(RESOURCE, allocatable=1)
    assert time.monotonic() - began >= 0.3


def test_faults_last_over_a_restart(bench: Bench, scanner: Widgets) -> None:
    """A plugin that registers again after the restart has the same fault."""
    with bench.hang():
        bench.restart()
        bench.wait_attempts(RESOURCE, 2)
        assert bench.numbers(RESOURCE).allocatable == 0
    bench.wait_for(RESOURCE, allocatable=3)


# ---------------------------------------------------------------- leaving nothing behind


@pytest.fixture
def threads() -> Iterator[None]:
    """Check that no thread is left that was not there before."""
    before = set(threading.enumerate())
    yield
    until_sync(lambda: not set(threading.enumerate()) - before)


@pytest.mark.usefixtures("threads")
def test_nothing_is_left(devices: Path) -> None:
    """No thread, no process and no file is left, also if a plugin does not end."""
    with Bench() as bench:
        stubborn = bench.attach("sh", "-c", "trap '' TERM; sleep 60")
        plugin = bench.attach(*command(devices), cwd=ROOT)
        bench.start(Widgets(widget=widgets("a")), domain="other.example.com")
        bench.wait_for(RESOURCE)
        root = bench.socket_dir.parent
        assert str(root) in repr(bench)
    assert not root.exists()
    assert not is_alive(plugin.pid)
    assert not is_alive(stubborn.pid)
    with pytest.raises(UsageError, match="after its end"):
        bench.numbers(RESOURCE)


@pytest.mark.usefixtures("threads")
def test_a_bench_that_cannot_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No thread and no directory is left."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "device-plugins").touch()
    monkeypatch.setattr(bench_module, "_short_directory", lambda: root)
    with pytest.raises(KubedevicesError, match="is not a directory"):
        Bench()
    assert not root.exists()


def test_its_paths_are_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This does not depend on the path of the temporary directory."""
    deep = tmp_path / "a-directory-with-a-long-name"
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with Bench() as bench:
        assert len(str(bench.socket_dir)) < 40


class Asking(kd.PolledScanner):
    """Calls the bench on the bench's own loop."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    async def list_devices(self) -> kd.DeviceTree:
        self.bench.numbers(RESOURCE)
        return kd.DeviceTree()


def test_a_call_on_the_benchs_own_loop_is_an_error_not_a_deadlock(bench: Bench) -> None:
    """A scanner cannot wait for the loop on which it runs."""
    bench.start(Asking(bench), domain=DOMAIN)
    with pytest.raises(ScanFailed, match="from code that runs on its own loop"):
        bench.wait_for(RESOURCE)
