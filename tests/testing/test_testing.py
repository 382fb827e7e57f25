"""The pytest plugin in a user's project: fixtures, `StubPlugin` and `conformance`."""

import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices import testing
from kubedevices.errors import PreferredAllocationFailed, RpcError, StatusCode
from kubedevices.kubelet_api.clients import PluginRegistrationClient
from kubedevices.testing import NotConformant, StubPlugin, conformance
from kubedevices.testing.workbench import Bench
from kubedevices.values.allocation import ContainerOptions
from kubedevices.values.device import DeviceSpec
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.check.rig import FAST
from tests.plugin_process import ROOT
from tests.waiting import until_sync
from tests.widgets import DOMAIN, QUICK, Widgets, widgets

STUB = "example.com/stub"

# ---------------------------------------------------------------- in a user's project

RunTests = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_tests(tmp_path: Path) -> RunTests:
    """Run a test file in a project that has kubedevices and pytest, and no settings."""

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(textwrap.dedent(text))
        (tmp_path / "pytest.ini").touch()
        others = ("asyncio", "timeout", "randomly", "hypothesispytest")
        without = [word for name in others for word in ("-p", f"no:{name}")]
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "pytest", *without, "-q", *options, "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_the_fixture_needs_no_import_and_no_setting(run_tests: RunTests) -> None:
    """The fixture works without pytest-asyncio and without an import."""
    ran = run_tests(
        """\
        import kubedevices as kd

        class One(kd.PolledScanner):
            def list_devices(self):
                return kd.DeviceTree({"widget": [kd.Device("w", numa_nodes=())]})

        def test_it(bench):
            bench.start(One(), domain="example.com")
            bench.wait_for("example.com/widget", allocatable=1)
            assert bench.allocate("pod", "main", {"example.com/widget": 1}).devices == ("w",)
        """
    )
    assert "1 passed" in ran.stdout, ran.stdout


def test_an_unseen_failure_is_an_error_of_the_test(run_tests: RunTests) -> None:
    """The fixture raises the failure with the scanner's own text."""
    ran = run_tests(
        """\
        import time
        import kubedevices as kd

        class None_(kd.PolledScanner):
            def list_devices(self):
                raise OSError("no bus")

        def test_it(bench):
            plugin = bench.start(None_(), domain="example.com")
            while plugin.is_running:
                time.sleep(0.01)
        """
    )
    assert ran.returncode == 1
    assert "1 passed, 1 error" in ran.stdout
    assert "OSError: no bus" in ran.stdout


def test_an_unused_pytest_plugin_loads_no_modules(run_tests: RunTests) -> None:
    """Neither asyncio nor any module of ours but the plugin and its packages is loaded."""
    ran = run_tests(
        """\
        import sys

        def test_it():
            ours = {name for name in sys.modules if name.startswith("kubedevices")}
            assert ours == {
                "kubedevices",
                "kubedevices.testing",
                "kubedevices.testing.fixtures",
                "kubedevices.version",
            }
            assert not {"asyncio", "google.protobuf", "sqlite3"} & set(sys.modules)
        """
    )
    assert "1 passed" in ran.stdout, ran.stdout


def test_fixtures_are_explained(run_tests: RunTests) -> None:
    """`pytest --fixtures` shows the docstring of `bench`."""
    assert "Return a running node in its own directory" in run_tests("", "--fixtures").stdout


def test_an_unknown_name_raises_attribute_error() -> None:
    """An unknown name raises the usual error."""
    with pytest.raises(ImportError, match="Bnech"):
        from kubedevices.testing import Bnech  # noqa: F401


def test_every_name_is_on_the_reference_page() -> None:
    """The page lists what can be imported, and nothing else."""
    page = (ROOT / "docs" / "reference.md").read_text()
    section = page.partition("## `from kubedevices.testing import …`")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert sorted(listed) == sorted(testing.__all__)
    assert all(getattr(testing, name) for name in listed)


# ---------------------------------------------------------------- the stub


def devices(*ids: str) -> list[kd.Device]:
    return [kd.Device(each, numa_nodes=()) for each in ids]


def test_a_stub_is_a_plugin(bench: Bench) -> None:
    """It registers by itself, and its devices can be allocated; the default answer is empty."""
    with StubPlugin(devices("a", "b"), socket_dir=bench.socket_dir) as stub:
        bench.wait_for(STUB, allocatable=2)
        got = bench.allocate("p", "main", {STUB: 1})
        assert got.options == ContainerOptions()
        assert stub.allocations == [got.devices]
        assert stub.registrations == 1
        assert stub_threads()
    assert not stub.socket.exists()
    bench.wait_for(STUB, allocatable=0)
    until_sync(lambda: not stub_threads())


def stub_threads() -> list[str]:
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name.startswith(("stub ", "hook "))]


def test_an_update_lasts(bench: Bench) -> None:
    """Open streams, later streams and a restarted stub have the new list."""
    stub = StubPlugin(devices("a"), socket_dir=bench.socket_dir)
    stub.update(devices("a", "b"))
    with stub:
        bench.wait_for(STUB, allocatable=2)
        stub.update(devices("a", "b", "c"))
        bench.wait_for(STUB, allocatable=3)
        bench.restart()
        bench.wait_for(STUB, allocatable=3)
        until_sync(lambda: stub.registrations == 2)
        stub.restart()
        until_sync(lambda: stub.registrations == 3)
        bench.wait_for(STUB, allocatable=3)


@pytest.mark.parametrize("how", ["restart", "wipe", "replace_socket"])
def test_a_stub_registers_again(bench: Bench, how: str) -> None:
    """This works also if its own socket was removed."""
    with StubPlugin(devices("a"), socket_dir=bench.socket_dir) as stub:
        bench.wait_for(STUB, allocatable=1)
        getattr(bench, how)()
        until_sync(lambda: stub.registrations == 2)
        bench.wait_for(STUB, allocatable=1)


def test_answers_are_settable(bench: Bench) -> None:
    """A test sets the answers of Allocate and GetPreferredAllocation, and reads PreStart calls."""

    def allocate(request: kd.AllocateRequest) -> kd.AllocateResponse:
        answer = kd.ContainerAllocateResponse(devices=[DeviceSpec("/dev/null")])
        return kd.AllocateResponse([answer for _ in request.containers])

    stub = StubPlugin(
        devices("a", "b", "c"), socket_dir=bench.socket_dir, pre_start=True, preferred=True
    )
    stub.allocate = allocate
    with stub:
        bench.wait_for(STUB, allocatable=3)
        assert len(bench.allocate("o", "main", {STUB: 1}).devices) == 1
        bench.release("o")
        stub.prefer = lambda request: ["c"]
        got = bench.allocate("p", "main", {STUB: 1})
        assert got.devices == ("c",)
        assert got.options.devices == (DeviceSpec("/dev/null"),)
        assert stub.pre_starts == []
        bench.options("p", "main")
        assert stub.pre_starts == [("c",)]


def fail(_request: object) -> kd.AllocateResponse:
    raise RpcError(StatusCode.UNAVAILABLE, "no power")


def test_a_stub_may_raise(bench: Bench) -> None:
    """The error of a function is the answer of the call."""
    stub = StubPlugin(devices("a"), socket_dir=bench.socket_dir, preferred=True)
    stub.allocate = fail
    with stub:
        bench.wait_for(STUB)
        with pytest.raises(RpcError, match="no power"):
            bench.allocate("p", "main", {STUB: 1})
        stub.prefer = fail  # type: ignore[assignment]
        stub.update(devices("a", "b"))
        bench.wait_for(STUB, allocatable=2)
        with pytest.raises(PreferredAllocationFailed):
            bench.allocate("p", "main", {STUB: 1})


def test_a_stub_asks_whether_it_may_register(bench: Bench) -> None:
    """The stub calls `may_register` before each registration; `register` does not call it."""
    answers: list[bool] = []
    may = threading.Event()

    def ask() -> bool:
        answers.append(may.is_set())
        return answers[-1]

    stub = StubPlugin(devices("a"), socket_dir=bench.socket_dir)
    stub.may_register = ask
    with stub:
        until_sync(lambda: len(answers) > 1)
        assert bench.attempts(STUB) == 0
        may.set()
        bench.wait_for(STUB, allocatable=1)
        may.clear()
        answers.clear()
        bench.restart()
        until_sync(lambda: len(answers) > 1)
        assert bench.numbers(STUB).allocatable == 0
        stub.register()
        bench.wait_for(STUB, allocatable=1)


def test_a_refused_stub_tries_again(bench: Bench) -> None:
    """The stub stores the node's text."""
    with bench.refuse("full"), StubPlugin(devices("a"), socket_dir=bench.socket_dir) as stub:
        bench.wait_attempts(STUB, 3)
        assert stub.refusal == "full"
        with pytest.raises(RpcError, match="full"):
            stub.register()
        bench.behave()
        bench.wait_for(STUB, allocatable=1)


async def test_a_stub_serves_both_services(short_dir: Path) -> None:
    """A plugin watcher can call GetInfo on the same socket."""
    with StubPlugin(socket_dir=short_dir) as stub:
        async with await GrpcChannel.dial(stub.socket) as channel:
            client = PluginRegistrationClient(channel)
            info = await client.get_info(timeout=5)
            assert (info.type, info.name) == ("DevicePlugin", STUB)
            assert info.supported_versions == ("v1beta1",)
            await client.notify_registration_status(registered=False, error="no", timeout=5)
            assert stub.refusal == "no"


# ---------------------------------------------------------------- conformance


class Bad(Widgets, kd.Allocator):
    """Answers Allocate without a container response."""

    def allocate(self, request: kd.AllocateRequest) -> kd.AllocateResponse:
        return kd.AllocateResponse([])


def test_a_good_scanner_conforms() -> None:
    """All results are returned; checks that need a process are skipped with a reason."""
    scanner = Widgets(widget=widgets("a", "b", "c", unhealthy=("c",)))
    results = conformance(
        scanner, domain=DOMAIN, skip=["life.stream-cancelled"], check_timing=FAST, timing=QUICK
    )
    by_status = {result.status.value for result in results}
    assert by_status == {"pass", "skip"}, [r for r in results if r.status.value == "warn"]
    skipped = {result.check.id for result in results if result.status.value == "skip"}
    assert {"life.stop-time", "life.lost-updates"} <= skipped
    assert len(results) - len(skipped) > 30


def test_a_bad_scanner_does_not_conform() -> None:
    """The message is the report, and the error has all results."""
    with pytest.raises(NotConformant, match=r"FAIL allocate\.") as caught:
        conformance(Bad(widget=widgets("a")), domain=DOMAIN, only=["allocate"], check_timing=FAST)
    assert isinstance(caught.value, AssertionError)
    assert {result.status.value for result in caught.value.results} >= {"fail"}
