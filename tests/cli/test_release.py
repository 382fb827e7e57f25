"""`kubedevices release`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.node.pods.pod import Container, Pod
from tests.command_line import CommandLine
from tests.fake_plugin import RESOURCE, healthy
from tests.node_thread import NodeThread, node_thread


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node with two pods, one of which holds both devices."""
    with node_thread(short_dir / "p") as running:
        running.serve(healthy("a", "b"))
        for name, count in (("train", 2), ("idle", 0)):
            pod = Pod(name, containers=(Container("main", {RESOURCE: count}),))
            running.call(running.manager.allocate(pod))
        yield running


@pytest.fixture
def release(node: NodeThread, cli: CommandLine) -> CommandLine:
    return cli.of("release", after=("--socket-dir", node.socket_dir))


def test_release_prints_the_devices(node: NodeThread, release: CommandLine) -> None:
    """As a table; the devices are free afterwards."""
    assert release("train").out == (
        "pod default/train is released\nRESOURCE            DEVICES\nexample.com/widget  a,b\n"
    )
    assert not node.manager.inventory.reserved(RESOURCE)


def test_a_pod_without_devices_is_released_too(release: CommandLine) -> None:
    """That it held none is said on stderr."""
    captured = release("default/idle")
    assert captured.out == "pod default/idle is released\n"
    assert captured.err == "the pod held no devices\n"


def test_a_pod_without_a_name_is_printed_by_its_uid(node: NodeThread, release: CommandLine) -> None:
    """It came from a kubelet's checkpoint, which has no names."""
    pod = Pod("", "", "uid-9", containers=(Container("main", {RESOURCE: 0}),))
    node.call(node.manager.allocate(pod))
    assert release("uid-9").out == "pod uid-9 is released\n"


def test_json_has_the_documented_keys(release: CommandLine) -> None:
    """Namespace, name, uid and devices."""
    assert release("train", "-o", "json").data == {
        "namespace": "default",
        "name": "train",
        "uid": "default/train",
        "devices": {RESOURCE: ["a", "b"]},
    }


def test_an_unknown_pod_is_exit_code_one(release: CommandLine) -> None:
    """One line."""
    err = release("nobody", code=1).err
    assert err == ("kubedevices: no pod 'nobody' holds devices on this node\n")
