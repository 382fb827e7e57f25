"""The host's device files, as expose sees them."""

import logging
import os
import socket
import stat
from pathlib import Path

import pytest

from kubedevices.expose.found import HostFile
from kubedevices.expose.host import HostDevices
from kubedevices.expose.path_patterns import PathPattern
from kubedevices.expose.scanner import ExposeScanner


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A pretended /dev."""
    dev = tmp_path / "dev"
    dev.mkdir()
    return dev


def touch(dev: Path, *names: str) -> None:
    for name in names:
        (dev / name).parent.mkdir(parents=True, exist_ok=True)
        (dev / name).touch()


def find(dev: Path, glob: str) -> list[str]:
    return sorted(HostDevices(dev).paths(PathPattern(glob)))


def make_scanner(tmp_path: Path, dev: Path, resources: str) -> ExposeScanner:
    file = tmp_path / "host.yaml"
    file.write_text(
        "version: 1\nnamespace: example.com\nscanInterval: 100ms\ngoneGrace: 0s\n" + resources
    )
    return ExposeScanner.from_file(file, dev_root=dev)


def test_wildcards_are_resolved_at_every_level(dev: Path) -> None:
    """Missing directories, files in place of directories and hidden names match nothing."""
    touch(dev, "a0/x", "a1/x", "a1/y", "a2", ".a3/x", "b/x")
    assert find(dev, "/dev/a*/x") == ["/dev/a0/x", "/dev/a1/x"]
    assert find(dev, "/dev/a1/?") == ["/dev/a1/x", "/dev/a1/y"]
    assert find(dev, "/dev/nothing/*") == []
    assert find(dev, "/dev/.a*/x") == ["/dev/.a3/x"]
    assert find(dev, "/dev/*/y") == ["/dev/a1/y"]
    assert find(dev, "/dev/*3/x") == []
    assert find(dev, "/dev/b/x") == ["/dev/b/x"]
    assert find(dev, "/dev/b/y") == []


def test_names_that_cannot_be_printed_match_nothing(dev: Path) -> None:
    """A device's ID must be text; a file name need not be."""
    touch(dev, "tty0", "tty\n1")
    (dev / os.fsdecode(b"tty\xff")).touch()
    assert find(dev, "/dev/tty*") == ["/dev/tty0"]


def test_paths_outside_dev_are_the_hosts_own(dev: Path, tmp_path: Path) -> None:
    """Only `/dev` may be somewhere else."""
    touch(tmp_path, "elsewhere/thing")
    assert find(dev, f"{tmp_path}/elsewhere/*") == [f"{tmp_path}/elsewhere/thing"]
    found = HostDevices(dev).identify(f"{tmp_path}/elsewhere/thing")
    assert found is not None
    assert found.real_path == f"{tmp_path}/elsewhere/thing"


def test_a_link_is_followed_to_the_hosts_path(dev: Path, tmp_path: Path) -> None:
    """A by-id link leads to the file in the host's /dev, not to where we see it."""
    touch(dev, "ttyUSB0", "serial/by-id/x")
    (dev / "serial/by-id/usb-A").symlink_to("../../ttyUSB0")
    touch(tmp_path, "outside")
    (dev / "away").symlink_to(tmp_path / "outside")
    (dev / "dangling").symlink_to("nothing")
    files = HostDevices(dev)
    link, real = files.identify("/dev/serial/by-id/usb-A"), files.identify("/dev/ttyUSB0")
    assert link == real
    assert link is not None
    assert link.real_path == "/dev/ttyUSB0"
    away = files.identify("/dev/away")
    assert away is not None
    assert away.real_path == "/dev/away"
    assert files.identify("/dev/dangling") is None


def test_only_files_are_devices(short_dir: Path) -> None:
    """Directories, pipes and sockets are not."""
    touch(short_dir, "regular")
    (short_dir / "directory").mkdir()
    os.mkfifo(short_dir / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(short_dir / "socket"))
    files = HostDevices(short_dir)
    names = ("regular", "directory", "pipe", "socket", "missing")
    assert [name for name in names if files.identify(f"/dev/{name}")] == ["regular"]
    assert find(short_dir, "/dev/*") == [f"/dev/{name}" for name in sorted(names[:4])]


def test_device_files_are_known_by_their_numbers(tmp_path: Path) -> None:
    """Two nodes with the numbers of one device are one device."""
    (tmp_path / "link").symlink_to("/dev/null")
    null = HostDevices().identify("/dev/null")
    assert null == HostFile((stat.S_IFCHR, os.makedev(1, 3)), "/dev/null")
    assert HostDevices().identify(f"{tmp_path}/link") == null


def test_the_host_has_its_usual_devices(tmp_path: Path) -> None:
    """Without a pretended /dev the real one is looked at."""
    scanner = make_scanner(
        tmp_path,
        Path("/dev"),
        "resources:\n- name: mem\n  match: [{path: /dev/null}, {path: '/dev/zer[o]'}]\n",
    )
    assert list(scanner.list_devices().devices("mem")) == ["null", "zero"]


def test_a_file_in_two_resources_gives_one_warning(
    tmp_path: Path, dev: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Replicas of one resource are meant to share, two resources hardly are."""
    caplog.set_level(logging.WARNING)
    touch(dev, "ttyUSB0", "kvm")
    scanner = make_scanner(
        tmp_path,
        dev,
        "resources:\n"
        "- name: serial\n  match: [{path: /dev/ttyUSB*}]\n  replicas: 2\n"
        "- name: modem\n  match: [{path: /dev/ttyUSB0}]\n",
    )
    assert scanner.list_devices() == scanner.list_devices()
    assert caplog.messages == [
        "/dev/ttyUSB0 is exposed as serial and as modem: two containers may get it at the same time"
    ]


@pytest.mark.parametrize("inject", ["nodes", "cdi", "both"])
def test_a_device_with_an_invalid_filled_template_is_left_out(
    inject: str, tmp_path: Path, dev: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning, once until it is gone and back; everything else goes on."""
    caplog.set_level(logging.WARNING)
    touch(dev, "a", "x=y", "odd", os.fsdecode(b"tty\xff"))
    (dev / "odd").unlink()
    (dev / "odd").symlink_to(os.fsdecode(b"tty\xff"))
    scanner = make_scanner(
        tmp_path,
        dev,
        "resources:\n"
        "- name: all\n  match: [{path: '/dev/*'}]\n  replicas: 2\n"
        f"  env: {{'D_{{n}}': '{{id}}'}}\n  inject: {inject}\n"
        "- name: one\n  match: [{path: /dev/a}]\n  id: path\n",
    )
    for _ in range(2):
        tree = scanner.list_devices()
        assert list(tree.devices("all")) == ["a::0", "a::1"]
        assert list(tree.devices("one")) == ["a"]
    odd, equals = (text for text in caplog.messages if "left out" in text)
    assert odd.startswith("example.com/all: device 'odd::0': '/dev/tty\\udcff' is not valid UTF-8")
    assert equals == (
        "example.com/all: device 'x=y::0': env: 'D_x=y' cannot be a name; the device is left out"
    )
    (dev / "x=y").unlink()
    scanner.list_devices()
    touch(dev, "x=y")
    scanner.list_devices()
    assert caplog.messages.count(equals) == 2


def test_every_scan_sees_what_is_there_now(
    tmp_path: Path, dev: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And says what came and went, once."""
    caplog.set_level(logging.INFO)
    touch(dev, "ttyUSB0")
    resources = "resources:\n- name: serial\n  match: [{path: /dev/ttyUSB*}]\n"
    scanner = make_scanner(tmp_path, dev, resources)
    assert scanner.interval == 0.1
    assert list(scanner.list_devices().devices("serial")) == ["ttyUSB0"]
    touch(dev, "ttyUSB1")
    (dev / "ttyUSB0").unlink()
    assert list(scanner.list_devices().devices("serial")) == ["ttyUSB1"]
    assert scanner.list_devices() == scanner.list_devices()
    assert [record.getMessage() for record in caplog.records] == [
        "example.com/serial: 1 device",
        "example.com/serial: ttyUSB1 appeared",
        "example.com/serial: ttyUSB0 vanished",
    ]


def test_many_changes_at_once_are_one_line(
    tmp_path: Path, dev: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Lists of devices are for debugging; up to ten devices have a line each."""
    caplog.set_level(logging.DEBUG)
    resources = "resources:\n- name: serial\n  match: [{path: /dev/ttyUSB*}]\n"
    scanner = make_scanner(tmp_path, dev, resources)
    scanner.list_devices()
    caplog.clear()
    touch(dev, *(f"ttyUSB{i}" for i in range(11)))
    scanner.list_devices()
    for i in range(10):
        (dev / f"ttyUSB{i}").unlink()
    scanner.list_devices()
    everything = ", ".join(f"ttyUSB{i}" for i in range(11))
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "example.com/serial: ttyUSB0 … (11 in all) appeared"),
        ("DEBUG", f"example.com/serial: appeared: {everything}"),
        *(("INFO", f"example.com/serial: ttyUSB{i} vanished") for i in range(10)),
    ]
