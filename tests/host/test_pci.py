"""PCI functions, on trees of the form that the kernel documents."""

from pathlib import Path
from typing import Any

import pytest

from kubedevices.host import pci
from tests.host.sysfs_trees import add_pci, add_virtual_functions


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """A host with a network card divided into two, a GPU and an NVMe disk."""
    sys = tmp_path / "sys"
    add_pci(sys, "0000:3b:00.0", driver="ixgbe", group="7", sriov_totalvfs=8, numa_node=1)
    add_pci(sys, "0000:3b:10.0", device="0x1565", driver="vfio-pci", group="12")
    add_pci(sys, "0000:3b:02.1", device="0x1565", group="13")
    add_virtual_functions(sys, "0000:3b:00.0", "0000:3b:10.0", "0000:3b:02.1")
    add_pci(
        sys,
        "0000:a1:00.0",
        vendor="0x10DE",
        device_class="0x030200",
        driver="nvidia",
        numa_node=0,
    )
    add_pci(sys, "10000:01:00.0", device_class="0x010802", sriov_totalvfs=4, sriov_numvfs=0)
    return sys


def addresses(sys: Path, **wanted: Any) -> list[str]:
    return [each.address for each in pci.devices(sysfs_root=sys, **wanted)]


def test_everything_known_of_a_function_is_read(sys: Path) -> None:
    """IDs lose their 0x, -1 is not a NUMA node, links are the names at their ends."""
    assert pci.find("0000:3b:00.0", sysfs_root=sys) == pci.PciDevice(
        address="0000:3b:00.0",
        directory=(sys / "devices/pci0000:3b/0000:3b:00.0").resolve(),
        vendor="8086",
        device="1563",
        device_class="020000",
        revision="01",
        subsystem_vendor="8086",
        subsystem_device="0001",
        driver="ixgbe",
        iommu_group="7",
        numa_node=1,
        total_vfs=8,
        num_vfs=2,
        physical_function=None,
        virtual_functions=("0000:3b:10.0", "0000:3b:02.1"),
    )
    virtual = pci.find("0000:3b:02.1", sysfs_root=sys)
    assert virtual is not None
    assert (virtual.physical_function, virtual.driver, virtual.numa_node) == (
        "0000:3b:00.0",
        None,
        None,
    )
    gpu = pci.find("0000:a1:00.0", sysfs_root=sys)
    assert gpu is not None
    assert gpu.numa_node == 0
    assert pci.find("0000:00:00.0", sysfs_root=sys) is None


def test_without_conditions_every_function_comes_in_order(sys: Path) -> None:
    """Domains of more than four digits come last."""
    assert addresses(sys) == [
        "0000:3b:00.0",
        "0000:3b:02.1",
        "0000:3b:10.0",
        "0000:a1:00.0",
        "10000:01:00.0",
    ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"vendor": "10de"}, ["0000:a1:00.0"]),
        ({"vendor": "0x10DE"}, ["0000:a1:00.0"]),
        ({"vendor": "1"}, []),
        ({"device": "1565"}, ["0000:3b:02.1", "0000:3b:10.0"]),
        ({"device": ["1565", "15?3"], "driver": "ixgbe"}, ["0000:3b:00.0"]),
        ({"device_class": "03"}, ["0000:a1:00.0"]),
        ({"device_class": "0302"}, ["0000:a1:00.0"]),
        ({"device_class": ["0x010802", "03"]}, ["0000:a1:00.0", "10000:01:00.0"]),
        ({"driver": "vfio-pci"}, ["0000:3b:10.0"]),
        ({"driver": ""}, ["0000:3b:02.1", "10000:01:00.0"]),
        ({"driver": ("nvidia", "ix*")}, ["0000:3b:00.0", "0000:a1:00.0"]),
        ({"sriov": "pf"}, ["0000:3b:00.0", "10000:01:00.0"]),
        ({"sriov": "vf"}, ["0000:3b:02.1", "0000:3b:10.0"]),
        ({"sriov": "undivided", "vendor": "8086", "device": "1563"}, ["10000:01:00.0"]),
        ({"vendor": []}, []),
    ],
)
def test_functions_are_chosen(sys: Path, wanted: dict[str, Any], found: list[str]) -> None:
    """Vendor, device, the beginning of a class, driver and the part in SR-IOV, all at once."""
    assert addresses(sys, **wanted) == found


def test_a_function_removed_during_the_call_is_left_out(sys: Path) -> None:
    """Its link exists, but its directory does not exist or is incomplete."""
    (sys / "bus/pci/devices/0000:ff:00.0").symlink_to("../../../devices/gone")
    (sys / "devices/pci0000:a1/0000:a1:00.0/vendor").unlink()
    assert "0000:ff:00.0" not in addresses(sys)
    assert "0000:a1:00.0" not in addresses(sys)
    assert len(addresses(sys)) == 4


def test_invalid_numbers_are_ignored(sys: Path) -> None:
    """A broken attribute does not hide the function."""
    directory = add_pci(sys, "0000:01:00.0", numa_node="x", sriov_totalvfs="-3")
    found = pci.find("0000:01:00.0", sysfs_root=sys)
    assert found is not None
    assert (found.numa_node, found.total_vfs, found.directory) == (None, 0, directory.resolve())


def test_a_host_without_pci_has_no_functions(tmp_path: Path) -> None:
    """Some virtual machines and boards are like that."""
    assert pci.devices(sysfs_root=tmp_path) == ()


def test_this_host_can_be_read() -> None:
    """Real trees hold more than the documented ones."""
    for each in pci.devices():
        assert len(each.vendor) == 4, each
        assert len(each.device_class) == 6, each
