"""`kubedevices node`, in a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubedevices.cli.node.node import describe
from kubedevices.node.device_manager import DeviceManager
from tests.cli.commands import COMMAND, DEADLINE, FEW_FILES, may_open_all_files, run, running
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE, FakePlugin, healthy, unhealthy
from tests.waiting import until_sync

Process = subprocess.Popen[str]

NOT_NEEDED = {
    "_ssl",
    *("plugin_pages", "process_samples", "page_server", "prometheus_client"),
    *(
        "node.services.pod_resources",
        "kubelet_api.pod_resources",
        "node.arrival.plugin_watcher",
        "plugin.timing",
    ),
    *("node.checkpoint.text", "node.checkpoint.reader", "yaml", "rich"),
    *("tempfile", "shutil", "fractions", "decimal", "multiprocessing", "importlib.resources"),
}
"""Modules of ours, of others and of Python that a plain `node` loads when it is asked for more."""


@pytest.fixture
def directory(short_dir: Path) -> Path:
    """Give a socket directory that is not there yet."""
    return short_dir / "p"


@contextmanager
def node(directory: Path, *options: str) -> Iterator[Process]:
    """Run a node until it is ready."""
    arguments = ["node", "--socket-dir", str(directory), *options]
    with running(arguments, log=directory.with_name("log")) as process:
        assert "ready" in line(process)
        yield process


def line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def event(process: Process) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(line(process))
    assert made.pop("time").endswith("Z")
    return made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_prints_ready_and_stops_cleanly(directory: Path, number: signal.Signals) -> None:
    """Both signals: exit code 0, no socket is left, nothing on stderr."""
    with node(directory) as process:
        assert (directory / "kubelet.sock").is_socket()
        process.send_signal(number)
        output, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0
    assert output.split()[1:] == ["stopped"]
    assert not (directory / "kubelet.sock").exists()
    assert not (directory.with_name("p.state") / "control.sock").exists()
    assert directory.with_name("log").read_text() == ""


def test_a_background_job_of_a_script_ignores_ctrl_c(directory: Path) -> None:
    """The script's shell ignores SIGINT for the node, and the node keeps that; SIGTERM stops it."""
    words = ["-m", "kubedevices.cli", "node", "--socket-dir", str(directory)]
    process = subprocess.Popen(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, *words],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert "ready" in line(process)
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()
        assert process.wait(DEADLINE) == 0
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    assert ignored >> (signal.SIGINT - 1) & 1


def test_the_ready_line_says_how_to_ask(directory: Path) -> None:
    """With the directory, to copy from."""
    arguments = ["node", "--socket-dir", str(directory)]
    with running(arguments, log=directory.with_name("log")) as process:
        said = line(process)
    assert said[9:].split(maxsplit=1) == [
        "ready",
        f"plugins register in {directory} (kubedevices devices --socket-dir {directory})\n",
    ]


def test_the_ready_line_names_a_state_directory_of_its_own(directory: Path) -> None:
    """Quoted for a shell: without it the printed command would find no node."""
    state = directory.with_name("my state")
    arguments = ["node", "--socket-dir", str(directory), "--state-dir", str(state)]
    with running(arguments, log=directory.with_name("log")) as process:
        said = line(process)
    assert f"(kubedevices devices --socket-dir {directory} --state-dir '{state}')" in said


def test_a_start_loads_only_what_it_needs(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pages, no podresources, no reader of checkpoints: who asks for them loads them."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with node(directory):
        lines = directory.with_name("log").read_text().splitlines()
    loaded = {each.rpartition("|")[2].strip().removeprefix("kubedevices.") for each in lines}
    assert "node.device_manager" in loaded
    assert loaded & NOT_NEEDED == set()


async def test_every_event_is_one_json_line(directory: Path) -> None:
    """The keys are a promise."""
    with node(directory, "-o", "json", "--grace-period", "0.2") as process:
        async with FakePlugin(directory) as plugin:
            await plugin.send([*healthy("a", "b"), *unhealthy("c")])
            await plugin.register()
            assert await asyncio.to_thread(event, process) == {
                "event": "registered",
                "resource": RESOURCE,
                "socket": "widget.sock",
            }
            assert await asyncio.to_thread(event, process) == {
                "event": "list changed",
                "resource": RESOURCE,
                "capacity": 3,
                "allocatable": 2,
                "appeared": ["a", "b", "c"],
                "vanished": [],
                "moved": [],
            }
        gone = await asyncio.to_thread(event, process)
        assert (gone["event"], gone["devices"]) == ("disconnected", 3)
        assert await asyncio.to_thread(event, process) == {"event": "removed", "resource": RESOURCE}


async def test_a_plugin_comes_back_to_a_node_that_was_killed(directory: Path) -> None:
    """A second node takes over after SIGKILL: the stale sockets and the lock are no obstacle."""
    with node(directory) as process:
        process.kill()
        process.wait(DEADLINE)
    assert (directory / "kubelet.sock").is_socket()
    with node(directory) as process:
        async with FakePlugin(directory, devices=healthy("a")) as plugin:
            await plugin.register()
            assert "registered" in await asyncio.to_thread(line, process)


def test_a_signal_during_the_start_stops_the_node_cleanly(
    directory: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """A ledger of many pods takes a while to read."""

    async def start(_: DeviceManager) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(DEADLINE):
            await asyncio.Event().wait()

    monkeypatch.setattr(DeviceManager, "start", start)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        shown = cli("node", "--socket-dir", directory)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert shown.out.split()[1:] == ["stopped"]


def test_a_node_continues_if_its_output_cannot_be_written(
    directory: Path, cli: CommandLine
) -> None:
    """The disk with its log is full: allocations are what counts."""
    with Path("/dev/full").open("w") as full, directory.with_name("log").open("w") as log:
        arguments = [*COMMAND, "node", "--socket-dir", str(directory)]
        with subprocess.Popen(arguments, stdout=full, stderr=log) as process:
            try:
                control = directory.with_name("p.state") / "control.sock"
                until_sync(lambda: control.exists() or process.poll() is not None)
                cli("devices", "--socket-dir", directory)
            finally:
                process.terminate()
    assert directory.with_name("log").read_text() == ""


def test_a_second_signal_ends_the_node_at_once(directory: Path, short_dir: Path) -> None:
    """Even when something hangs while stopping."""
    code = (
        "import asyncio, kubedevices.node.device_manager as d; from kubedevices.cli import main\n"
        "async def hang(self): print('stopping', flush=True); await asyncio.sleep(600)\n"
        "d.DeviceManager.stop = hang\n"
        f"main(['node', '--socket-dir', {str(directory)!r}])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=short_dir
    ) as process:
        assert "ready" in line(process)
        process.terminate()
        assert line(process) == "stopping\n"
        process.terminate()
        assert process.wait(DEADLINE) == -signal.SIGTERM


def test_a_node_whose_reader_left_stops_cleanly(directory: Path) -> None:
    """`kubedevices node | head -1` must not leave a socket."""
    arguments = ["node", "--socket-dir", str(directory)]
    with running(arguments, log=directory.with_name("log")) as process:
        line(process)
        assert process.stdout is not None
        process.stdout.close()
        process.terminate()
        until_sync(lambda: process.poll() is not None)
        process.stdout = Path(os.devnull).open()  # noqa: SIM115 - for communicate()
    assert not (directory / "kubelet.sock").exists()
    assert directory.with_name("log").read_text() == ""


def test_a_second_node_is_refused_with_the_first_named(directory: Path, cli: CommandLine) -> None:
    """By the lock, and with another state directory by the socket; the first is unharmed."""
    with node(directory) as process:
        result = run("node", "--socket-dir", directory)
        assert result.returncode == 3
        first = f"another kubedevices node, process {process.pid} ({sys.executable} "
        assert first in result.stderr
        assert "), uses the state directory" in result.stderr
        result = run("node", "--socket-dir", directory, "--state-dir", directory.with_name("o"))
        assert result.returncode == 3
        assert "kubelet.sock is already in use (a kubelet or another node" in result.stderr
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)
        cli("devices", "--socket-dir", directory)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--socket-dir", "/dev/null/x"], 3, "cannot create /dev/null/x"),
        (["--socket-dir", "/proc/x"], 3, "cannot create /proc/x"),
        (["--socket-dir", "/tmp/" + "x" * 100], 3, "Linux allows 107"),
        (["--socket-dir", ""], 2, "--socket-dir: the path is empty"),
        (["--grace-period", "-1"], 2, "'-1' is not a number of seconds"),
        (["--grace-period", "nan"], 2, "'nan' is not a number of seconds"),
        (["--grace-period", "five"], 2, "'five' is not a number of seconds"),
        (["-o", "yaml"], 2, "invalid choice: 'yaml'"),
        (["surplus"], 2, "unrecognized arguments: surplus"),
    ],
)
def test_impossible_arguments_are_refused_in_one_line(
    short_dir: Path, cli: CommandLine, arguments: list[str], code: int, text: str
) -> None:
    """With the exit code for usage or for the machine."""
    error = cli("node", "--state-dir", short_dir / "s", *arguments, code=code).err
    assert text in error
    assert error.count("\n") == 1


def test_a_relative_directory_is_one_below_the_current(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """The node and the commands that ask it mean the same place."""
    monkeypatch.chdir(short_dir)
    with node(short_dir / "here"):
        shown = cli("devices", "--socket-dir", "here")
    assert "no plugin has registered" in shown.err


MANY = [f"d{n}" for n in range(10)]
CHANGE = {"resource": "r", "capacity": 3, "allocatable": 2}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ({"event": "registered", "resource": "r", "socket": "x"}, "registered     r: at x"),
        (
            {"event": "refused", "resource": "r", "socket": "x", "reason": "no"},
            "refused        r: at x: no",
        ),
        (
            {"event": "list changed", "appeared": ["a", ""], "vanished": ["b"], "moved": ["c"]},
            'list changed   r: +a,""; -b; moved c (capacity 3, allocatable 2)',
        ),
        (
            {"event": "list changed", "appeared": [], "vanished": [], "moved": []},
            "list changed   r: no devices (capacity 3, allocatable 2)",
        ),
        (
            {"event": "health changed", "devices": {"a": "Healthy", "b": "Unhealthy"}},
            "health changed r: a Healthy; b Unhealthy (capacity 3, allocatable 2)",
        ),
        (
            {"event": "disconnected", "resource": "r", "devices": 2, "reason": "gone"},
            "disconnected   r: 2 devices Unknown: gone",
        ),
        (
            {"event": "removed", "resource": "r"},
            "removed        r: its plugin did not come back within the grace period",
        ),
        (
            {"event": "allocated", "pod": "n/p", "containers": {"c": {"r": MANY}, "d": {"r": []}}},
            "allocated      n/p: c: r d0,d1,d2,d3,d4,d5,d6,d7 and 2 more; d: r",
        ),
        ({"event": "rejected", "pod": "n/p", "message": "no"}, "rejected       n/p: no"),
        ({"event": "released", "pod": "n/p", "devices": {"r": ["a"]}}, "released       n/p: r a"),
        (
            {"event": "missed", "events": 3},
            "missed         3 events: this output was too slow",
        ),
        ({"event": "stopped"}, "stopped"),
    ],
)
def test_an_event_is_one_line_for_people(made: dict[str, Any], text: str) -> None:
    """Long lists of devices are shortened; JSON has them all."""
    assert describe({**CHANGE, **made} if "changed" in made["event"] else made) == text


def test_devices_left_behind_are_reported_at_the_start(directory: Path) -> None:
    """With its pod, the reason, and what to do."""
    with node(directory) as process, node_plugin(directory):
        command = ["with", f"{RESOURCE}=1", "--socket-dir", str(directory), "--pod-name", "train"]
        killed = subprocess.Popen([*COMMAND, *command, "--", "sh", "-c", "kill -9 $PPID"])
        assert killed.wait(DEADLINE) == -signal.SIGKILL
        process.kill()
        process.wait()
    with node(directory) as process:
        told = line(process)
        assert "left behind    default/train: its command is gone (sh -c 'kill -9 $PPID')" in told
        assert "(kubedevices release default/train)" in told


@contextmanager
def node_plugin(directory: Path) -> Iterator[None]:
    """Run a plugin with one device in a process of its own, until it is listed."""
    simulator = ["simulate", "--resource-name", RESOURCE, "--number-devices", "1"]
    with running([*simulator, "--socket-dir", str(directory)], log=directory.with_name("plugin")):

        def is_listed() -> bool:
            return RESOURCE in run("devices", "--socket-dir", directory).stdout

        until_sync(is_listed, DEADLINE)
        yield


def test_several_nodes_run_in_one_process(directory: Path) -> None:
    """Each has its own directory, state and podresources, and its name before each of its lines."""
    with running(
        ["node", "--socket-dir", str(directory), "--count", "2", "-o", "json"],
        log=directory.with_name("log"),
        before=FEW_FILES,
    ) as process:
        begun = [event(process) for _ in range(4)]
        assert [(each["event"], each["node"]) for each in begun] == [
            ("serving", "node-1"), ("ready", "node-1"),
            ("serving", "node-2"), ("ready", "node-2"),
        ]  # fmt: skip
        assert may_open_all_files(process.pid)
        places = [directory / name / "plugins" for name in ("node-1", "node-2")]
        assert [each["socket_dir"] for each in begun[1::2]] == [str(place) for place in places]
        with running(
            ["simulate", "--socket-dir", str(places[1])], log=directory.with_name("plugin")
        ):
            resource = "example.com/simple-device"
            assert (
                run("wait", resource, "--allocatable", 2, "--socket-dir", places[1]).returncode == 0
            )
            registered = event(process)
            assert (registered["event"], registered["node"]) == ("registered", "node-2")
            listed = run("devices", "--socket-dir", places[0], "-o", "json")
            assert resource not in listed.stdout
            pods = [
                run("devices", "--pod-resources", each["at"], "-o", "json").stdout
                for each in begun[::2]
            ]
            assert [resource in each for each in pods] == [False, True]
        assert (directory / "node-2/plugins.state").is_dir()
        sockets = [directory / name / "pod-resources/kubelet.sock" for name in ("node-1", "node-2")]
        assert [each["at"] for each in begun[::2]] == [str(each) for each in sockets]
    assert not any(each.exists() for each in sockets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--count", "0"], "--count 0: from 1 to 100 nodes"),
        (
            ["--count", "2", "--listen", "0"],
            "--listen cannot be used with --count: ",
        ),
        (["--count", "2", "--state-dir", "/x"], "--state-dir cannot be used with --count"),
        (["--count", "2", "--pod-resources", "/x"], "--pod-resources cannot be used with"),
    ],
)
def test_an_impossible_count_is_refused(
    options: list[str], message: str, directory: Path, cli: CommandLine
) -> None:
    """Before anything starts; the kubelet's directory is never one of many."""
    assert message in cli("node", "--socket-dir", directory, *options, code=2).err
    assert "--count needs --socket-dir DIR" in cli("node", "--count", "2", code=2).err
