"""What runs beside kubelet.sock: `kubedevices node` with its services, asked from outside."""

import json
import urllib.request
from pathlib import Path

import pytest

from kubedevices import __version__
from tests.cli.commands import run, running
from tests.command_line import CommandLine
from tests.prometheus_lint import lint
from tests.waiting import until_sync

GPU = "example.com/gpu"


def test_a_node_serves_podresources_metrics_and_a_plugin_registry(short_dir: Path) -> None:
    """A plugin that is found is allocated by NUMA node, and seen over podresources and metrics."""
    sockets, registry = short_dir / "p", short_dir / "r"
    podresources = short_dir / "pr" / "kubelet.sock"
    options = ["--plugin-registry", registry, "--pod-resources", podresources, "--listen", "0"]
    options += ["--topology-policy", "single-numa-node", "--numa-nodes", "0-1"]
    simulate = ["simulate", "--registration", "watch", "--socket-dir", registry]
    simulate += ["--resource-name", GPU, "--number-devices", 4, "--numa-nodes", "0,1"]
    arguments = ["node", "--socket-dir", sockets, "-o", "json", *options]
    with running(arguments, log=short_dir / "log") as node:
        assert node.stdout is not None
        events = [json.loads(node.stdout.readline()) for _ in range(4)]
        assert [each["event"] for each in events] == ["serving"] * 3 + ["ready"]
        places = {each["service"]: each["at"] for each in events[:3]}
        with running(simulate, log=short_dir / "log2"):

            def allocatable() -> list[int]:
                words = ("devices", GPU, "--pod-resources", podresources, "-o", "json")
                found = json.loads(run(*words).stdout or "{}").get("resources", ())
                return [each["allocatable"] for each in found]

            until_sync(lambda: allocatable() == [4])  # an earlier try would be a rejection
            done = run("allocate", f"{GPU}=2", "--pod-name", "two", "--socket-dir", sockets)
            assert done.returncode == 0, done.stderr
            listed = run("devices", GPU, "--pod-resources", podresources, "-o", "json")
            (resource,) = json.loads(listed.stdout)["resources"]
            held = [device for device in resource["devices"] if device["held_by"]]
            assert [device["numa_nodes"] for device in held] == [[0], [0]]
            assert held[0]["held_by"][0]["pod"] == "two"
            assert (resource["allocatable"], resource["held"]) == (4, 2)
            with urllib.request.urlopen(places["metrics"], timeout=10) as page:
                text = page.read().decode()
            assert f'kubedevices_node_devices_held{{resource="{GPU}"}} 2.0\n' in text
            assert "kubelet_pod_resources_endpoint_requests_list" in text
            assert "plugin_manager_total_plugins" in text
            assert f'kubedevices_build_info{{version="{__version__}"}} 1.0\n' in text
            assert 'kubedevices_node_admissions_total{result="rejected"} 0.0\n' in text
            # One name is a kubelet's, which tools know as it is.
            own = [each for each in lint(text) if each.startswith("kubedevices_")]
            assert not own
    assert not podresources.exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--topology-policy", "tight"], 'unknown policy: "tight" (none, best-effort, restr'),
        (
            ["--topology-policy", "restricted", "--topology-scope", "node"],
            'unknown scope: "node" (container, pod)',
        ),
        (
            ["--topology-policy", "restricted", "--numa-nodes", "0-8"],
            "more than 8 NUMA Nodes (--topology-option max-allowable-numa-nodes=9)",
        ),
        (["--topology-option", "x=1"], "--topology-option needs a --topology-policy"),
        (["--topology-scope", "pod"], "--topology-scope needs a --topology-policy"),
        (
            ["--topology-policy", "restricted", "--topology-option", "x=1"],
            'unknown Topology Manager Policy option: "x"',
        ),
        (["--topology-option", "x"], "write NAME=VALUE"),
        (["--topology-policy", "restricted", "--numa-nodes", "0-"], "'0-' is neither a number"),
        (["--listen", "everywhere"], "write HOST:PORT"),
    ],
)
def test_wrong_settings_are_a_one_line_error(
    options: list[str], says: str, short_dir: Path, cli: CommandLine
) -> None:
    """Exit code 2, the reason on stderr, and no node is left behind."""
    assert says in cli("node", "--socket-dir", short_dir / "p", *options, code=2).err
    assert not (short_dir / "p" / "kubelet.sock").exists()


@pytest.mark.parametrize("option", ["--state-dir", "--plugin-registry"])
def test_the_plugin_directory_is_refused_for_state_and_registry(
    option: str, short_dir: Path, cli: CommandLine
) -> None:
    """It is cleaned at every start, and what is in it is no plugin that waits to be found."""
    same = str(short_dir / "p")
    err = cli("node", "--socket-dir", same, option, f"{same}/../p", code=2).err
    assert f"{option} must not be the directory of --socket-dir" in err
    assert not (short_dir / "p").exists()


def test_a_kubelet_that_does_not_answer_is_reported(short_dir: Path, cli: CommandLine) -> None:
    """Exit code 3, and the socket is named."""
    socket = short_dir / "kubelet.sock"
    err = cli("devices", "--pod-resources", socket, code=3).err
    assert f"no kubelet answers at {socket}" in err
    cli("devices", "--watch", "--pod-resources", socket, code=2)
