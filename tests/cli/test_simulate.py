"""`kubedevices simulate`."""

from pathlib import Path

import pytest

from kubedevices.errors import RpcError, StatusCode
from kubedevices.simulate.settings import SETTINGS
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest, PluginOptions
from kubedevices.values.device import DeviceSpec
from tests.cli.commands import running
from tests.command_line import CommandLine
from tests.fake_kubelet import FakeKubelet
from tests.widgets import without_instance

EXAMPLES = Path(__file__).parents[2] / "examples"

ORIGINAL = """\
resourceName: nvidia.com/gpu
numberDevicesOnNode: 3
pluginName: gpus
deviceIDPrefix: gpu-device
annotationPrefix:
envPrefix: GPU_DEVICE
deviceFilePrefix:
"""


@pytest.fixture(autouse=True)
def clean_environment(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the machine may have set, and work in the directory of the sockets."""
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.chdir(short_dir)


async def test_a_file_of_simple_device_plugin_is_served_alike(short_dir: Path) -> None:
    """Socket name, resource, devices, options and answers."""
    file = short_dir / "config.yaml"
    sockets = short_dir / "s"
    sockets.mkdir()
    file.write_text(ORIGINAL)
    arguments = ["simulate", "--config", str(file), "--socket-dir", str(sockets)]
    env = {"NODE_NAME": "n1", "DEVICE_FILE_PREFIX": "gpu", "DEVICE_PATH_STYLE": "id"}
    async with FakeKubelet(sockets) as kubelet:
        with running(arguments, env=env, log=short_dir / "log"):
            ids = [f"gpu-device-n1-{i}" for i in range(3)]
            connected = await kubelet.wait_for("nvidia.com/gpu", dict.fromkeys(ids, "Healthy"))
            assert without_instance([kubelet.requests[0].endpoint]) == ["gpus.sock"]
            assert connected.options == PluginOptions()
            assert {device.numa_nodes for device in connected.lists[0]} <= {None, ()}
            request = AllocateRequest((ContainerAllocateRequest((ids[2], ids[0])),))
            (answer,) = (await connected.client.allocate(request, timeout=5)).containers
            assert answer.env == {
                f"GPU_DEVICE_{ids[0]}": f"/dev/{ids[0]}",
                f"GPU_DEVICE_{ids[2]}": f"/dev/{ids[2]}",
            }
            assert answer.devices == [
                DeviceSpec(f"/dev/gpu-{ids[0]}"),
                DeviceSpec(f"/dev/gpu-{ids[2]}"),
            ]
            assert answer.annotations == {}
            text = "requested device x is not available"
            with pytest.raises(RpcError, match=text) as caught:
                await connected.client.allocate(
                    AllocateRequest((ContainerAllocateRequest(("x",)),)), timeout=5
                )
            assert (caught.value.code, caught.value.message) == (StatusCode.NOT_FOUND, text)
    log = (short_dir / "log").read_text()
    assert log.count("a shell drops variables") == 1


async def test_the_simulator_registers_again_after_a_kubelet_restart(short_dir: Path) -> None:
    """Which the original does not; the shipped example has its GPUs on two NUMA nodes."""
    sockets = short_dir / "s"
    sockets.mkdir()
    example = EXAMPLES / "simulate-two-numa-nodes.yaml"
    arguments = ["simulate", "--config", str(example), "--socket-dir", str(sockets)]
    async with FakeKubelet(sockets) as kubelet:
        with running(arguments, env={"NODE_NAME": "n1"}, log=short_dir / "log"):
            connected = await kubelet.wait_for("example.com/gpu", 8)
            nodes = {device.id: device.numa_nodes for device in connected.lists[0]}
            assert nodes == {f"gpu-n1-{i}": (i % 2,) for i in range(8)}
            await kubelet.restart()
            await kubelet.wait_for("example.com/gpu", 8)
    assert "WARNING" in (short_dir / "log").read_text()  # of variables that shells drop


@pytest.mark.parametrize(
    ("arguments", "code", "messages"),
    [
        (["--number-devices", "-1"], 2,
         ["kubedevices: command line: --number-devices: -1 is negative; a number of"]),
        (["--resource-name", "foo"], 2,
         ["kubedevices: command line: --resource-name: 'foo' is not a resource name: it"]),
        (["--plugin-name", "../x", "--device-path-style", "x"], 2,
         ["kubedevices: 2 mistakes",
          "  command line: --plugin-name: '../x' cannot be the name of a socket",
          "  command line: --device-path-style: 'x' is not known, must be index or id"]),
        (["--cdi", "maybe"], 2, ["kubedevices: command line: --cdi: 'maybe' is neither true nor"]),
        (["--cdi", "--inject", "nodes"], 2,
         ["kubedevices: cdi and --inject nodes contradict each other: use one of them"]),
        (["--cdi", "--resource-name", "a.com/3d"], 2,
         ["kubedevices: command line: --cdi: no CDI device can have the name a.com/3d=...: "]),
        (["--config", "negative.yaml"], 2,
         ["kubedevices: negative.yaml:1:22: numberDevicesOnNode: -2 is negative; a number of"]),
        (["--config", "steps.yaml"], 2,
         ["kubedevices: steps.yaml:1:41: timeline[0].resource: unknown resource 'x', known: s"]),
        (["--config", "nope.yaml"], 3,
         ["kubedevices: cannot read nope.yaml: No such file or directory"]),
        (["--config", "."], 3, ["kubedevices: cannot read .: Is a directory"]),
    ],
)  # fmt: skip
def test_bad_settings_name_their_source(
    arguments: list[str], code: int, messages: list[str], short_dir: Path, cli: CommandLine
) -> None:
    """All of them at once, before anything is served."""
    (short_dir / "negative.yaml").write_text("numberDevicesOnNode: -2\n")
    (short_dir / "steps.yaml").write_text("timeline: [{at: 1s, count: 1, resource: x}]\n")
    captured = cli("simulate", "--socket-dir", short_dir, *arguments, code=code)
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == len(messages)
    assert all(line.startswith(start) for line, start in zip(lines, messages, strict=True))
    assert not list(short_dir.glob("*.sock"))


def test_the_error_names_the_wrong_variable(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    """An unknown key of the file is only a warning."""
    monkeypatch.setenv("NUMBER_DEVICES", "-3")
    (short_dir / "simulate.yaml").write_text("numberDevices: 4\n")
    warning, message = cli("simulate", "--config", "simulate.yaml", code=2).err.splitlines()
    assert warning.endswith(
        "WARNING cli.ready_plugins.simulate: simulate.yaml:1:1: numberDevices: unknown key, "
        "ignored (did you mean 'numberDevicesOnNode'?)"
    )
    assert message.startswith("kubedevices: environment: NUMBER_DEVICES: -3 is negative")


def test_a_path_too_long_for_a_socket(cli: CommandLine) -> None:
    """108 bytes; the message says how to repair it."""
    directory = "/tmp/" + "x" * (108 - len("/tmp//simple-device-plugin.sock"))
    err = cli("simulate", "--socket-dir", directory, "--registration", "none", code=3).err
    (message,) = err.splitlines()
    assert message.startswith("kubedevices: socket path has 108 bytes, Linux allows 107: /tmp/xxx")
    assert message.endswith("(choose a shorter --socket-dir, or a shorter name for the socket)")


def test_a_control_socket_too_long(short_dir: Path, cli: CommandLine) -> None:
    """The advice is about the option it comes from."""
    arguments = ["--control-socket", "x" * 100, "--socket-dir", str(short_dir)]
    message = cli("simulate", *arguments, "--registration", "none", code=3).err.splitlines()[-1]
    assert message.startswith("kubedevices: socket path has ")
    assert message.endswith("(choose a shorter --control-socket)")


def test_help_names_every_setting(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag, variable, key and default."""
    monkeypatch.setenv("COLUMNS", "100")
    shown = " ".join(cli("simulate", "--help").out.split())
    for setting in SETTINGS:
        value = "[VALUE]" if setting.is_switch else "VALUE"
        assert f"{setting.flag} {value}" in shown
        assert f"({setting.variable}" in shown
        assert setting.yaml_key in shown
    assert "(RESOURCE_NAME, resourceName; default: example.com/simple-device)" in shown
