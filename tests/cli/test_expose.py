"""`kubedevices expose`."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kubedevices.expose.config import load_expose_config
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.values.device import DeviceSpec, Mount
from tests.cli.commands import running
from tests.command_line import CommandLine
from tests.fake_kubelet import FakeKubelet
from tests.nobody import run_as_nobody
from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"

SERIAL = """\
version: 1
namespace: devices.example.com
scanInterval: 100ms
goneGrace: 0s
resources:
- name: serial
  match: [{path: /dev/ttyUSB*}]
  container: {path: "/dev/ttyS{index}"}
  env: {"PORT_{index}": "{container_path}"}
  mounts: [{host: /run/udev, readOnly: true}]
  with: ["/dev/control{n}"]
- name: camera
  match: [{path: /dev/video*}]
"""

RESOURCE = "devices.example.com/serial"


@pytest.fixture(autouse=True)
def directory(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory with a pretended /dev, a configuration and a place for sockets."""
    for name in ("dev", "s"):
        (short_dir / name).mkdir()
    (short_dir / "serial.yaml").write_text(SERIAL)
    monkeypatch.chdir(short_dir)
    return short_dir


def plug(directory: Path, *names: str) -> None:
    for name in names:
        (directory / "dev" / name).touch()


async def test_devices_are_followed_as_they_come_and_go(directory: Path) -> None:
    """Plugged, unplugged, missing a companion; within the scan interval each time."""
    plug(directory, "ttyUSB0", "control0", "ttyUSB1")
    arguments = ["expose", "--config", "serial.yaml", "--dev-root", "dev", "--socket-dir", "s"]
    async with FakeKubelet(directory / "s") as kubelet:
        with running(arguments, log=directory / "log"):
            await kubelet.wait_for(RESOURCE, {"ttyUSB0": "Healthy"})
            await kubelet.wait_for("devices.example.com/camera", 0)
            plug(directory, "control1", "video0")
            both = {"ttyUSB0": "Healthy", "ttyUSB1": "Healthy"}
            connected = await kubelet.wait_for(RESOURCE, both)
            await kubelet.wait_for("devices.example.com/camera", {"video0": "Healthy"})
            request = AllocateRequest((ContainerAllocateRequest(("ttyUSB1", "ttyUSB0")),))
            (answer,) = (await connected.client.allocate(request, timeout=5)).containers
            assert answer.devices == [
                DeviceSpec("/dev/ttyUSB0", "/dev/ttyS0"),
                DeviceSpec("/dev/control0"),
                DeviceSpec("/dev/ttyUSB1", "/dev/ttyS1"),
                DeviceSpec("/dev/control1"),
            ]
            assert answer.env == {"PORT_0": "/dev/ttyS0", "PORT_1": "/dev/ttyS1"}
            assert answer.mounts == [Mount("/run/udev", "/run/udev", read_only=True)]
            (directory / "dev/ttyUSB0").unlink()
            await kubelet.wait_for(RESOURCE, {"ttyUSB1": "Healthy"})
            assert len(kubelet.connected(RESOURCE)) == 1
            assert kubelet.connected(RESOURCE)[0] is connected
            (directory / "dev/control1").unlink()
            await kubelet.wait_for(RESOURCE, {})
    assert f"expose.scanner: {RESOURCE}: ttyUSB0 vanished" in (directory / "log").read_text()


async def test_a_hang_up_signal_reads_the_file_again(directory: Path) -> None:
    """And ends nothing."""
    plug(directory, "video0")
    arguments = ["expose", "--config", "serial.yaml", "--dev-root", "dev", "--socket-dir", "s"]
    async with FakeKubelet(directory / "s") as kubelet:
        with running(arguments, log=directory / "log") as process:
            camera = await kubelet.wait_for("devices.example.com/camera", {"video0": "Healthy"})
            process.send_signal(signal.SIGHUP)
            await until(lambda: "serial.yaml: read again, 2 res" in (directory / "log").read_text())
            assert kubelet.connected("devices.example.com/camera") == [camera]


def test_the_handler_of_sighup_is_restored(tmp_path: Path, cli: CommandLine) -> None:
    """A program that was told to ignore it would hand that on to all that it starts."""
    (tmp_path / "bad.yaml").write_text("version: 1")
    before = signal.getsignal(signal.SIGHUP)
    cli("expose", "--config", tmp_path / "bad.yaml", code=2)
    assert signal.getsignal(signal.SIGHUP) is before


def test_sighup_during_the_start_does_not_end_the_process() -> None:
    """Before the file was read, it means nothing."""
    program = """
import os, signal, sys
from kubedevices.expose.scanner import ExposeScanner
from kubedevices.cli import main
def from_file(*_, **__):
    os.kill(os.getpid(), signal.SIGHUP)
    print("still here")
    sys.exit(5)
ExposeScanner.from_file = from_file
sys.exit(main(["expose", "--config", "serial.yaml"]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )
    assert (ended.returncode, ended.stdout) == (5, "still here\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("match: [{path: /dev/tty", "mtach: [{path: /dev/tty"),
         "serial.yaml:7:3: resources[0].mtach: unknown key (did you mean 'match'?)"),
        (("[{path: /dev/ttyUSB*}]", "/dev/ttyUSB*"),
         "serial.yaml:7:10: resources[0].match: must be a list, not text (write '- path: "),
        (("/dev/ttyUSB*", "ttyUSB*"),
         "serial.yaml:7:18: resources[0].match[0].path: 'ttyUSB*' must be an absolute path"),
        (("name: camera", "name: serial"),
         "serial.yaml:12:9: resources[1].name: 'serial' is there already (first: line 6)"),
        (("name: camera", "name: foo/camera"),
         "serial.yaml:12:9: resources[1].name: 'foo/camera': write only the part after the "),
        (("devices.example.com", "Devices"),
         "serial.yaml:2:12: namespace: 'Devices' is not a domain of lower-case letters, digits, "),
        (("version: 1", "version: ["), "serial.yaml:3:13: not valid YAML: while parsing a flow "),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_one_line(
    change: tuple[str, str], message: str, directory: Path, cli: CommandLine
) -> None:
    """With file, line, column and key; nothing is served."""
    (directory / "serial.yaml").write_text(SERIAL.replace(*change))
    captured = cli("expose", "--config", "serial.yaml", "--socket-dir", "s", code=2)
    assert captured.out == ""
    assert captured.err.startswith(f"kubedevices: {message}")
    assert captured.err.count("\n") == 1
    assert list((directory / "s").iterdir()) == []


def test_several_mistakes_are_reported_at_once(directory: Path, cli: CommandLine) -> None:
    """In the order of the file."""
    text = SERIAL.replace("  env:", "  usb: {vendor: '0403'}\n  inject: cid\n  env:")
    (directory / "serial.yaml").write_text(text)
    err = cli("expose", "--config", "serial.yaml", "--socket-dir", "s", code=2).err
    first, second, third = err.splitlines()
    assert first == "kubedevices: 2 mistakes"
    assert second.startswith("  serial.yaml:9:3: resources[0].usb: unknown key (known: name, match")
    assert third == (
        "  serial.yaml:10:11: resources[0].inject: 'cid' is not known, did you mean 'cdi'?"
    )


def test_a_missing_file(cli: CommandLine) -> None:
    """Could not ask: exit code 3."""
    shown = cli("expose", "--config", "nope.yaml", code=3)
    message = "kubedevices: cannot read nope.yaml: No such file or directory\n"
    assert shown.err == message


def expose_as_nobody(*arguments: str) -> "subprocess.CompletedProcess[str]":
    code = "sys.exit(kubedevices.cli.main(sys.argv[1:]))"
    return run_as_nobody(code, "expose", *arguments)


def test_an_unreadable_file_is_an_error(directory: Path) -> None:
    """Could not ask: exit code 3."""
    directory.chmod(0o755)
    (directory / "serial.yaml").chmod(0)
    found = expose_as_nobody("--config", "serial.yaml", "--socket-dir", "s")
    assert found.returncode == 3
    assert found.stderr == "kubedevices: cannot read serial.yaml: Permission denied\n"


def test_an_unwritable_socket_directory_is_an_error(directory: Path) -> None:
    """The same, and it says where."""
    directory.chmod(0o755)
    (directory / "s").chmod(0o555)
    found = expose_as_nobody("--config", "serial.yaml", "--socket-dir", "s")
    assert (found.returncode, found.stdout) == (3, "")
    assert found.stderr == (
        f"kubedevices: cannot create a socket in {directory}/s: it cannot be written to "
        "(run as its owner, mostly root, or choose another --socket-dir)\n"
    )


def test_an_invisible_socket_directory_is_an_error(directory: Path) -> None:
    """As that of a kubelet, which belongs to root: one line as well."""
    directory.chmod(0o755)
    (directory / "kubelet/s").mkdir(parents=True)
    (directory / "kubelet").chmod(0)  # without root, the directory belongs to whoever looks
    found = expose_as_nobody("--config", "serial.yaml", "--socket-dir", "kubelet/s")
    (directory / "kubelet").chmod(0o755)
    assert (found.returncode, found.stdout) == (3, "")
    assert found.stderr.startswith(
        f"kubedevices: cannot create a socket in {directory}/kubelet/s: Permission denied (run as"
    )
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--socket-dir", "--cdi-dir", "--config", "--dev-root"])
def test_an_empty_path_is_refused(option: str, cli: CommandLine) -> None:
    """It comes from a variable that is not set, and does not mean the current directory."""
    shown = cli("expose", "--config", "serial.yaml", "--socket-dir", "s", option, "", code=2)
    message = f"kubedevices: argument {option}: the path is empty (see kubedevices "
    assert shown.err.startswith(message)


def test_a_socket_directory_that_is_a_file(cli: CommandLine) -> None:
    """It will not become one by waiting."""
    err = cli("expose", "--config", "serial.yaml", "--socket-dir", "serial.yaml", code=3).err
    assert err.endswith("serial.yaml: it is not a directory\n")


def test_the_shipped_example_is_right_and_finds_what_this_host_has() -> None:
    """Every resource of it, and at least the files that are there."""
    config, _ = load_expose_config(EXAMPLES / "host-devices.yaml")
    assert {"fuse", "kvm", "tun", "loop", "hwrng", "serial"} <= {
        resource.name for resource in config.resources
    }


def test_scan_prints_what_the_shipped_example_finds(cli: CommandLine) -> None:
    """As many fuse devices as replicas, where there is a /dev/fuse."""
    out = cli("scan", "--config", EXAMPLES / "host-devices.yaml", "-o", "yaml").out
    found = {entry["device_type"]: entry for entry in yaml.safe_load(out)}
    assert len(found["fuse"]["devices"]) == 4 * Path("/dev/fuse").exists()
    assert found["fuse"]["resource"] == "devices.example.com/fuse"
