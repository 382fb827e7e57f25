"""NUMA nodes and PCI addresses of devices, on copies of a kernel's sysfs."""

from functools import partial
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.dra.slices import NUMA_NODE, PCI_BUS_ID, PCIE_ROOT, offer_of
from kubedevices.dra.tree_lookup import TreeLookup
from kubedevices.host.pci import place_of_file
from tests.host.fake_sysfs import FakeSysfs
from tests.host.sysfs_trees import link

VMD = "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0"


class Machine(FakeSysfs):
    """PCI cards, and the devices behind them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls: list[str] = []
        self.card("card0", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", "drm/card0", numa="1")
        self.card("render", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", "drm/renderD128")
        self.card("card1", "pci0000:3a/0000:3a:01.0/0000:3c:00.0", "drm/card1")
        self.card("card2", "pci0000:5d/0000:5d:00.0", "drm/card2")
        self.card("nvme", VMD, "nvme/nvme0/nvme0n1")
        self.card("vda", "pci0000:00/0000:00:03.0", "virtio0/block/vda", bus="virtio0=virtio")
        self.card("ttyUSB0", "pci0000:00/0000:00:14.0", "usb1/1-2/tty/ttyUSB0", bus="usb1=usb")
        for each in ("0000:3b:00.0", "0000:3c:00.0"):
            function = (self.sys / "bus/pci/devices" / each).resolve()
            link(self.sys / "kernel/iommu_groups/7/devices" / each, function)
        self.device_file("vfio", self.directory("virtual/vfio/7"))
        self.device_file("null", self.directory("virtual/mem/null"))
        (self.dev / "file").touch()

    def card(self, name: str, function: str, inside: str, *, numa: str = "", bus: str = "") -> None:
        directory = self.directory(function, *((numa, "0-7") if numa else ()))
        known = self.sys / "bus/pci/devices" / directory.name
        if not known.is_symlink():
            link(known, directory)
        self.device_file(name, self.directory(f"{function}/{inside}"))
        if bus:
            part, _, kind = bus.partition("=")
            link(directory / part / "subsystem", self.sys / "bus" / kind)

    def lookup(self) -> TreeLookup:
        def stat(path: Path) -> object:
            self.calls.append(path.name)
            return None if path.name == "file" else self.stat(path)

        place_of = partial(
            place_of_file,
            sysfs_root=self.sys,
            dev_root=self.dev,
            stat_device=stat,  # type: ignore[arg-type]
        )
        return TreeLookup(numa_reader=self.reader(), place_of=place_of)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def published(machine: Machine, *files: str, **parts: object) -> dict[str, object]:
    """Return the standard attributes of a device with these files in a slice."""
    device = kd.Device("x", paths=[f"/dev/{each}" for each in files], **parts)  # type: ignore[arg-type]
    tree = machine.lookup().complete(kd.DeviceTree({"card": [device]}))
    (made,) = offer_of(tree, "example.com").objects
    standard = {
        name: value
        for name, value in made["attributes"].items()
        if name in (NUMA_NODE, PCI_BUS_ID, PCIE_ROOT)
    }
    return {name: next(iter(value.values())) for name, value in standard.items()}


@pytest.mark.parametrize(
    ("files", "address", "root"),
    [
        (["card0"], "0000:3b:00.0", "pci0000:3a"),
        (["card0", "render", "null"], "0000:3b:00.0", "pci0000:3a"),
        (["card0", "card1"], "", "pci0000:3a"),
        (["card0", "card2"], "", ""),
        (["nvme"], "10000:e1:00.0", "pci0000:00"),
        (["vda"], "0000:00:03.0", "pci0000:00"),
        (["ttyUSB0"], "", "pci0000:00"),
        (["vfio"], "0000:3b:00.0", "pci0000:3a"),
        (["null"], "", ""),
        (["gone"], "", ""),
        (["file"], "", ""),
        ([], "", ""),
    ],
    ids=str,
)
def test_a_device_gets_its_pci_address_and_root(
    machine: Machine, files: list[str], address: str, root: str
) -> None:
    """The address if all files agree on a function; otherwise only a common root."""
    found = published(machine, *files)
    assert (found.get(PCI_BUS_ID, ""), found.get(PCIE_ROOT, "")) == (address, root)


def test_a_device_gets_its_numa_node(machine: Machine) -> None:
    """From the kernel."""
    assert published(machine, "card0")[NUMA_NODE] == 1


def test_attributes_of_the_author_are_not_replaced(machine: Machine) -> None:
    """Only missing attributes are looked up."""
    found = published(machine, "card0", attributes={PCI_BUS_ID: "0000:ff:00.0"}, numa_nodes=[0])
    assert found == {PCI_BUS_ID: "0000:ff:00.0", PCIE_ROOT: "pci0000:3a", NUMA_NODE: 0}


def test_a_device_is_looked_up_again_when_it_changes(machine: Machine) -> None:
    """Not with every scan."""
    lookup = machine.lookup()
    device = kd.Device("x", paths=["/dev/card0"])
    first = lookup.complete(kd.DeviceTree({"card": [device]}))
    calls = len(machine.calls)
    again = lookup.complete(kd.DeviceTree({"card": [kd.Device("x", paths=["/dev/card0"])]}))
    assert again.devices("card") == first.devices("card")
    assert len(machine.calls) == calls
    moved = lookup.complete(kd.DeviceTree({"card": [kd.Device("x", paths=["/dev/card2"])]}))
    assert moved.devices("card")["x"].attributes[PCI_BUS_ID] == "0000:5d:00.0"
