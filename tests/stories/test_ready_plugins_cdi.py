"""podman starts containers that name a CDI device of `expose` or `simulate`."""

import json
from pathlib import Path

import pytest

from kubedevices.host.runtimes import engine
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from tests.cli.commands import running
from tests.containers import two_devices
from tests.podman_judge import Podman, podman_judge
from tests.waiting import until_sync

LOOK = """\
for path in /dev/mine0 {companion}; do (: <$path) && echo opened $path; done
echo "$DEVICE"; read line </shared/note && echo "$line"; (echo >/shared/x) || echo read-only
"""


@pytest.fixture
def judge(short_dir: Path) -> Podman:
    return podman_judge(short_dir)


async def test_a_container_gets_all_parts_of_an_exposed_device_by_its_name(judge: Podman) -> None:
    """Device, companion, variable and mount, also after the plugin has ended."""
    allocated, companion = two_devices()
    directory = judge.directory
    (directory / "s").mkdir()
    (directory / "shared").mkdir()
    (directory / "shared/note").write_text("hello\n")
    config = {
        "version": 1,
        "namespace": "example.com",
        "resources": [
            {
                "name": "thing",
                "match": [{"path": "/dev/no-such-thing"}, {"path": allocated}],
                "id": "path",
                "container": {"path": "/dev/mine{index}"},
                "env": {"DEVICE": "{id} is {container_path}"},
                "mounts": [
                    {"host": f"{directory}/shared", "container": "/shared", "readOnly": True}
                ],
                "with": [companion],
                "replicas": 2,
                "inject": "cdi",
            }
        ],
    }
    file = directory / "host.yaml"
    file.write_text(json.dumps(config))
    arguments = ["expose", "--config", file, "--socket-dir", directory / "s"]
    name = allocated.removeprefix("/dev/").replace("/", "-")
    pod = Pod("train", containers=(Container("main", {"example.com/thing": 1}),))
    async with DeviceManager(directory / "s") as manager:
        with running([*arguments, "--cdi-dir", judge.run_cdi], log=directory / "log"):
            await manager.wait_for("example.com/thing", allocatable=2)
            await manager.allocate(pod)
            options = await manager.get_device_run_container_options(pod, "main")
            assert options is not None
    assert (options.devices, options.mounts, options.env) == ((), (), {})
    (cdi_name,) = options.cdi_devices
    assert cdi_name in {f"example.com/thing={name}::{i}" for i in range(2)}
    done = judge.run(
        engine.args("podman", options), ["/bin/sh", "-c", LOOK.format(companion=companion)]
    )
    device_id = cdi_name.partition("=")[2]
    assert done.stdout.splitlines() == [
        "opened /dev/mine0",
        f"opened {companion}",
        f"{device_id} is /dev/mine0",
        "hello",
        "read-only",
    ], done.stderr


def test_a_container_gets_a_simulated_device_by_its_name(judge: Podman) -> None:
    """The stand-in for the device file: a device like /dev/null, else a mounted plain file."""
    directory, cdi = judge.directory, judge.run_cdi
    for name in ("p", "made"):
        (directory / name).mkdir()
    (directory / "made/gpu-1").write_text("plain\n")
    config = {
        "resourceName": "example.com/gpu",
        "deviceIDPrefix": "g",
        "envPrefix": "GPU",
        "deviceFilePrefix": "gpu",
        "createDeviceFiles": f"{directory}/made",
        "cdi": True,
    }
    (directory / "simulate.yaml").write_text(json.dumps(config))
    arguments = ["simulate", "--config", directory / "simulate.yaml", "--cdi-dir", cdi]
    arguments += ["--socket-dir", directory / "p", "--registration", "none"]
    look = "[ -c /dev/gpu-0 ] && : </dev/gpu-0 && read line </dev/gpu-1 && echo $line"
    with running(arguments, env={"NODE_NAME": "n"}, log=directory / "log"):
        until_sync(lambda: any(cdi.glob("*.json")), what="the CDI file")
        names = [f"--device=example.com/gpu=g-n-{i}" for i in range(2)]
        done = judge.run(names, ["/bin/busybox", "sh", "-c", look])
        env = judge.run(names, ["/bin/busybox", "env"])  # a shell drops such names
    assert done.stdout == "plain\n", done.stderr
    assert {"GPU_g-n-0=/dev/0", "GPU_g-n-1=/dev/1"} <= set(env.stdout.splitlines()), env.stderr
