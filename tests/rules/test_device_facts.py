"""What leads from a device to its PCI function and its NUMA nodes."""

from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.host import pci
from kubedevices.rules.device_facts import DeviceFacts, pci_address_in
from tests.host.fake_sysfs import FakeSysfs
from tests.host.sysfs_trees import add_pci


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("gpu-3B:00.1", "0000:3b:00.1"),
        ("mlx5_10000:01:00.0_vf", None),
        ("nic-10000:01:00.0", "10000:01:00.0"),
        ("QAT_0001:6b:01.7", "0001:6b:01.7"),
        ("GPU-4a3b00.0", None),
        ("00:02.8", None),
        ("usb-1:00.0", None),
    ],
)
def test_an_address_in_an_id(text: str, address: str | None) -> None:
    """With or without its domain; not a part of a longer word."""
    assert pci_address_in(text) == address


def test_the_function_of_a_device(tmp_path: Path) -> None:
    """By the ID, and remembered as long as the device is listed; None where nothing leads to it."""
    add_pci(tmp_path, "0000:3b:00.0", vendor="0x10de")
    facts = DeviceFacts(tmp_path, tmp_path / "dev")
    device, other = kd.Device("gpu-0000:3b:00.0"), kd.Device("gpu-1", paths=["/dev/gone"])
    found = facts.pci_function(device)
    assert found is not None
    assert found.vendor == "10de"
    assert facts.pci_function(other) is None
    assert facts.pci_function(device) is found
    facts.keep_only(kd.DeviceTree({"gpu": [other]}))
    assert facts.pci_function(device) is not found


def test_a_device_file_leads_to_its_function(tmp_path: Path) -> None:
    """Through /sys, also by way of an IOMMU group; other files lead nowhere."""
    host = FakeSysfs(tmp_path)
    function = host.directory("pci0000:3b/0000:3b:00.0")
    for address in ("0000:3b:00.0", "0000:3b:00.1"):
        (host.sys / "bus/pci/devices" / address).mkdir(parents=True)
    card = host.device_file("dri/card0", host.directory("pci0000:3b/0000:3b:00.0/drm/card0"))
    group = host.device_file("vfio/7", host.directory("virtual/vfio/7"))
    (host.sys / "kernel/iommu_groups/7/devices/0000:3b:00.1").mkdir(parents=True)
    tty = host.device_file("tty0", host.directory("virtual/tty/tty0"))
    assert function.is_dir()

    def address_of(path: str) -> str | None:
        found = pci.place_of_file(
            path, sysfs_root=host.sys, dev_root=host.dev, stat_device=host.stat
        )
        return found and found.address

    assert address_of(card) == "0000:3b:00.0"
    assert address_of(group) == "0000:3b:00.1"
    assert address_of(tty) is None
    assert address_of("/dev/gone") is None
