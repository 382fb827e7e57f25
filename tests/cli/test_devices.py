"""`kubedevices devices`."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubedevices.cli.node import devices
from kubedevices.kubelet_api import proxy_client
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.values.socket_paths import PROXY_SOCKET_NAME
from tests.cli.commands import running
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE, healthy, unhealthy
from tests.nobody import run_as_nobody
from tests.node_thread import NodeThread, node_thread
from tests.proxy_answers import PLUGIN, start_answering
from tests.waiting import until_sync

POD = Pod("train", containers=(Container("main", {RESOURCE: 1}),))


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node whose plugin has devices on NUMA nodes, one held, one unhealthy."""
    with node_thread(short_dir / "p") as running_node:
        node = running_node
        devices = [*healthy("w10", "w2", numa=(0, 1)), *unhealthy("w1")]
        node.serve(devices)
        node.call(node.manager.allocate(POD))
        yield node


def test_the_table_has_health_numa_nodes_holders_and_a_summary(
    node: NodeThread, cli: CommandLine
) -> None:
    """Plain and aligned when piped, in natural order."""
    assert cli("devices", "--socket-dir", node.socket_dir).out == (
        "RESOURCE            DEVICE  HEALTH     NUMA  HELD BY\n"
        "example.com/widget  w1      Unhealthy  -     -\n"
        "example.com/widget  w2      Healthy    0,1   default/train (main)\n"
        "example.com/widget  w10     Healthy    0,1   -\n"
        "\n"
        "RESOURCE            CAPACITY  ALLOCATABLE  HELD  PLUGIN\n"
        "example.com/widget         3            2     1  connected\n"
    )


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_and_yaml_have_the_same_keys(node: NodeThread, cli: CommandLine, output: str) -> None:
    """They are a promise."""
    shown = cli("devices", RESOURCE, "-o", output, "--socket-dir", node.socket_dir)
    (resource,) = (shown.data if output == "json" else yaml.safe_load(shown.out))["resources"]
    assert list(resource) == ["resource", "capacity", "allocatable", "held", "plugin", "devices"]
    assert list(resource["devices"][1]) == ["id", "health", "numa_nodes", "held_by"]
    assert resource["devices"][1]["held_by"][0]["pod"] == "train"


def test_plugins_behind_a_proxy_are_listed_last(
    node: NodeThread, short_dir: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plugin, rules, kubelet; with a resource only what serves it, without a proxy nothing."""
    monkeypatch.setattr(proxy_client, "DEADLINE", 30.0)
    other = PLUGIN._replace(resource="vendor.org/other", rules=(), outside=(), is_here=False)
    told = [other.as_dict(), PLUGIN.as_dict()]
    server = node.call(start_answering(short_dir / PROXY_SOCKET_NAME, told))
    arguments = ["--socket-dir", str(node.socket_dir), "--proxy-state-dir", str(short_dir)]
    assert cli("devices", *arguments).out.partition("\nBEHIND")[2] == (
        " THE PROXY  PLUGIN     HEALTHY  UNHEALTHY  SERVED AS                              "
        "CORDONED  REASONS   RULES\n"
        "vendor.org/other  missing          1          1  -                                      "
        "w1 (fan)  w2 (hot)  -\n"
        "vendor.org/card   connected        1          1  "
        "example.com/widget (2 healthy, 1 not)  w1 (fan)  w2 (hot)  "
        "calls card widget; hold: a minute\n"
    )
    shown = cli("devices", RESOURCE, "-o", "json", *arguments)
    assert shown.data["proxied"] == [PLUGIN.as_dict()]
    node.call(server.stop())
    assert "proxied" not in cli("devices", "-o", "json", *arguments).data


def test_an_unregistered_resource_is_an_error_with_the_known_ones(
    node: NodeThread, cli: CommandLine
) -> None:
    """Exit code 1: the answer is no."""
    assert cli("devices", "vendor.org/fpga", "--socket-dir", node.socket_dir, code=1).err == (
        "kubedevices: no plugin has registered vendor.org/fpga; this node has example.com/widget\n"
    )
    err = cli("devices", "example.com/wigdet", "--socket-dir", node.socket_dir, code=1).err
    assert err.endswith(", did you mean 'example.com/widget'?\n")


def test_an_invalid_name_is_refused_before_the_node_is_asked(
    short_dir: Path, cli: CommandLine
) -> None:
    """Exit code 2, with the rule."""
    err = cli("devices", "foo", "--socket-dir", short_dir, code=2).err
    assert "resource name 'foo' is invalid: it needs a domain" in err


def test_without_a_node_the_error_says_how_to_start_one(short_dir: Path, cli: CommandLine) -> None:
    """Exit code 3, one line."""
    error = cli("devices", "--socket-dir", short_dir, code=3).err
    assert error.startswith("kubedevices: no kubedevices node is running for --socket-dir")
    assert f"`kubedevices node --socket-dir {short_dir}`" in error
    assert error.count("\n") == 1


def test_an_empty_directory_argument_is_refused(cli: CommandLine) -> None:
    """An unset variable of a script must not mean the current directory."""
    assert "--socket-dir: the path is empty" in cli("devices", "--socket-dir", "", code=2).err


def test_a_node_without_plugins_has_nothing_to_list(short_dir: Path, cli: CommandLine) -> None:
    """Said on stderr; the JSON document has no resources."""
    with node_thread(short_dir / "p") as node:
        captured = cli("devices", "--socket-dir", node.socket_dir)
        assert (captured.out, captured.err) == ("", "no devices: no plugin has registered\n")
        shown = cli("devices", "-o", "json", "--socket-dir", node.socket_dir)
        assert shown.data == {"resources": [], "left_behind": []}


def test_a_resource_without_devices_is_in_the_summary(short_dir: Path, cli: CommandLine) -> None:
    """An empty list is a valid registration."""
    with node_thread(short_dir / "p") as node:
        node.call(node.plugin.register())
        node.call(node.manager.wait_for(RESOURCE, capacity=0))
        out = cli("devices", "--socket-dir", node.socket_dir).out
        assert "example.com/widget         0            0     0  connected" in (out)


def test_watching_follows_changes(node: NodeThread, short_dir: Path) -> None:
    """A new table for every change; Ctrl-C ends it."""
    arguments = ["devices", "--watch", "-o", "json", "--socket-dir", str(node.socket_dir)]
    with running(arguments, log=short_dir / "log") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["resources"][0]["allocatable"] == 2
        node.call(node.manager.release("default/train"))
        assert json.loads(process.stdout.readline())["resources"][0]["held"] == 0
        node.call(node.plugin.send(unhealthy("w1", "w2", "w10")))
        assert json.loads(process.stdout.readline())["resources"][0]["allocatable"] == 0
        process.send_signal(signal.SIGINT)
        until_sync(lambda: process.poll() is not None)
        assert process.returncode == 130
    assert (short_dir / "log").read_text() == ""


def test_watching_follows_a_proxy(node: NodeThread, short_dir: Path) -> None:
    """Nothing changes at the node, and yet what a proxy says from now on is shown."""
    arguments = ["devices", "--watch", "-o", "json", "--socket-dir", str(node.socket_dir)]
    with running(arguments, log=short_dir / "log") as process:
        assert process.stdout is not None
        assert "proxied" not in json.loads(process.stdout.readline())
        socket = node.manager.state_dir / PROXY_SOCKET_NAME
        server = node.call(start_answering(socket, [PLUGIN.as_dict()]))
        shown = json.loads(process.stdout.readline())
        assert (shown["proxied"], len(shown["resources"])) == ([PLUGIN.as_dict()], 1)
        node.call(server.stop())
        assert "proxied" not in json.loads(process.stdout.readline())


def test_watching_ends_with_the_node(node: NodeThread, short_dir: Path) -> None:
    """Exit code 3 and a message."""
    arguments = ["devices", "--watch", "--socket-dir", str(node.socket_dir)]
    with running(arguments, log=short_dir / "log") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("# example.com/widget: capacity 3, allocatable")
        assert process.stdout.readline().startswith("RESOURCE ")
        node.call(node.manager.stop())
        until_sync(lambda: process.poll() is not None)
        assert process.returncode == 3
    assert "kubedevices: the node stopped" in (short_dir / "log").read_text()


def test_claims_in_a_closed_directory_are_missing_with_a_note(short_dir: Path) -> None:
    """Whoever may ask the kubelet may still not look into its directory."""
    (short_dir / "kubelet").mkdir(mode=0)
    code = "from pathlib import Path; "
    code += "print(kubedevices.cli.node.dra_listing.look(Path(sys.argv[1]), '')[1])"
    done = run_as_nobody(code, str(short_dir / "kubelet"))
    (short_dir / "kubelet").chmod(0o755)
    note = f"no permission to look into {short_dir}/kubelet: claims are not listed\n"
    assert (done.stdout, done.stderr) == ("[]\n", note)


def test_on_a_host_without_kubelet_the_message_names_the_cluster(
    short_dir: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People type `devices` on their laptop; where a kubelet's directory is, it says nothing."""
    directory = short_dir / "device-plugins"
    monkeypatch.setattr(devices, "DEVICE_PLUGIN_DIR", directory)
    words = ["devices", "--socket-dir", str(directory)]
    assert "For a cluster: kubedevices devices --cluster" in cli(*words, code=3).err
    directory.mkdir()
    assert "--cluster" not in cli(*words, code=3).err
