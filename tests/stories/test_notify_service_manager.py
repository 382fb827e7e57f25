"""Plugins and the node tell a service manager when it can start the next units."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import running
from tests.waiting import until_sync

RESOURCE = "example.com/gpu"
SCRIPT = """\
import time
from pathlib import Path
import kubedevices as kd

class Slow(kd.PolledScanner):
    def list_devices(self):
        Path({looks!r}).touch()
        while not Path({go!r}).exists():
            time.sleep(0.01)
        tree = kd.DeviceTree()
        tree.add("gpu", kd.Device("g0"))
        return tree

kd.run(Slow(), domain="example.com", socket_dir=Path({d!r}))
"""


@pytest.fixture
def manager(short_dir: Path) -> Iterator[socket.socket]:
    """Listen as systemd does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(short_dir / "notify"))
        listener.settimeout(60)
        yield listener


def env(manager: socket.socket) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname()}


def nothing_told(manager: socket.socket) -> bool:
    manager.setblocking(False)
    try:
        manager.recv(99)
    except BlockingIOError:
        return True
    finally:
        manager.settimeout(60)
    return False


def test_a_plugin_has_started_when_it_serves(manager: socket.socket, short_dir: Path) -> None:
    """Its socket is bound. No kubelet runs: the manager may start the kubelet after the plugin."""
    plugins = short_dir / "p"
    plugins.mkdir()
    arguments = ["simulate", "--resource-name", RESOURCE, "--socket-dir", plugins]
    with running(arguments, env=env(manager), log=short_dir / "log") as process:
        assert manager.recv(99) == b"READY=1"
        assert [*plugins.glob("*.sock")]
        process.terminate()
        assert manager.recv(99) == b"STOPPING=1"
        assert process.wait(60) == 0


def test_a_plugin_does_not_wait_for_the_directory_of_the_kubelet(
    manager: socket.socket, short_dir: Path
) -> None:
    """On a new host, a kubelet that is ordered after the plugin would never start."""
    arguments = ["simulate", "--socket-dir", short_dir / "not-yet"]
    with running(arguments, env=env(manager), log=short_dir / "log"):
        assert manager.recv(99) == b"READY=1"


def test_a_script_has_started_after_the_first_tree_of_its_scanner(
    manager: socket.socket, short_dir: Path
) -> None:
    """`kd.run` notifies the manager too, and not before there are devices to serve."""
    looks, go = short_dir / "looks", short_dir / "go"
    script = SCRIPT.format(looks=str(looks), go=str(go), d=str(short_dir))
    process = subprocess.Popen([sys.executable, "-c", script], env=os.environ | env(manager))
    try:
        until_sync(looks.exists)
        assert nothing_told(manager)
        go.touch()
        assert manager.recv(99) == b"READY=1"
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_a_plugin_that_fails_at_the_start_sends_no_notification(
    manager: socket.socket, short_dir: Path
) -> None:
    """It ends; the manager sees this and goes on without it."""
    arguments = ["simulate", "--socket-dir", short_dir, "--config", short_dir / "broken.yaml"]
    (short_dir / "broken.yaml").write_text("numberDevicesOnNode: many\n")
    with running(arguments, env=env(manager), log=short_dir / "log") as process:
        assert process.wait(60) == 2
    assert nothing_told(manager)


def test_a_node_has_started_when_plugins_can_register(
    manager: socket.socket, short_dir: Path
) -> None:
    """`kubelet.sock` exists then."""
    plugins = short_dir / "p"
    with running(["node", "--socket-dir", plugins], env=env(manager), log=short_dir / "log"):
        assert manager.recv(99) == b"READY=1"
        assert (plugins / "kubelet.sock").is_socket()
