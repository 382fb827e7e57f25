"""`kubedevices cordon` and `uncordon`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.cli import main
from kubedevices.errors import KubeletSilent, NoNode
from tests.fake_plugin import RESOURCE, healthy
from tests.node_thread import NodeThread, node_thread

REASON = ("--reason", "new firmware")


@pytest.fixture
def directory(short_dir: Path) -> str:
    """Give a socket directory that nobody serves."""
    (short_dir / "p").mkdir()
    return str(short_dir / "p")


def run(directory: str, *words: str) -> int:
    return main([*words, "--socket-dir", directory])


def listed(directory: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert run(directory, "cordon", "--list", "-o", "json") == 0
    rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)["cordoned"]
    return rows


def test_a_device_is_cordoned_listed_and_uncordoned(
    directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several at once; an ID may have slashes; the file is beside the directory of the node."""
    assert run(directory, "cordon", "--list") == 0
    assert capsys.readouterr() == ("", "no device is cordoned\n")
    assert run(directory, "cordon", "a.b/gpu/G-1", "a.b/tty//dev/tty0", *REASON) == 0
    assert capsys.readouterr().out == (
        "a.b/gpu/G-1 is cordoned: new firmware\na.b/tty//dev/tty0 is cordoned: new firmware\n"
    )
    assert Path(f"{directory}.state/maintenance.json").is_file()
    assert run(directory, "uncordon", "a.b/gpu/G-1") == 0
    assert capsys.readouterr().out == "a.b/gpu/G-1 is in service again\n"
    (left,) = listed(directory, capsys)
    assert {**left, "since": ""} == {
        "resource": "a.b/tty",
        "id": "/dev/tty0",
        "reason": "new firmware",
        "since": "",
    }
    assert run(directory, "uncordon", "--all", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"uncordoned": [left]}
    assert run(directory, "uncordon", "--all") == 0
    assert capsys.readouterr().out == "no device is cordoned\n"


def test_a_second_reason_replaces_the_first(
    directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time stays: the device has been out since then."""
    run(directory, "cordon", "a.b/gpu/G-1", "--reason", "first")
    (first,) = listed(directory, capsys)
    run(directory, "cordon", "a.b/gpu/G-1", "--reason", " second\nline ")
    assert listed(directory, capsys) == [{**first, "reason": "second line"}]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("cordon", "which device?"),
        ("cordon a.b/gpu/G-1", "needs --reason TEXT"),
        ("cordon a.b/gpu --reason x", "is not a device: write RESOURCE/ID"),
        ("cordon gpu/G-1 --reason x", "is not a device: write RESOURCE/ID"),
        ("cordon A.b/gpu/G-1 --reason x", "resource name 'A.b/gpu' is invalid"),
        ("cordon --list a.b/gpu/G-1", "--list changes nothing"),
        ("uncordon", "which device?"),
        ("uncordon --all a.b/gpu/G-1", "leave out RESOURCE/ID"),
    ],
)
def test_wrong_arguments_are_explained(
    directory: str, words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and nothing is written."""
    assert run(directory, *words.split()) == 2
    assert problem in capsys.readouterr().err
    assert not Path(f"{directory}.state").exists()


def test_uncordon_changes_all_devices_or_none(
    directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt device gets a suggestion."""
    run(directory, "cordon", "a.b/gpu/GPU-1", "a.b/gpu/GPU-2", *REASON)
    assert run(directory, "uncordon", "a.b/gpu/GPU-1", "a.b/gpu/GPU2") == 1
    said = capsys.readouterr().err
    assert "a.b/gpu/GPU2 is not cordoned, did you mean 'a.b/gpu/GPU-2'?" in said
    assert len(listed(directory, capsys)) == 2


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node with two devices, the second shared."""
    with node_thread(short_dir / "p") as running:
        running.call(running.plugin.send(healthy("gpu-a", "gpu-b::0")))
        running.call(running.plugin.register())
        running.call(running.manager.wait_for(RESOURCE, allocatable=2))
        yield running


def test_the_node_is_asked_whether_the_device_exists(
    node: NodeThread, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its list is whole, so that what is not there is a mistake; unless somebody insists."""
    directory = str(node.socket_dir)
    assert run(directory, "cordon", f"{RESOURCE}/gpu-x", *REASON) == 2
    assert f"{RESOURCE} has no device 'gpu-x', did you mean 'gpu-" in capsys.readouterr().err
    assert run(directory, "cordon", "example.com/widgets/gpu-a", *REASON) == 2
    assert f"did you mean '{RESOURCE}'?" in capsys.readouterr().err
    for known in ("gpu-a", "gpu-b", "gpu-b::0"):
        assert run(directory, "cordon", f"{RESOURCE}/{known}", *REASON) == 0
    assert run(directory, "cordon", f"{RESOURCE}/gpu-x", *REASON, "--anyway") == 0


def test_a_kubelet_does_not_know_all_devices(
    directory: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists healthy ones only: a device that it does not list is cordoned, and that is said."""

    def ask_kubelet_of(error: NoNode) -> object:
        devices = [{"id": "gpu-a"}]
        return Path("/k.sock"), {"resources": [{"resource": RESOURCE, "devices": devices}]}

    monkeypatch.setattr("kubedevices.cli.cordon.ask_kubelet_of", ask_kubelet_of)
    assert run(directory, "cordon", f"{RESOURCE}/gpu-a", *REASON) == 0
    assert capsys.readouterr().err == ""
    assert run(directory, "cordon", f"{RESOURCE}/gpu-c", *REASON) == 0
    assert "has no device 'gpu-c', did you mean 'gpu-a'?" in capsys.readouterr().err
    assert len(listed(directory, capsys)) == 2


def test_a_kubelet_that_does_not_answer_is_no_obstacle(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node in trouble is when devices are cordoned."""

    def ask_kubelet_of(error: NoNode) -> object:
        raise KubeletSilent("/k.sock", 5, "hangs")

    monkeypatch.setattr("kubedevices.cli.cordon.ask_kubelet_of", ask_kubelet_of)
    assert run(directory, "cordon", f"{RESOURCE}/gpu-a", *REASON) == 0


def test_a_debugging_pod_cordons_a_device_of_the_host(
    short_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The host's files are below another directory there: all three verbs look there."""
    root = short_dir / "host"
    (root / "var/lib").mkdir(parents=True)
    there = ("--host-root", str(root))
    # A node in the usual directory has the usual state directory; this one has its own.
    (root / "var/lib/kubedevices").symlink_to("kubelet/device-plugins.state")
    (root / "var/lib/kubelet").mkdir()
    with node_thread(root / "var/lib/kubelet/device-plugins") as node:
        node.call(node.plugin.send([*healthy("GPU-1")]))
        node.call(node.plugin.register())
        node.call(node.manager.wait_for(RESOURCE, capacity=1))
        assert main(["devices", "-o", "json", *there]) == 0
        (listed,) = json.loads(capsys.readouterr().out)["resources"]
        assert listed["resource"] == RESOURCE
        assert main(["cordon", f"{RESOURCE}/GPU-1", *REASON, *there]) == 0
        file = root / "var/lib/kubedevices/maintenance.json"
        assert "GPU-1" in file.read_text()
        assert main(["uncordon", f"{RESOURCE}/GPU-1", *there]) == 0
        assert "GPU-1" not in file.read_text()


def test_a_directory_that_the_user_names_is_not_below_the_root(
    directory: str, short_dir: Path
) -> None:
    """The user names it as the process sees it."""
    assert run(directory, "cordon", "a.b/c/d", *REASON, "--host-root", str(short_dir)) == 0
    assert Path(f"{directory}.state/maintenance.json").is_file()
