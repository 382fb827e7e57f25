"""From `kubedevices allocate --format` to a running container, without Kubernetes."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubedevices.allocation import AllocateRequest, AllocateResponse, ContainerAllocateResponse
from kubedevices.device import DeviceSpec
from kubedevices.runtimes import oci
from tests.cli.commands import COMMAND
from tests.containers import make_root_file_system, need_root_and, try_to_open, two_devices
from tests.fake_plugin import RESOURCE, healthy
from tests.node_thread import NodeThread, node_thread
from tests.podman_judge import podman_judge

DEADLINE = 30


@pytest.fixture
def node(short_dir: Path) -> Iterator[NodeThread]:
    """Give a node with one widget, which is a device of this host."""
    need_root_and()
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
        running.call(running.plugin.send(healthy("w")))
        running.call(running.plugin.register())
        running.call(running.manager.wait_for(RESOURCE, allocatable=1))
        yield running


def allocate(node: NodeThread, *arguments: str) -> str:
    socket_dir = ["--socket-dir", str(node.socket_dir)]
    return shlex.join([*COMMAND, "allocate", f"{RESOURCE}=1", *arguments, *socket_dir])


def test_a_shell_line_starts_a_podman_container_with_its_device(
    node: NodeThread, short_dir: Path
) -> None:
    """`eval "podman run $(kubedevices allocate ... --format podman) ..."`, as the help says."""
    judge = podman_judge(short_dir / "podman")
    _, other = two_devices()
    script = 'echo "$NOTE"; (: </dev/widget) && echo opened; (: <"$1") || echo refused'
    line = judge.command([], ["/bin/sh", "-c", script, "sh", other])
    start, end = line.split(" run ", 1)
    words = f"$({allocate(node, '--format', 'podman')})"
    done = judge.shell(f'words="{words}"\neval "{start} run $words" {shlex.quote(end)}')
    assert done.stdout.splitlines() == ["two words", "opened", "refused"], done.stderr


def test_runc_starts_the_printed_configuration(node: NodeThread, short_dir: Path) -> None:
    """Somebody's config.json goes in, one with the device comes out."""
    need_root_and("runc")
    bundle = short_dir / "bundle"
    make_root_file_system(bundle / "rootfs")
    (bundle / "base.json").write_text(json.dumps(oci.minimal_config(try_to_open("/dev/widget"))))
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
