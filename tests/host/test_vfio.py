"""The device files of vfio."""

from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk, NoVfioGroup
from kubedevices.host import vfio
from kubedevices.values.device import DeviceSpec
from tests.host.sysfs_trees import add_pci

ADDRESS = "0000:3b:10.0"


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    sys = tmp_path / "sys"
    add_pci(sys, ADDRESS, driver="vfio-pci", group="12")
    add_pci(sys, "0000:3b:10.1", group="12")
    add_pci(sys, "0000:01:00.0")
    return sys


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    directory = tmp_path / "dev/vfio"
    directory.mkdir(parents=True)
    (directory / "vfio").touch()
    return directory.parent


def test_a_function_is_given_by_its_group(sys: Path, dev: Path) -> None:
    """The group's file and vfio's own, under the paths of the host."""
    (dev / "vfio/12").touch()
    assert vfio.nodes(ADDRESS, sysfs_root=sys, dev_root=dev) == (
        DeviceSpec("/dev/vfio/12"),
        DeviceSpec("/dev/vfio/vfio"),
    )


def test_without_an_iommu_the_file_has_another_name(sys: Path, dev: Path) -> None:
    """The kernel names it so, as a warning."""
    (dev / "vfio/noiommu-12").touch()
    [group, _] = vfio.nodes(ADDRESS, sysfs_root=sys, dev_root=dev)
    assert group.host_path == "/dev/vfio/noiommu-12"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("0000:ff:00.0", "this device does not exist"),
        ("0000:01:00.0", "in no IOMMU group"),
        (ADDRESS, "bind every function of the group to vfio-pci: 0000:3b:10.0, 0000:3b:10.1"),
    ],
)
def test_a_missing_driver_or_group_is_an_error_with_advice(
    sys: Path, dev: Path, address: str, reason: str
) -> None:
    """The error says what to do about it."""
    with pytest.raises(NoVfioGroup, match=reason) as caught:
        vfio.nodes(address, sysfs_root=sys, dev_root=dev)
    assert caught.value.pci_address == address
    assert isinstance(caught.value, CannotAsk)


def test_all_functions_of_a_group_are_known(sys: Path) -> None:
    """Both functions are in one group, which only one container can get."""
    assert vfio.members("12", sysfs_root=sys) == (ADDRESS, "0000:3b:10.1")
    assert vfio.members("99", sysfs_root=sys) == ()
