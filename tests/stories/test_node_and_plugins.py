"""A node and our own plugins, each a separate process, used by commands as a person does."""

import json
import signal
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.cli.commands import run, running
from tests.waiting import until_sync

RESOURCE = "example.com/simple-device"


@pytest.fixture
def sockets(short_dir: Path) -> Path:
    """Give the socket directory of a node."""
    return short_dir / "p"


def ready(process: Popen[str]) -> None:
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()


def resources(sockets: Path) -> dict[str, Any]:
    document = json.loads(run("devices", "-o", "json", "--socket-dir", sockets).stdout)
    return {each["resource"]: each for each in document["resources"]}


def has(sockets: Path, **numbers: int) -> bool:
    resource = resources(sockets).get(RESOURCE)
    return resource is not None and numbers.items() <= resource.items()


def test_a_device_goes_from_a_plugin_to_a_pod_and_back(short_dir: Path, sockets: Path) -> None:
    """The commands node, simulate, allocate, devices and release."""
    with (
        running(["node", "--socket-dir", sockets], log=short_dir / "node.log") as node,
    ):
        ready(node)
        simulate = ["simulate", "--number-devices", "3", "--socket-dir", sockets]
        with running(simulate, log=short_dir / "simulate.log"):
            until_sync(lambda: has(sockets, allocatable=3), what="the plugin's devices")
            request = [f"{RESOURCE}=2", "--pod-name", "train", "--socket-dir", sockets]
            assert run("allocate", *request).returncode == 0
            assert has(sockets, held=2)
            refused = run("allocate", f"{RESOURCE}=2", "--socket-dir", sockets)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert run("release", "train", "--socket-dir", sockets).returncode == 0
            assert has(sockets, held=0)
        until_sync(lambda: has(sockets, capacity=3, allocatable=0), what="the plugin's end")
        node.send_signal(signal.SIGTERM)
        assert node.wait(10) == 0


def test_plugins_register_again_at_a_restarted_node(short_dir: Path, sockets: Path) -> None:
    """After SIGTERM and after SIGKILL of the node, without any action on the plugin."""
    simulate = ["simulate", "--number-devices", "2", "--socket-dir", sockets]
    node = ["node", "--socket-dir", sockets]
    with running(simulate, log=short_dir / "simulate.log"):
        for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            with running(node, log=short_dir / "node.log") as process:
                ready(process)
                until_sync(lambda: has(sockets, allocatable=2), what="the plugin's devices")
                process.send_signal(end)
                process.wait(10)
