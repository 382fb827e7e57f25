"""`kubedevices simulate --socket-dir 'nodes/*/plugins'`: many nodes in one process."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from kubedevices.cli.ready_plugins.simulate import is_pattern
from kubedevices.cli.ready_plugins.simulate_nodes import matching, node_of
from kubedevices.simulate.settings import SETTINGS
from kubedevices.testing.kubelet.kubelet import Probe
from tests.cli.commands import FEW_FILES, may_open_all_files, run, running
from tests.command_line import CommandLine
from tests.waiting import until, until_sync

GPU = "example.com/gpu"


@pytest.fixture(autouse=True)
def clean_environment(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the machine may have set, and work in the directory of the nodes."""
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.chdir(short_dir)


def devices(node: str) -> dict[str, str]:
    """Return the health of the devices that a node of `nodes` has, by ID."""
    listed = run("devices", "--socket-dir", f"nodes/{node}/plugins", "-o", "json")
    found = json.loads(listed.stdout or "{}").get("resources", ())
    return {each["id"]: each["health"] for one in found for each in one["devices"]}


def has(node: str, ids: set[str]) -> bool:
    return devices(node).keys() == ids


def test_each_node_has_its_own_devices(short_dir: Path) -> None:
    """Their IDs have the name of the node; a step is for all nodes; a stop leaves no socket."""
    simulate = ["simulate", "--socket-dir", "nodes/*/plugins", "--control-socket", "s.sock"]
    simulate += ["--resource-name", GPU, "--device-id-prefix", "gpu"]
    with (
        running(["node", "--socket-dir", "nodes", "--count", 2], log=short_dir / "node.log"),
        running(simulate, log=short_dir / "log", before=FEW_FILES) as process,
    ):
        ids = {node: {f"gpu-{node}-0", f"gpu-{node}-1"} for node in ("node-1", "node-2")}
        for node, wanted in ids.items():
            until_sync(partial(has, node, wanted), 30)
        assert may_open_all_files(process.pid)
        listed = run("simulate", "--control-socket", "s.sock", "--tell", "list").stdout
        assert re.findall(r"^\S+:$", listed, re.MULTILINE) == ["node-1:", "node-2:"]
        step = '{set: {id: "*-node-2-0", health: Unhealthy}}'
        told = run("simulate", "--control-socket", "s.sock", "--tell", step)
        assert told.stdout == "1 device\n"
        until_sync(lambda: devices("node-2")["gpu-node-2-0"] == "Unhealthy")
        assert set(devices("node-1").values()) == {"Healthy"}
        process.terminate()
        assert process.wait(30) == 0
        left = {each.name for each in Path("nodes").glob("*/plugins/*.sock")}
        assert left == {"kubelet.sock"}


async def test_a_directory_may_come_later(short_dir: Path) -> None:
    """The log says that there is none yet; the variable may have the pattern, too."""
    env = {"PLUGIN_SOCK_DIR": "nodes/*/plugins", "RESOURCE_NAME": GPU}
    with running(["simulate"], env=env, log=short_dir / "log"):
        await until(lambda: "no directory matches" in (short_dir / "log").read_text(), 30)
        place = short_dir / "nodes/later/plugins"
        place.mkdir(parents=True)
        async with Probe(place) as kubelet:
            await kubelet.start()
            await until(lambda: GPU in kubelet.plugins, 30)


async def test_a_node_takes_little_memory(short_dir: Path) -> None:
    """A thousand nodes with 8 devices each fit into 1 GB: fifty take less than 20 MB more than one.

    `python -m benchmarks nodes` measures it.
    """
    resident = {}
    for number in (1, 50):
        place = short_dir / str(number)
        kubelets = [Probe(place / str(i)) for i in range(number)]
        for each in kubelets:
            each.socket_dir.mkdir(parents=True)
            await each.start()
        words = ["simulate", "--socket-dir", f"{place}/*", "--number-devices", 8]
        with running([*words, "--resource-name", GPU], log=short_dir / "log") as process:
            await until(lambda: all(GPU in each.plugins for each in kubelets), 60)  # noqa: B023
            status = Path(f"/proc/{process.pid}/status").read_text()
            resident[number] = int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]
        for each in kubelets:
            await each.stop()
    assert resident[50] - resident[1] < 20_000


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--node-name", "n"], "--node-name"),
        (["--listen", "0"], "--listen"),
        (["--state-dir", "s"], "--state-dir"),
        (["--mode", "dra"], "--mode dra"),
        (["--cdi"], "CDI"),
        (["--inject", "cdi"], "CDI"),
    ],
)
def test_what_belongs_to_one_node_is_refused(
    options: list[str], what: str, cli: CommandLine
) -> None:
    """The nodes would have it together, or it would have no effect."""
    err = cli("simulate", "--socket-dir", "nodes/*/plugins", *options, code=2).err
    assert f"{what} belongs to one node" in err


def test_a_node_name_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """All nodes would have devices with the same IDs."""
    monkeypatch.setenv("NODE_NAME", "n")
    err = cli("simulate", "--socket-dir", "nodes/*/plugins", code=2).err
    assert "the variable NODE_NAME belongs to one node" in err


def test_the_wildcards_name_the_node(short_dir: Path) -> None:
    """State directories do not match; a directory with such a name is one directory."""
    for name in ("zone-a/n1/plugins", "zone-b/n2/plugins", "zone-b/n2/plugins.state", "x[1]"):
        (short_dir / name).mkdir(parents=True)
    (short_dir / "zone-b/n2/plugins.file").touch()
    pattern = f"{short_dir}/zone-?/*/plug*"
    assert [node_of(pattern, each) for each in matching(pattern)] == [
        "zone-a-n1-plugins", "zone-b-n2-plugins",
    ]  # fmt: skip
    assert node_of("nodes/*/plugins", "nodes/n1/plugins/") == "n1"
    assert is_pattern("nodes/*/plugins")
    assert is_pattern("x[2]")
    assert not is_pattern("x[1]")
    assert not is_pattern("nodes")
