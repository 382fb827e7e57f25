"""From `kubedevices with` or `allocate --format` to a running container, without Kubernetes."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.runc_config import minimal_config
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
)
from kubedevices.values.device import DeviceSpec
from tests.cli.commands import COMMAND
from tests.containers import make_root_file_system, try_to_open, two_devices
from tests.docs.pages import ROOT
from tests.fake_plugin import RESOURCE, healthy
from tests.host_needs import needs, require
from tests.node_thread import NodeThread, node_thread
from tests.podman_judge import podman_judge

DEADLINE = 30


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node with one widget, which is a device of this host."""
    require("mount")
    allocated, _ = two_devices()

    def answer(request: AllocateRequest) -> AllocateResponse:
        device = DeviceSpec(allocated, "/dev/widget")
        return AllocateResponse(
            [
                ContainerAllocateResponse(env={"NOTE": "two words"}, devices=[device])
                for _ in request.containers
            ]
        )

    with node_thread(short_dir / "p") as running:
        running.plugin.allocate_answer = answer
        running.serve(healthy("w"))
        yield running


def allocate(node: NodeThread, *arguments: str) -> str:
    socket_dir = ["--socket-dir", str(node.socket_dir)]
    return shlex.join([*COMMAND, "allocate", f"{RESOURCE}=1", *arguments, *socket_dir])


def test_a_podman_container_gets_its_device_and_releases_it(
    node: NodeThread, short_dir: Path
) -> None:
    """`kubedevices with ... -- podman run {} ...`, as in the help; the exit code is podman's."""
    judge = podman_judge(short_dir / "podman")
    _, other = two_devices()
    script = 'echo "$NOTE"; (: </dev/widget) && echo opened; (: <"$1") || echo refused; exit 5'
    line = judge.command(["{}"], ["/bin/sh", "-c", script, "sh", other])
    words = ["with", f"{RESOURCE}=1", "--socket-dir", str(node.socket_dir), "--"]
    done = judge.shell(f"{shlex.join([*COMMAND, *words])} {line}")
    assert done.stdout.splitlines() == ["two words", "opened", "refused"], done.stderr
    assert done.returncode == 5
    assert not node.manager.pods()


def test_the_unit_of_the_page_allocates_before_podman_and_releases_after(
    node: NodeThread, short_dir: Path
) -> None:
    """The commands of a Quadlet unit: devices by CDI; a refused allocation stops the start."""
    page = (ROOT / "docs/containers.md").read_text()
    unit = page.partition("**`train.container`**")[2].split("```")[1]
    judge = podman_judge(short_dir / "podman")
    program = short_dir / "kubedevices"  # the unit has it in quotes, so it is one plain word
    here = f'{shlex.join(COMMAND)} "$verb" --socket-dir {node.socket_dir} "$@"'
    program.write_text(f"#!/bin/sh\nverb=$1; shift\nexec {here}\n")
    program.chmod(0o755)
    (device,) = re.findall(r"^AddDevice=(.+)$", unit, re.MULTILINE)

    def systemd(directive: str) -> str:
        script = ""
        for may_fail, line in re.findall(rf"^{directive}=(-?)(.+)$", unit, re.MULTILINE):
            words = line.replace("%N", "train").replace("/run/cdi", str(judge.run_cdi))
            words = words.replace("example.com/gpu", RESOURCE)
            words = words.replace("/usr/local/bin/kubedevices", str(program))
            assert "/usr/local" not in words
            script += f"{words} || {'true' if may_fail else 'exit'}\n"
        return script

    def run(script: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", "-ec", script], capture_output=True, text=True, timeout=DEADLINE, check=False
        )

    assert run(systemd("ExecStartPre")).returncode == 0
    assert run(systemd("ExecStartPre").replace("train", "other")).returncode == 1  # none is left
    assert run(systemd("ExecStopPost").replace("train", "other")).returncode == 0
    done = judge.run([f"--device={device}"], try_to_open("/dev/widget"))
    assert done.stdout.splitlines() == ["opened /dev/widget"], done.stderr
    assert run(systemd("ExecStartPre")).returncode == 0  # after a crash: the same device again
    assert run(systemd("ExecStopPost")).returncode == 0
    assert not node.manager.pods()
    assert [*judge.run_cdi.iterdir()] == []


@needs("runc")
def test_runc_starts_the_printed_configuration(node: NodeThread, short_dir: Path) -> None:
    """The input is a config.json; the output has the device too."""
    bundle = short_dir / "bundle"
    make_root_file_system(bundle / "rootfs")
    (bundle / "base.json").write_text(json.dumps(minimal_config(try_to_open("/dev/widget"))))
    script = f"{allocate(node, '--format', 'oci', '--oci-config', 'base.json')} > config.json"
    script += f"\nexec runc --root {bundle}/state run {short_dir.name} </dev/null"
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=bundle,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.stdout.splitlines() == ["opened /dev/widget"], done.stderr
