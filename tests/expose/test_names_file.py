"""One piece of hardware has one ID while a pod may hold it, whatever happens to the process."""

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kubedevices.dra.names import device_label
from kubedevices.expose.config import load_expose_config
from kubedevices.expose.names_file import KeptNames
from kubedevices.expose.scanner import ExposeScanner
from kubedevices.expose.witnesses import Witnesses
from kubedevices.kubelet_api import kubelet_devices
from kubedevices.kubelet_api.convert import CONTAINER_RESPONSE
from kubedevices.node.checkpoint import file as checkpoint_file
from kubedevices.node.checkpoint.text import Checkpoint, CheckpointEntry, format_checkpoint
from kubedevices.rules.cordon_file import add_cordoned
from kubedevices.values.allocation import ContainerAllocateResponse
from kubedevices.values.device import Device, DeviceSpec
from tests.host.sysfs_trees import add_usb, write

STATE_FILE = "expose-example.com.json"
MATCH = "  match: [{path: '/dev/ttyUSB*'}]\n"


class Node:
    """The /dev, the checkpoint and the state directory of a host; each process is a new scanner."""

    def __init__(self, directory: Path) -> None:
        self.dev, self.sys, self.state = (directory / each for each in ("dev", "sys", "state"))
        self.checkpoint, self._config = directory / "checkpoint", directory / "host.yaml"
        self.dev.mkdir()
        self.now = 0.0

    def plug(self, *names: str) -> None:
        for name in names:
            (self.dev / name).touch()

    def link(self, name: str, target: str) -> None:
        """Make the link that udev makes for a serial port."""
        directory = self.dev / "serial/by-id"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).symlink_to(f"../../{target}")

    def hold(self, *holdings: tuple[Sequence[str], Sequence[str]], resource: str = "x") -> None:
        """Write what containers hold: each the IDs, and the files of its answer."""
        entries = []
        for number, (ids, files) in enumerate(holdings):
            answer = ContainerAllocateResponse(devices=[DeviceSpec(each, each) for each in files])
            entries.append(
                CheckpointEntry(
                    f"pod-{number}",
                    "app",
                    f"example.com/{resource}",
                    {-1: tuple(ids)},
                    CONTAINER_RESPONSE.to_wire(answer),
                )
            )
        self.checkpoint.write_bytes(format_checkpoint(Checkpoint(tuple(entries), {})))

    def start(self, more: str = "", name: str = "x", match: str = MATCH) -> ExposeScanner:
        text = f"version: 1\nnamespace: example.com\nresources:\n- name: {name}\n{match}{more}"
        self._config.write_text(text)
        config, _ = load_expose_config(self._config)
        scanner = ExposeScanner(
            config, dev_root=self.dev, sysfs_root=self.sys, clock=lambda: self.now
        )
        self.remember(scanner)
        return scanner

    def remember(self, scanner: ExposeScanner) -> None:
        cordoned = self.state / "maintenance.json"
        witnesses = Witnesses("example.com", checkpoint=self.checkpoint, cordoned=cordoned)
        scanner.remember(KeptNames("example.com", self.state), witnesses)

    def forget(self) -> None:
        """Lose the file of names."""
        (self.state / STATE_FILE).unlink()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def devices(scanner: ExposeScanner, name: str = "x") -> dict[str, Device]:
    return dict(scanner.list_devices().devices(name))


def ids(scanner: ExposeScanner, name: str = "x") -> list[str]:
    return [*devices(scanner, name)]


# ---------------------------------------------------------------- remembered


@pytest.mark.parametrize(
    ("more", "before", "after"),
    [
        ("", ["ttyUSB0"], ["ttyUSB0"]),
        ("  replicas: 2\n", ["ttyUSB0::0", "ttyUSB0::1"], ["ttyUSB0::0", "ttyUSB0::1"]),
        ("  id: index\n", ["x-0"], ["x-0"]),
    ],
)
def test_a_link_that_appears_before_a_restart_renames_nothing(
    node: Node, more: str, before: list[str], after: list[str]
) -> None:
    """A new version of udev brings the link; the plugin restarts with the node's packages."""
    node.plug("ttyUSB0")
    assert ids(node.start(more)) == before
    node.link("usb-X-1", "ttyUSB0")
    assert ids(node.start(more)) == after


def test_the_first_replica_keeps_its_id_over_a_restart(node: Node) -> None:
    """More replicas are added beside an ID that a pod may hold."""
    node.plug("ttyUSB0")
    assert ids(node.start()) == ["ttyUSB0"]
    assert ids(node.start("  replicas: 3\n")) == ["ttyUSB0", "ttyUSB0::1", "ttyUSB0::2"]


def test_numbers_stay_over_a_restart(node: Node) -> None:
    """The first adapter is unplugged while no process runs: the second one keeps its number."""
    node.plug("ttyUSB0", "ttyUSB1")
    assert ids(node.start("  id: index\n")) == ["x-0", "x-1"]
    (node.dev / "ttyUSB0").unlink()
    found = devices(node.start("  id: index\n"))
    assert [each.id for each in found.values() if each.is_healthy] == ["x-1"]


def test_a_device_comes_back_under_its_id_long_after_its_grace(node: Node) -> None:
    """Its serial number tells it, although it was named before udev knew that."""
    node.plug("ttyUSB0")
    scanner = node.start("  goneGrace: 1s\n")
    assert ids(scanner) == ["ttyUSB0"]
    node.link("usb-X-1", "ttyUSB0")
    assert ids(scanner) == ["ttyUSB0"]
    shutil.rmtree(node.dev / "serial")
    (node.dev / "ttyUSB0").unlink()
    for node.now in (10, 20):
        scanner.list_devices()
    assert ids(scanner) == []
    again = node.start("  goneGrace: 1s\n")
    assert ids(again) == []
    node.plug("ttyUSB7")
    node.link("usb-X-1", "ttyUSB7")
    assert ids(again) == ["ttyUSB0"]


@pytest.mark.parametrize("link", ["usb-Y-2", ""])
def test_another_device_does_not_get_the_id_of_one_with_a_name(node: Node, link: str) -> None:
    """The first one may come back, and an operator may have cordoned its ID."""
    node.plug("ttyUSB0")
    scanner = node.start("  goneGrace: 1s\n")
    scanner.list_devices()
    node.link("usb-X-1", "ttyUSB0")
    scanner.list_devices()
    (node.dev / "serial/by-id/usb-X-1").unlink()
    (node.dev / "ttyUSB0").unlink()
    for node.now in (10, 20):
        scanner.list_devices()
    node.plug("ttyUSB0")
    if link:
        node.link(link, "ttyUSB0")
    (found,) = ids(scanner)
    assert found.startswith(link or "ttyUSB0-")


def test_a_boot_loader_without_a_serial_number_is_the_same_stick(node: Node) -> None:
    """It comes back at its port with another vendor and a serial number, and again without."""
    match = "  match: [{usb: {vendor: '1a6e'}}, {usb: {vendor: '18d1'}}]\n  goneGrace: 60s\n"

    def plug(vendor: str, number: int, **texts: Any) -> None:
        shutil.rmtree(node.sys, ignore_errors=True)
        stick = add_usb(node.sys, "1-3", vendor=vendor, number=number, **texts)
        write(stick / "accel", {"dev": f"240:{number}", "uevent": f"DEVNAME=apex_{number}"})
        node.plug(f"apex_{number}")

    plug("1a6e", 1)
    scanner = node.start(match=match)
    (first,) = ids(scanner)
    node.now = 3
    (node.dev / "apex_1").unlink()
    plug("18d1", 2, serial="S1")
    assert ids(scanner) == [first]
    assert ids(node.start(match=match)) == [first]
    node.now = 60
    plug("1a6e", 3)
    (node.dev / "apex_2").unlink()
    assert ids(scanner) == [first]


def test_another_stick_at_the_port_is_not_the_same(node: Node) -> None:
    """What comes later than a change of mode takes, somebody has plugged in."""
    match = "  match: [{usb: {vendor: '1a6e'}}, {usb: {vendor: '18d1'}}]\n  goneGrace: 60s\n"
    stick = add_usb(node.sys, "1-3", vendor="1a6e", number=1)
    write(stick / "accel", {"dev": "240:1", "uevent": "DEVNAME=apex_1"})
    node.plug("apex_1")
    scanner = node.start(match=match)
    (first,) = ids(scanner)
    shutil.rmtree(node.sys)
    (node.dev / "apex_1").unlink()
    node.now = 1
    scanner.list_devices()
    node.now = 30
    stick = add_usb(node.sys, "1-3", vendor="18d1", number=2, serial="S1")
    write(stick / "accel", {"dev": "240:2", "uevent": "DEVNAME=apex_2"})
    node.plug("apex_2")
    assert {each.id: each.is_healthy for each in devices(scanner).values()} == {
        first: False,
        "usb-18d1-6001-S1": True,
    }


# ---------------------------------------------------------------- witnesses


def test_the_checkpoint_tells_the_id_that_a_pod_holds(node: Node) -> None:
    """The file of names is lost, and the device has got a stable name meanwhile."""
    node.plug("ttyUSB0")
    node.link("usb-X-1", "ttyUSB0")
    node.hold((["ttyUSB0::1"], []))
    assert ids(node.start("  replicas: 2\n")) == ["ttyUSB0::0", "ttyUSB0::1"]


def test_the_answer_of_a_plugin_tells_the_id_of_a_device(node: Node) -> None:
    """No name leads from this ID to the device, but the file that its container got."""
    node.plug("ttyUSB0")
    node.hold((["front-door"], ["/dev/ttyUSB0"]))
    assert ids(node.start()) == ["front-door"]


def test_a_cordoned_id_stays(node: Node) -> None:
    """The operator has cordoned the stick under its old ID."""
    node.plug("ttyUSB0")
    node.link("usb-X-1", "ttyUSB0")
    add_cordoned(node.state / "maintenance.json", [("example.com/x", "ttyUSB0")], "loses bytes")
    assert ids(node.start()) == ["ttyUSB0"]


async def test_a_claim_tells_the_id_that_it_holds(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In DRA a device has the label of its ID; the kubelet's socket knows claims."""

    async def answer(socket: Path, *, timeout: float) -> dict[str, Any]:
        claims = [{"driver": "example.com", "claim": "a/b", "devices": [device_label("ttyUSB0")]}]
        return {"resources": [], "claims": claims}

    monkeypatch.setattr(kubelet_devices, "ask_kubelet", answer)
    monkeypatch.setattr(Path, "is_socket", lambda _: True)
    witnesses = Witnesses("example.com", pod_resources=Path("kubelet.sock"))
    await witnesses.ask()
    assert witnesses.holds("x").of("ttyUSB0")
    assert not witnesses.holds("x").of("ttyUSB1")
    witnesses.forget()
    assert not witnesses.holds("x").of("ttyUSB0")


def test_the_witnesses_read_each_file_once_in_a_look(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template makes a resource of each of a hundred devices; a checkpoint may have megabytes."""
    node.plug(*(f"ttyUSB{i}" for i in range(5)))
    node.hold((["ttyUSB0"], []))
    reads = list[Path]()
    read = checkpoint_file.read_bytes

    def counted(path: Path) -> bytes | None:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(checkpoint_file, "read_bytes", counted)
    scanner = node.start(name="'{name}'")
    assert len([*scanner.list_devices()]) == 5
    assert reads == [node.checkpoint]


# ---------------------------------------------------------------- what cannot be kept


def test_a_change_of_id_renames_no_held_device(node: Node) -> None:
    """Only the free device gets an ID of the new kind."""
    node.plug("ttyUSB0", "ttyUSB1")
    node.link("usb-X-0", "ttyUSB0")
    node.link("usb-X-1", "ttyUSB1")
    assert ids(node.start()) == ["usb-X-0", "usb-X-1"]
    node.hold((["usb-X-0"], []))
    assert ids(node.start("  id: path\n")) == ["usb-X-0", "ttyUSB1"]


def test_a_renamed_resource_waits_for_the_holder(node: Node) -> None:
    """Otherwise a second pod would get the stick by its new resource."""
    node.plug("ttyUSB0", "ttyUSB1")
    node.start().list_devices()
    node.hold((["ttyUSB0"], ["/dev/ttyUSB0"]))
    scanner = node.start(name="y")
    found = devices(scanner, "y")
    assert not found["ttyUSB0"].is_healthy
    assert "x/ttyUSB0, which is held" in found["ttyUSB0"].reason
    assert found["ttyUSB1"].is_healthy
    node.hold()
    assert all(each.is_healthy for each in devices(scanner, "y").values())


def test_a_held_number_of_an_unknown_device_stops_those_that_it_may_be(node: Node) -> None:
    """One pod holds two of three devices: their order in its answer tells nothing."""
    node.plug("ttyUSB0", "ttyUSB1", "ttyUSB2")
    node.hold((["x-0", "x-1"], ["/dev/ttyUSB0", "/dev/ttyUSB2"]), (["x-5"], ["/dev/ttyUSB1"]))
    scanner = node.start("  id: index\n")
    assert {each.id: each.is_healthy for each in devices(scanner).values()} == {
        "x-2": False,
        "x-5": True,
        "x-3": False,
    }
    node.hold()
    assert all(each.is_healthy for each in devices(scanner).values())


# ---------------------------------------------------------------- the file


def test_processes_of_one_domain_share_the_file(node: Node) -> None:
    """Each writes its own resources and keeps the others."""
    node.plug("ttyUSB0")
    one = node.start()
    one.list_devices()
    node.start(name="y").list_devices()
    node.plug("ttyUSB1")
    one.list_devices()
    resources = json.loads((node.state / STATE_FILE).read_text())["resources"]
    kept = {name: [each["id"] for each in it["devices"]] for name, it in resources.items()}
    assert kept == {"y": ["ttyUSB0"], "x": ["ttyUSB0", "ttyUSB1"]}


def test_the_file_is_written_only_after_a_change(node: Node) -> None:
    """A look every five seconds must not wear out a flash card."""
    node.plug("ttyUSB0")
    scanner = node.start()
    scanner.list_devices()
    first = (node.state / STATE_FILE).stat()
    for _ in range(3):
        scanner.list_devices()
    again = node.start()
    again.list_devices()
    assert (node.state / STATE_FILE).stat().st_mtime_ns == first.st_mtime_ns
    assert (node.state / STATE_FILE).stat().st_ino == first.st_ino


@pytest.mark.parametrize(
    "content", ['{"version": 1, "resources": {"x": {}}}', "[", '{"version": 1}', "", "[" * 9999]
)
def test_a_damaged_file_is_logged_and_replaced(
    node: Node, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The devices get the IDs that their names give."""
    node.plug("ttyUSB0")
    node.state.mkdir(mode=0o700)
    (node.state / STATE_FILE).write_text(content)
    assert ids(node.start()) == ["ttyUSB0"]
    assert f"{STATE_FILE}: it is damaged" in caplog.text or "cannot read" in caplog.text
    assert "ttyUSB0" in (node.state / STATE_FILE).read_text()


def test_a_file_that_cannot_be_written_is_logged_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """The devices are served; the line says what a restart may cost, and what to do."""
    node.state.write_text("a file in place of the directory")
    scanner = node.start()
    node.plug("ttyUSB0")
    with caplog.at_level(logging.WARNING):
        assert ids(scanner) == ["ttyUSB0"]
        node.plug("ttyUSB1")
        scanner.list_devices()
    assert caplog.text.count("after a restart, a device may get another ID") == 1
