"""NUMA nodes of device files, on small trees."""

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from kubedevices.host.sysfs import (
    DeviceNumber,
    NumaReader,
    device_number,
    list_entries,
    numa_nodes_of,
    read_attribute,
)
from tests.host.fake_sysfs import FakeSysfs

ROOT = "pci0000:00"
BRIDGE = f"{ROOT}/0000:00:01.0"
CHILD = f"{BRIDGE}/0000:01:00.0"
Says = tuple[str | None, str | None]
"""What a directory says: numa_node and local_cpulist, None for no file."""

NOTHING: Says = (None, None)


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    """Give an empty /sys."""
    return FakeSysfs(tmp_path)


@pytest.mark.parametrize(
    ("child", "parent", "grandparent", "nodes"),
    [
        # child without files, parent knows
        (NOTHING, ("1", "8-15"), NOTHING, (1,)),
        (("", ""), ("1", "8-15"), NOTHING, (1,)),
        # the child's -1 means unknown
        (("-1", None), ("1", "8-15"), NOTHING, (1,)),
        # the reference stops at a directory that gives CPUs only, we go on
        (("-1", "0-15"), ("1", "8-15"), NOTHING, (1,)),
        ((None, "0-15"), ("1", "8-15"), NOTHING, (1,)),
        (("-1", "0-15"), ("-1", "0-15"), ("1", "8-15"), (1,)),
        (("-1", "0-15"), ("-1", "0-15"), ("-1", "0-15"), ()),
        # a number without CPUs: the parent's values replace the own ones
        (("1", None), ("0", "0-7"), NOTHING, (0,)),
        (("1", ""), ("0", "0-7"), NOTHING, (0,)),
        (("1", None), NOTHING, ("0", "0-7"), (0,)),
        # only the parent's CPUs are known: they confirm the own number
        (("1", None), ("-1", "0-7"), NOTHING, (1,)),
        (("1", None), ("-1", "0-7"), ("0", "0-7"), (1,)),
        # no CPUs anywhere: a socket number
        (("1", None), NOTHING, NOTHING, ()),
        (("1", None), ("-1", None), NOTHING, ()),
        (NOTHING, ("1", None), NOTHING, ()),
        (("1", None), ("0", None), NOTHING, ()),
        # the parent that is asked asks its own parent
        (("1", None), ("2", None), ("0", "0-7"), (0,)),
        # a socket number ends the search, too
        (("1", None), NOTHING, ("-1", None), ()),
        # a plain answer is taken as it is
        (("0", "0-7"), ("1", "8-15"), NOTHING, (0,)),
        (("0,1", "0-15"), NOTHING, NOTHING, (0, 1)),
        # any negative number is unknown
        (("-2", None), ("1", "8-15"), NOTHING, (1,)),
        (("-2", "0-7"), ("1", "8-15"), NOTHING, (1,)),
        # nothing known at all
        (NOTHING, NOTHING, NOTHING, ()),
    ],
)
def test_the_walk(
    sysfs: FakeSysfs,
    child: Says,
    parent: Says,
    grandparent: Says,
    nodes: tuple[int, ...],
) -> None:
    """Every tree of the table."""
    sysfs.directory(ROOT, *grandparent)
    sysfs.directory(BRIDGE, *parent)
    path = sysfs.device_file("w0", sysfs.directory(CHILD, *child))
    assert sysfs.reader().nodes_of([path]) == nodes


def test_the_walk_ends_below_sys_devices(sysfs: FakeSysfs) -> None:
    """/sys/devices itself and what is above it say nothing about a device."""
    for directory in (sysfs.sys / "devices", sysfs.sys):
        (directory / "numa_node").write_text("1")
        (directory / "local_cpulist").write_text("0-7")
    path = sysfs.device_file("w0", sysfs.directory("virtual/misc/w0"))
    assert sysfs.reader().nodes_of([path]) == ()


def test_a_device_outside_of_sys_devices_says_nothing(sysfs: FakeSysfs) -> None:
    """A link that leads elsewhere is followed and found without hints."""
    elsewhere = sysfs.sys / "class/w0"
    elsewhere.mkdir(parents=True)
    (elsewhere / "numa_node").write_text("1")
    (elsewhere / "local_cpulist").write_text("0-7")
    assert sysfs.reader().nodes_of([sysfs.device_file("w0", elsewhere)]) == ()


def test_a_dm_device_has_the_nodes_of_its_disks(sysfs: FakeSysfs) -> None:
    """A volume over disks on two NUMA nodes belongs to both."""
    volume = sysfs.directory("virtual/block/dm-0")
    for number, says in enumerate([("1", "8-15"), ("0", "0-7")]):
        sysfs.directory(f"{ROOT}/0000:00:0{number}.0", *says)
        disk = sysfs.directory(f"{ROOT}/0000:00:0{number}.0/nvme/nvme{number}n1")
        (volume / "slaves").mkdir(exist_ok=True)
        link = volume / "slaves" / disk.name
        link.symlink_to(os.path.relpath(disk, link.parent))
    path = sysfs.device_file("dm-0", volume, kind="block")
    assert sysfs.reader().nodes_of([path]) == (0, 1)


def test_volumes_over_volumes(sysfs: FakeSysfs) -> None:
    """Dependents are looked up through every level."""
    disk = sysfs.directory(f"{ROOT}/0000:00:01.0/sda", "1", "8-15")
    lower = sysfs.directory("virtual/block/md0")
    upper = sysfs.directory("virtual/block/dm-0")
    for volume, part in ((lower, disk), (upper, lower)):
        (volume / "slaves").mkdir()
        (volume / "slaves" / part.name).symlink_to(part)
    assert sysfs.reader().nodes_of([sysfs.device_file("dm-0", upper, kind="block")]) == (1,)


def test_a_vfio_group_has_the_nodes_of_its_devices(sysfs: FakeSysfs) -> None:
    """/dev/vfio/42 belongs to the NUMA node of the PCI device in group 42."""
    pci = sysfs.directory(f"{ROOT}/0000:00:05.0", "0", "0-7")
    members = sysfs.sys / "kernel/iommu_groups/42/devices"
    members.mkdir(parents=True)
    (members / pci.name).symlink_to(os.path.relpath(pci, members))
    path = sysfs.device_file("vfio/42", sysfs.directory("virtual/vfio/42"))
    assert sysfs.reader().nodes_of([path]) == (0,)


def test_a_vfio_device_without_group(sysfs: FakeSysfs) -> None:
    """/dev/vfio/vfio is no group and has no node."""
    path = sysfs.device_file("vfio/vfio", sysfs.directory("virtual/misc/vfio"))
    assert sysfs.reader().nodes_of([path]) == ()
    path = sysfs.device_file("vfio/7", sysfs.directory("virtual/vfio/7"))
    assert sysfs.reader().nodes_of([path]) == ()


def test_a_device_with_several_files(sysfs: FakeSysfs) -> None:
    """The nodes of all files count, sorted and once each."""
    paths = [
        sysfs.device_file("b", sysfs.directory("pci0000:80/b", "1", "8-15")),
        sysfs.device_file("a", sysfs.directory("pci0000:00/a", "0", "0-7")),
        sysfs.device_file("c", sysfs.directory("pci0000:80/c", "1", "8-15")),
    ]
    assert sysfs.reader().nodes_of(paths) == (0, 1)
    assert sysfs.reader().nodes_of([]) == ()


def break_nothing(sysfs: FakeSysfs) -> str:
    """A path that does not exist."""
    return "/dev/missing"


def break_major(sysfs: FakeSysfs) -> str:
    """A file on a file system without a disk has no NUMA node."""
    sysfs.numbers[sysfs.dev / "virtual"] = DeviceNumber("block", 0, 22)
    return "/dev/virtual"


def break_link(sysfs: FakeSysfs) -> str:
    """A device the kernel does not list."""
    sysfs.numbers[sysfs.dev / "unlisted"] = DeviceNumber("char", 5, 5)
    return "/dev/unlisted"


def break_number(sysfs: FakeSysfs) -> str:
    """A numa_node that is not a number."""
    return sysfs.device_file("odd", sysfs.directory("pci0000:00/odd", "first", "0-7"))


def break_attribute(sysfs: FakeSysfs) -> str:
    """A numa_node that cannot be read."""
    directory = sysfs.directory("pci0000:00/locked")
    (directory / "numa_node").mkdir()
    return sysfs.device_file("locked", directory)


def break_slave(sysfs: FakeSysfs) -> str:
    """A volume whose disk is gone."""
    volume = sysfs.directory("virtual/block/dm-1")
    (volume / "slaves").mkdir()
    (volume / "slaves/sdx").symlink_to("../../../../gone")
    return sysfs.device_file("dm-1", volume, kind="block")


def break_loop(sysfs: FakeSysfs) -> str:
    """A link that leads to itself."""
    path = sysfs.device_file("loop", sysfs.directory("virtual/loop"))
    number = sysfs.numbers[sysfs.dev / "loop"]
    link = sysfs.sys / "dev/char" / f"{number.major}:{number.minor}"
    link.unlink()
    link.symlink_to(link.name)
    return path


BREAKS = [
    (break_nothing, "No such file or directory"),
    (break_major, "is a virtual device node"),
    (break_link, "No such file or directory"),
    (break_number, "invalid literal"),
    (break_attribute, "Is a directory"),
    (break_slave, "No such file or directory"),
    (break_loop, "loop"),
]


@pytest.mark.parametrize(("make_broken", "reason"), BREAKS)
class TestAFileThatFails:
    """One of a device's files cannot be looked up."""

    def test_costs_only_its_own_nodes(
        self,
        sysfs: FakeSysfs,
        make_broken: Callable[[FakeSysfs], str],
        reason: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The other files' NUMA nodes stay, and only the debug log has the error."""
        caplog.set_level(logging.DEBUG, "kubedevices")
        good = sysfs.device_file("good", sysfs.directory("pci0000:80/good", "1", "8-15"))
        broken = make_broken(sysfs)
        assert sysfs.reader().nodes_of([broken, good]) == (1,)
        (record,) = caplog.records
        assert record.levelno == logging.DEBUG
        assert broken in record.getMessage()
        assert reason in record.getMessage()


def test_a_failing_parent_is_no_failure(sysfs: FakeSysfs) -> None:
    """A parent that is asked for a second opinion and cannot answer is left out."""
    parent = sysfs.directory(BRIDGE)
    (parent / "numa_node").mkdir()
    path = sysfs.device_file("w0", sysfs.directory(CHILD, "1"))
    assert sysfs.reader().nodes_of([path]) == ()


def test_nodes_that_are_not_online_are_dropped(
    sysfs: FakeSysfs, caplog: pytest.LogCaptureFixture
) -> None:
    """A number the machine does not have is left out, with one warning in all."""
    sysfs.online("0-1,4")
    sysfs.directory("pci0000:00", "0,3,4", "0-7")
    paths = [sysfs.device_file(f"w{n}", sysfs.directory(f"pci0000:00/{n}")) for n in range(3)]
    reader = sysfs.reader()
    assert [reader.nodes_of([path]) for path in paths] == [(0, 4)] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "NUMA node 3 is not online (0-1,4): left out"
    ]


def test_without_a_list_of_online_nodes_all_are_kept(sysfs: FakeSysfs) -> None:
    """A kernel without NUMA support has no such list."""
    path = sysfs.device_file("w0", sysfs.directory("pci0000:00", "7", "0-7"))
    assert sysfs.reader().nodes_of([path]) == (7,)


@pytest.mark.parametrize("text", ["some", None])
def test_an_invalid_list_of_online_nodes_drops_nothing(sysfs: FakeSysfs, text: str | None) -> None:
    """A file that cannot be read or understood is no reason to lose a topology."""
    if text is None:
        sysfs.directory("system/node/online")
    else:
        sysfs.online(text)
    path = sysfs.device_file("w0", sysfs.directory("pci0000:00", "7", "0-7"))
    assert sysfs.reader().nodes_of([path]) == (7,)


def test_both_roots_are_used_for_every_access(sysfs: FakeSysfs) -> None:
    """Only paths in /dev move to another root; any other path is taken as it is."""
    seen: list[Path] = []

    def remember(path: Path) -> DeviceNumber:
        seen.append(path)
        raise FileNotFoundError(path)

    paths = ["/dev/dri/card0", "/opt/disk.img", "/devices/w0"]
    numa_nodes_of(paths, sysfs_root=sysfs.sys, dev_root=sysfs.dev, stat_device=remember)
    assert seen == [sysfs.dev / "dri/card0", Path("/opt/disk.img"), Path("/devices/w0")]


def test_the_look_up_in_one_call(sysfs: FakeSysfs) -> None:
    """`numa_nodes_of` does what a reader does."""
    path = sysfs.device_file("w0", sysfs.directory("pci0000:00", "-1", "0-7"))
    sysfs.directory("pci0000:00/w0")
    found = numa_nodes_of(
        [path],
        sysfs_root=sysfs.sys,
        dev_root=sysfs.dev,
        stat_device=sysfs.stat,
    )
    assert found == ()


def test_a_root_may_be_a_symlink(sysfs: FakeSysfs, tmp_path: Path) -> None:
    """A root reached through a link is the same root."""
    (tmp_path / "alias").symlink_to(sysfs.sys)
    path = sysfs.device_file("w0", sysfs.directory("pci0000:00", "1", "0-7"))
    reader = NumaReader(sysfs_root=tmp_path / "alias", dev_root=sysfs.dev, stat_device=sysfs.stat)
    assert reader.nodes_of([path]) == (1,)


def test_the_number_of_a_character_device() -> None:
    """/dev/null is 1:3 on every Linux."""
    assert device_number(Path("/dev/null")) == DeviceNumber("char", 1, 3)


def test_the_number_of_a_symlink_is_its_targets(tmp_path: Path) -> None:
    """Links such as /dev/dri/by-path are followed."""
    link = tmp_path / "link"
    link.symlink_to("/dev/zero")
    assert device_number(link) == DeviceNumber("char", 1, 5)


def test_the_number_of_a_block_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block device is found by its own number, not by that of the file system it lies on."""
    status = Mock(st_mode=stat.S_IFBLK | 0o660, st_dev=os.makedev(0, 5), st_rdev=os.makedev(7, 3))
    monkeypatch.setattr(Path, "stat", lambda _path: status)
    assert device_number(Path("/dev/loop3")) == DeviceNumber("block", 7, 3)


def test_the_number_of_a_regular_file_is_its_disks(tmp_path: Path) -> None:
    """A file or directory stands for the disk it lies on."""
    status = tmp_path.stat()
    expected = DeviceNumber("block", os.major(status.st_dev), os.minor(status.st_dev))
    assert device_number(tmp_path) == expected


def test_devices_of_this_machine() -> None:
    """/dev/null belongs to no NUMA node."""
    assert numa_nodes_of(["/dev/null"]) == ()


def test_reading_attributes(tmp_path: Path) -> None:
    """An attribute is its stripped text, None where it is missing, an error where it is odd."""
    (tmp_path / "vendor").write_text("0x8086\n")
    (tmp_path / "binary").write_bytes(b"\xff\n")
    assert read_attribute(tmp_path / "vendor") == "0x8086"
    assert read_attribute(tmp_path / "missing") is None
    assert read_attribute(tmp_path / "vendor" / "below") is None
    assert read_attribute(tmp_path / "binary") == "\ufffd"
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        read_attribute(tmp_path)


def test_listing_entries(tmp_path: Path) -> None:
    """Entries come naturally sorted, none from a directory that is not there."""
    for name in ("card10", "card2", "card1"):
        (tmp_path / name).touch()
    assert [path.name for path in list_entries(tmp_path)] == ["card1", "card2", "card10"]
    assert list_entries(tmp_path / "missing") == ()
    assert list_entries(tmp_path / "card1") == ()
