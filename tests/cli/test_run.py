"""`kubedevices run`."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import run, running
from tests.command_line import CommandLine
from tests.fake_kubelet import FakeKubelet
from tests.waiting import until, until_sync

SCANNERS = """\
import kubedevices as kd

class Widgets(kd.PolledScanner):
    def __init__(self, count: int = 2):
        self.count = count
    def list_devices(self):
        devices = [kd.Device(f"w{i}", numa_nodes=()) for i in range(self.count)]
        return kd.DeviceTree({"widget": devices})

def shared(count: int, replicas: int = 2):
    return kd.Shared(Widgets(count), kd.ShareRule(replicas=replicas))

class Short(kd.Scanner):
    async def scan(self, notifier):
        notifier.notify(kd.DeviceTree({"widget": [kd.Device("w0", numa_nodes=())]}))

class Raises(kd.PolledScanner):
    def list_devices(self):
        raise RuntimeError("no driver")
"""

NAMELESS = "import kubedevices as kd\nclass X(kd.PolledScanner):\n    def list_device(self): ...\n"


@pytest.fixture(autouse=True)
def directory(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work beside a module with scanners; sockets go into the same directory."""
    (short_dir / "scanners.py").write_text(SCANNERS)
    (short_dir / "abstract.py").write_text(NAMELESS)
    (short_dir / "broken.py").write_text("import surely_not_installed\n")
    (short_dir / "s").mkdir()
    monkeypatch.chdir(short_dir)
    return short_dir


async def test_a_scanner_is_registered_and_stopped(directory: Path) -> None:
    """With the constructor's arguments; SIGTERM leaves no socket and exit code 0."""
    sockets = directory / "s"
    arguments = ["run", "scanners:Widgets", "--domain", "example.com", "--arg", "count=3"]
    log = directory / "log"
    async with FakeKubelet(sockets) as kubelet:
        with running([*arguments, "--socket-dir", sockets], log=log) as process:
            await kubelet.wait_for("example.com/widget", 3)
            process.send_signal(signal.SIGTERM)
            await until(lambda: process.poll() is not None, what="the end of the process")
        assert process.returncode == 0
        assert [path.name for path in sockets.iterdir()] == ["kubelet.sock"]
        assert " INFO    plugin.registrar: example.com/widget: " in log.read_text()
        assert "Traceback" not in log.read_text()


async def test_a_function_that_returns_a_scanner_in_a_middleware_is_run(directory: Path) -> None:
    """The kubelet gets what the middleware makes of the devices."""
    sockets = directory / "s"
    arguments = ["run", "scanners:shared", "--domain", "example.com", "--arg", "count=3"]
    async with FakeKubelet(sockets) as kubelet:
        with running([*arguments, "--socket-dir", sockets], log=directory / "log"):
            await kubelet.wait_for("example.com/widget", 6)


def test_ctrl_c_ends_a_plugin_that_waits_for_a_kubelet(directory: Path) -> None:
    """No traceback, no socket."""
    log = directory / "log"
    arguments = ["run", "scanners:Widgets", "--domain", "example.com", "--socket-dir", "s"]
    with running(arguments, log=log) as process:
        until_sync(lambda: [*directory.glob("s/example.com-widget.*.sock")])
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert list((directory / "s").iterdir()) == []
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["scanners:Raises", "--domain", "a.example"], 1, "Raises failed: RuntimeError: no driver"),
        (["scanners:Widgets", "--domain", "foo_bar"], 2, "'foo_bar' is not a domain"),
        (["scanners:Nope", "--domain", "a.example"], 2, "scanners has no 'Nope'"),
        (["broken:X", "--domain", "a.example"], 2, "broken does not import: ModuleNotFoundError"),
        (["abstract:X", "--domain", "a.example"], 2, "X lacks list_devices() (is list_device()"),
        (["nowhere:X", "--domain", "a.example"], 2, "there is no module 'nowhere'"),
        (["scanners:Widgets", "--domain", "a.example", "--socket-dir", "/tmp/" + "x" * 100], 3,
         "socket path has "),
    ],
)  # fmt: skip
def test_an_error_is_one_line(
    arguments: list[str], code: int, message: str, cli: CommandLine
) -> None:
    """With the exit code of its kind, and no log line about it."""
    if "--socket-dir" not in arguments:
        arguments = [*arguments, "--socket-dir", "s"]
    captured = cli("run", *arguments, code=code)
    assert captured.out == ""
    assert captured.err.startswith("kubedevices: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_user_sees_only_the_message(directory: Path) -> None:
    """In a process of its own."""
    found = run("run", "scanners:Raises", "--domain", "a.example", "--socket-dir", "s")
    assert (found.returncode, found.stdout) == (1, "")
    failed = "kubedevices: scanner Raises failed: RuntimeError: no driver (scanners.py:19)\n"
    assert found.stderr == failed


def test_a_serving_process_loads_what_it_needs_and_no_more(directory: Path) -> None:
    """Neither the node's half, nor YAML, nor what draws tables, nor any gRPC framework."""
    code = (
        "import sys; from kubedevices.cli import main;"
        "code = main(['run', 'scanners:Short', '--domain', 'a.example', '--socket-dir', 's',"
        " '--registration', 'none', '--log-level', 'warning']);"
        "print(*sys.modules); sys.exit(code)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    loaded = set(found.stdout.split())
    assert "kubedevices.plugin.runner" in loaded
    assert not loaded & {
        "kubedevices.node", "kubedevices.expose.scanner", "kubedevices.config.yaml_config", "yaml",
        "rich", "grpc", "grpclib", "unittest", "difflib", "http.client", "multiprocessing",
    }  # fmt: skip
