"""`devices`, `wait`, `allocate`, `release` and `with` in a directory that a kubelet serves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.explain.on_node import host_paths
from kubedevices.explain.on_node.facts import Kubelet, ProcessFacts
from kubedevices.explain.on_node.host_paths import find_pod_resources
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.services.pod_resources import PodResourcesServer
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE, healthy
from tests.host_needs import needs
from tests.nobody import run_as_nobody
from tests.node_thread import node_thread

POD = Pod("train", containers=(Container("main", {RESOURCE: 1}),))


@pytest.fixture
def where(short_dir: Path) -> Iterator[list[str]]:
    """Serve podresources beside a plugin directory, as a kubelet does; hide our own service."""
    with node_thread(short_dir / "p") as node:
        server = PodResourcesServer(node.manager, short_dir / "pod-resources" / "kubelet.sock")
        node.call(server.start())
        node.serve(healthy("w0", "w1"))
        node.call(node.manager.allocate(POD))
        yield ["--socket-dir", str(node.socket_dir), "--state-dir", str(short_dir / "nowhere")]
        node.call(server.stop())


def test_devices_are_those_of_the_kubelet(where: list[str], cli: CommandLine) -> None:
    """Nobody is told to start a node; what a kubelet does not tell is said beside the listing."""
    shown = cli("devices", *where)
    assert f"{RESOURCE}  w0      Healthy  -     default/train (main)" in shown.out
    assert shown.err.startswith("asked the kubelet at ")
    assert shown.err.endswith(": it lists only healthy and allocated devices\n")


def test_wait_counts_the_devices_of_the_kubelet(where: list[str], cli: CommandLine) -> None:
    """A kubelet does not list a resource without healthy devices: this counts as 0."""
    for resource, number in ((RESOURCE, 2), ("example.com/none", 0)):
        words = ("wait", resource, "--allocatable", number, "--timeout", "1m")
        assert cli(*words, *where).out == f"{resource}: {number} allocatable devices\n"


@pytest.mark.parametrize(
    ("verb", "guess"),
    [
        (["allocate", "example.com/wigdet=1"], True),
        (["allocate", "example.com/wigdet=1", "--format", "podman"], True),
        (["allocate", f"{RESOURCE}=1"], False),
        (["release", "train"], False),
        (["devices", "--watch"], False),
    ],
)
def test_the_error_says_that_the_kubelet_allocates_itself(
    where: list[str], cli: CommandLine, verb: list[str], guess: bool
) -> None:
    """What it has is said, and which of these was probably meant."""
    error = cli(*verb, *where, code=3).err
    assert "is served by a kubelet" in error
    assert f"it has {RESOURCE} (2 healthy, 1 held)" in error
    assert (f"did you mean {RESOURCE!r}?" in error) == guess
    assert "no kubedevices node is running" not in error


def test_a_command_is_not_started_on_a_kubelets_node(
    where: list[str], short_dir: Path, cli: CommandLine
) -> None:
    """The same is said before anything runs."""
    started = short_dir / "started"
    err = cli("with", *where, "example.com/wigdet=1", "--", "touch", started, code=3).err
    assert f"did you mean {RESOURCE!r}?" in err
    assert not started.exists()


@needs("mount")
@pytest.mark.parametrize("verb", [["devices"], ["wait", RESOURCE, "--timeout", "1h"]])
def test_a_user_without_permission_is_told_to_ask_as_root(verb: list[str]) -> None:
    """At once: a kubelet's directories are root's, so nothing says that a node is missing."""
    prepare = (  # an empty /var/lib: nothing of the host is seen, and nothing is made on it
        "mount -t tmpfs tmpfs /var/lib && mkdir -m 0700 /var/lib/kubelet && "
        'mkdir /var/lib/kubelet/device-plugins && exec "$@"'
    )
    ended = run_as_nobody(
        "sys.exit(kubedevices.cli.main(sys.argv[1:]))",
        *verb,
        before=("unshare", "--mount", "sh", "-ec", prepare, "sh"),
    )
    denied = "no permission to look into /var/lib/kubelet/device-plugins: ask again as root"
    assert (ended.returncode, ended.stderr) == (3, f"kubedevices: {denied}\n")


def test_the_podresources_socket_is_found_in_both_directories(tmp_path: Path) -> None:
    """Beside the plugin directory."""
    assert find_pod_resources(tmp_path / "k" / "p") is None
    beside = tmp_path / "k" / "pod-resources" / "kubelet.sock"
    beside.parent.mkdir(parents=True)
    beside.touch()
    assert find_pod_resources(tmp_path / "k" / "p") == beside


def test_the_podresources_socket_follows_a_kubelet_that_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plugin directory stays where it is; another directory belongs to another kubelet."""
    usual, moved = tmp_path / "usual/device-plugins", tmp_path / "moved"
    monkeypatch.setattr(host_paths, "DEVICE_PLUGIN_DIR", usual)
    monkeypatch.setattr(host_paths, "KUBELET_ROOTS", ())
    process = ProcessFacts(1, "kubelet")
    monkeypatch.setattr(host_paths, "kubelets", lambda: (Kubelet(process, moved, None),))
    socket = moved / "pod-resources" / "kubelet.sock"
    socket.parent.mkdir(parents=True)
    socket.touch()
    assert find_pod_resources(usual) == socket
    assert find_pod_resources(tmp_path / "other/device-plugins") is None
