"""`kubedevices explain`: what it prints, and with which exit code it ends."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubedevices.cli.find_mistakes import explain as verb
from kubedevices.explain.finding import Step
from kubedevices.explain.on_node.diagnosis import Diagnosis, ResourceReport
from kubedevices.explain.on_node.host_paths import HostPaths
from kubedevices.host import listing, terminal
from kubedevices.kubelet_api import proxy_client
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.values.socket_paths import DEVICE_PLUGIN_DIR, PROXY_SOCKET_NAME, STATE_DIR
from kubedevices.wire.unix_grpc import GrpcServer
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.node_thread import NodeThread, node_thread
from tests.proxy_answers import PLUGIN, start_answering

KEYS = ["step", "result", "looked_at", "found", "advice", "command"]


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node whose plugin has two healthy devices."""
    with node_thread(short_dir / "p") as running:
        running.serve(healthy("w0", "w1"))
        yield running


@pytest.fixture
def proxy(node: NodeThread, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrpcServer]:
    """Let a proxy with one plugin answer in the node's directory."""
    monkeypatch.setattr(proxy_client, "DEADLINE", 30.0)
    socket = node.manager.state_dir / PROXY_SOCKET_NAME
    server = node.call(start_answering(socket, [PLUGIN.as_dict()]))
    yield server
    node.call(server.stop())


@pytest.fixture
def explain(node: NodeThread, cli: CommandLine) -> CommandLine:
    return cli.of("explain", after=("--socket-dir", node.socket_dir))


def test_without_a_resource_each_has_a_line(node: NodeThread, explain: CommandLine) -> None:
    """Below what is said about the directory; all is well, so the exit code is 0."""
    shown = explain().out
    assert "ok       kubelet.sock    " in shown
    assert "python" in shown or "pytest" in shown  # who listens
    assert f"directory       {node.socket_dir}: " in shown
    assert "kubelet.sock    kubelet.sock: " in shown  # the directory is told once
    heading, line, _, count = shown.splitlines()[-4:]
    assert heading.split() == ["RESOURCE", "CAPACITY", "ALLOCATABLE", "HELD", "RESULT"]
    assert line.split() == [RESOURCE, "2", "2", "0", "ok"]
    assert count == "no problem"


def test_with_a_resource_the_steps_are_in_order(explain: CommandLine) -> None:
    """One paragraph per station, each begins with how it came out."""
    *lines, _, count = explain(RESOURCE).lines
    assert count == "no problem"
    steps = [line[9:24].strip() for line in lines if line[0] != " "]
    assert steps == [
        "name",
        "directory",
        "kubelet.sock",
        "path length",
        "plugin socket",
        "registration",
        "device list",
        "health",
        "held",
        "NUMA nodes",
        "device file",
    ]


def test_a_proxy_is_a_step(node: NodeThread, proxy: GrpcServer, explain: CommandLine) -> None:
    """Before the registration; it answers in the node's directory."""
    shown = explain(RESOURCE, "-o", "json")
    node.call(proxy.stop())
    (resource,) = shown.data["resources"]
    steps = [each["step"] for each in resource["findings"]]
    assert steps.index("name") < steps.index("proxy") < steps.index("registration")
    assert "/in/card.sock" in resource["findings"][steps.index("proxy")]["found"]
    assert "proxy" not in explain(RESOURCE).out


@pytest.mark.usefixtures("proxy")
def test_without_a_resource_every_plugin_behind_the_proxy_has_a_line(
    node: NodeThread, cli: CommandLine
) -> None:
    """Whose plugin is behind what the kubelet gets."""
    out = cli("explain", "--socket-dir", node.socket_dir).out
    (line,) = [each for each in out.splitlines() if "/in/card.sock" in each]
    assert line.startswith("ok       proxy           proxy, vendor.org/card: its plugin at ")
    assert line.endswith(f"the kubelet gets {RESOURCE}")


def test_a_problem_exits_1_and_prints_advice_and_command(explain: CommandLine) -> None:
    """Exit code 1, an advice, and a command in a line of its own."""
    lines = explain("example.com/wigdet", code=1).lines
    at = next(i for i, line in enumerate(lines) if line.startswith("problem  registration"))
    assert f"known resources: {RESOURCE}" in lines[at]
    assert lines[at + 1].strip() == f"→ did you mean {RESOURCE}?"
    assert lines[at + 2].strip() == f"$ kubedevices explain {RESOURCE}"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_and_yaml_have_the_same_keys(
    node: NodeThread, explain: CommandLine, output: str
) -> None:
    """They are a promise."""
    shown = explain("-o", output)
    document = shown.data if output == "json" else yaml.safe_load(shown.out)
    assert list(document) == ["socket_dir", "source", "result", "findings", "resources"]
    (resource,) = document["resources"]
    expected = ["resource", "result", "capacity", "allocatable", "held", "findings"]
    assert list(resource) == expected
    assert {tuple(each) for each in [*document["findings"], *resource["findings"]]} == {tuple(KEYS)}
    assert (document["source"], resource["held"]) == (f"node of {node.socket_dir}", 0)


def test_a_device_that_is_unhealthy_is_named(node: NodeThread, explain: CommandLine) -> None:
    """It is the reason, below the summary; what is well is left out."""
    node.call(node.plugin.send([*healthy("w0"), *unhealthy("w1")]))
    node.call(node.manager.wait_for(RESOURCE, allocatable=1))
    summary, reasons, count = explain(code=1).out.split("\n\n")[-3:]
    reasons = reasons.removeprefix(f"{RESOURCE}\n")
    assert count == "1 problem\n"
    assert summary.split()[-1] == "problem"
    assert reasons.startswith("problem  health          w1: 1 of 2 devices are healthy")
    assert "ok " not in reasons


def test_equal_findings_of_several_devices_are_printed_once(
    node: NodeThread, explain: CommandLine
) -> None:
    """Two files that are missing for the same reason are one paragraph."""
    pod = Pod("train", containers=(Container("main", {RESOURCE: 2}),))
    node.call(node.manager.allocate(pod))
    node.call(node.manager.stop())  # writes the checkpoint, which has the answers
    shown = explain(RESOURCE, code=1).out
    assert "/dev/w0, /dev/w1: not on this host: no such file or directory" in shown
    assert shown.count("not on this host") == 1


def test_resources_with_the_same_fault_share_a_paragraph(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The last line counts what was printed, warnings too."""
    gone = Step.REGISTRATION.problem("kubelet", "its plugin is gone", "start it")
    full = Step.HELD.warning("kubelet", "all are held", "wait")
    reports = [
        ResourceReport(f"example.com/{name}", (Step.NAME.ok(name, "good"), *findings))
        for name, findings in {"a": [gone], "b": [gone], "c": [gone, full], "d": []}.items()
    ]
    shown = verb._print_summary(Diagnosis(Path("/p"), "kubelet", (), tuple(reports)))
    verb._print_count([*shown, "ok", "unknown"])
    *_, first, second, count = capsys.readouterr().out.split("\n\n")
    assert first.splitlines()[0] == "example.com/a, example.com/b"
    assert second.splitlines()[0] == "example.com/c"
    assert count == "2 problems, 1 warning, 1 unknown\n"


def test_plugins_are_asked_only_on_request(node: NodeThread, explain: CommandLine) -> None:
    """A second stream takes an update away from some; without the option nobody opens one."""
    assert "lists" not in explain().out
    assert node.plugin.streams_opened == 1
    assert "listens and lists 2 devices, 2 healthy" in explain("--ask-plugins").out
    assert node.plugin.streams_opened == 2


def test_an_invalid_name_is_a_finding(short_dir: Path, cli: CommandLine) -> None:
    """Other verbs refuse it; this one says what would be right."""
    shown = cli("explain", "widget", "--socket-dir", short_dir, code=1).out
    assert "problem  name            widget: no kubelet accepts this name" in shown
    assert "→ call it example.com/widget, for example" in shown


def test_an_unreadable_directory_is_not_asked(
    short_dir: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3: nobody was asked, and nothing was seen."""

    def refuse(*_: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(listing, "names", refuse)
    assert cli("explain", "--socket-dir", short_dir, code=3).err == (
        f"kubedevices: no permission to look into {short_dir}: ask again as root\n"
    )


def test_every_path_has_an_option() -> None:
    """As in a container that sees the host below a directory of its own."""
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    options = {
        "socket_dir": "--socket-dir",
        "state_dir": "--state-dir",
        "pod_resources": "--pod-resources",
        "plugin_registry": "--plugin-registry",
        "dev_root": "--dev-root",
        "proc_root": "--proc-root",
        "sysfs_root": "--sysfs-root",
    }
    arguments = [word for name, option in options.items() for word in (option, f"/host/{name}")]
    given = parser.parse_args([*arguments, "--cdi-dir", "/host/a", "--cdi-dir", "/host/b"])
    places = {name: Path(f"/host/{name}") for name in options}
    cdi_dirs = (Path("/host/a"), Path("/host/b"))
    assert verb._places(given) == HostPaths(**places, cdi_dirs=cdi_dirs)  # type: ignore[arg-type]
    usual = verb._places(parser.parse_args([]))
    assert usual == HostPaths(DEVICE_PLUGIN_DIR, STATE_DIR)


def test_below_a_directory_everything_has_its_usual_place(tmp_path: Path) -> None:
    """Links of the host lead to files of the host, as /var/run does to /run."""
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "run").symlink_to("/run")
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    places = verb._places(parser.parse_args(["--host-root", str(tmp_path)]))
    assert places.socket_dir == tmp_path / "var/lib/kubelet/device-plugins"
    assert places.cdi_dirs == (tmp_path / "etc/cdi", tmp_path / "run/cdi")
    assert (places.dev_root, places.sysfs_root) == (tmp_path / "dev", tmp_path / "sys")
    assert places.pod_logs == tmp_path / "var/log/pods"
    elsewhere = parser.parse_args(["--host-root", str(tmp_path), "--socket-dir", "/tmp/kd"])
    assert verb._places(elsewhere).socket_dir == Path("/tmp/kd")


def test_lines_have_the_width_of_the_terminal(
    short_dir: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a command stays whole, for copying."""
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    missing = short_dir / ("d" * 40) / "p"
    lines = cli("explain", "--socket-dir", missing, code=1).lines
    assert any(line.strip() == f"$ kubedevices node --socket-dir {missing}" for line in lines)
    advice = [line for line in lines if "$ " not in line and str(missing) not in line]
    assert advice
    assert all(len(line) <= 80 for line in advice)
