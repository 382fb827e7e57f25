"""Attributes in /sys, and the NUMA nodes of device files. Blocking file access.

The kernel reports NUMA nodes in `numa_node` and `local_cpulist` of the device or of a bus above it,
and often only one of the two. We follow the rules of Intel's device plugins, with four differences
(`NumaReader`). The arguments `sysfs_root` and `dev_root` replace /sys and /dev, for tests.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kubedevices.values.device import natural_key

SYSFS_ROOT = Path("/sys")
DEV_ROOT = Path("/dev")

_log = logging.getLogger(__name__)


def read_attribute(path: Path) -> str | None:
    """Return the text of a sysfs file without white space around it, None if it does not exist.

    Raises `OSError` if the file exists and cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_entries(directory: Path) -> tuple[Path, ...]:
    """Return the entries of `directory` in natural order; none if it does not exist."""
    try:
        return tuple(sorted(directory.iterdir(), key=lambda path: natural_key(path.name)))
    except (FileNotFoundError, NotADirectoryError):
        return ()


class DeviceNumber(NamedTuple):
    """The kernel's identifier of a device: `char` or `block`, and two numbers."""

    kind: str
    major: int
    minor: int


def own_device_number(path: Path) -> DeviceNumber | None:
    """Return the number of a device file, None for any other file."""
    return _own_number(path.stat())


def _own_number(status: os.stat_result) -> DeviceNumber | None:
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        kind = "char" if stat.S_ISCHR(status.st_mode) else "block"
        return DeviceNumber(kind, os.major(status.st_rdev), os.minor(status.st_rdev))
    return None


def device_number(path: Path) -> DeviceNumber:
    """Return the number of a device file; for any other file that of the disk it is on."""
    status = path.stat()
    if (number := _own_number(status)) is not None:
        return number
    return DeviceNumber("block", os.major(status.st_dev), os.minor(status.st_dev))


def numa_nodes_of(
    paths: Iterable[str | Path],
    *,
    sysfs_root: Path = SYSFS_ROOT,
    dev_root: Path = DEV_ROOT,
    stat_device: Callable[[Path], DeviceNumber] = device_number,
) -> tuple[int, ...]:
    """Return the NUMA nodes of the device files `paths`, sorted; see `NumaReader`."""
    reader = NumaReader(
        sysfs_root=sysfs_root,
        dev_root=dev_root,
        stat_device=stat_device,
    )
    return reader.nodes_of(paths)


class _NumaInfo(NamedTuple):
    """What one directory of /sys says about NUMA.

    `is_socket`: it has a number but no CPUs, so the number may be a CPU socket, not a NUMA node.
    """

    has_cpus: bool
    nodes: frozenset[int]
    is_socket: bool

    def __bool__(self) -> bool:
        return self.has_cpus or bool(self.nodes) or self.is_socket


class NumaReader:
    """Looks up NUMA nodes; remembers only which warnings it logged.

    The four differences from Intel's code: (1) If one device file fails, the device keeps the NUMA
    nodes of its other files. (2) A directory with CPUs and without a NUMA node does not end the
    search. (3) NUMA nodes that are not online are left out. (4) Every negative number means
    unknown.
    """

    def __init__(
        self,
        *,
        sysfs_root: Path = SYSFS_ROOT,
        dev_root: Path = DEV_ROOT,
        stat_device: Callable[[Path], DeviceNumber] = device_number,
    ) -> None:
        self._sysfs, self._dev = sysfs_root.resolve(), dev_root
        self._stat_device = stat_device
        self._warned: set[int] = set()

    def nodes_of(self, paths: Iterable[str | Path]) -> tuple[int, ...]:
        """Return the NUMA nodes of a device with these host paths, sorted."""
        nodes: set[int] = set()
        for path in paths:
            try:
                nodes |= self._nodes_of_file(Path(path))
            except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of symlinks
                _log.debug("no topology for %s: %s: left out", path, error)
        return tuple(sorted(self._online_of(nodes)))

    def _nodes_of_file(self, path: Path) -> set[int]:
        infos = self._infos(self._find_directory(path), cpus_suffice=False)
        return {node for info in infos.values() for node in info.nodes}

    def _find_directory(self, path: Path) -> Path:
        """Return the directory of /sys that describes a device file."""
        if self._dev != DEV_ROOT and path.is_relative_to(DEV_ROOT):
            path = self._dev / path.relative_to(DEV_ROOT)
        number = self._stat_device(path)
        if number.major == 0:
            raise ValueError("it is a virtual device node")
        return self._sysfs / "dev" / number.kind / f"{number.major}:{number.minor}"

    def _infos(self, directory: Path, *, cpus_suffice: bool) -> dict[Path, _NumaInfo]:
        """Return the infos of `directory`, the directories above it and its components.

        The search upwards ends at a directory with a NUMA node, or with `cpus_suffice` at the first
        directory with any information.
        """
        directory = directory.resolve(strict=True)
        infos: dict[Path, _NumaInfo] = {}
        for each in self._upwards(directory):
            info = self._info_of(each)
            if not info:
                continue
            infos[each] = info
            if cpus_suffice or info.nodes or info.is_socket:
                break
        for part in self._components_of(directory):
            found = self._infos(part, cpus_suffice=cpus_suffice)
            infos = found | infos  # the first info per directory wins
        return infos

    def _upwards(self, directory: Path) -> Iterator[Path]:
        devices = self._sysfs / "devices"
        while directory != devices and directory.is_relative_to(devices):
            yield directory
            directory = directory.parent

    def _components_of(self, directory: Path) -> tuple[Path, ...]:
        """Return the disks of a dm or md device, or the PCI functions of a vfio group."""
        parts = list_entries(directory / "slaves")
        if directory.parent == self._sysfs / "devices/virtual/vfio":
            groups = self._sysfs / "kernel/iommu_groups"
            parts += list_entries(groups / directory.name / "devices")
        return parts

    def _info_of(self, directory: Path) -> _NumaInfo:
        has_cpus = bool(read_attribute(directory / "local_cpulist"))
        nodes = _parse_nodes(read_attribute(directory / "numa_node") or "")
        if not nodes or has_cpus:
            return _NumaInfo(has_cpus, nodes, is_socket=False)
        # Some firmware reports a CPU socket as NUMA node: a directory above may know more.
        above = self._infos_above(directory)
        nodes = frozenset[int]().union(*(info.nodes for info in above)) or nodes
        if any(info.has_cpus for info in above):
            return _NumaInfo(has_cpus=True, nodes=nodes, is_socket=False)
        return _NumaInfo(has_cpus=False, nodes=frozenset(), is_socket=True)

    def _infos_above(self, directory: Path) -> list[_NumaInfo]:
        try:
            return list(self._infos(directory.parent, cpus_suffice=True).values())
        except (OSError, RuntimeError, ValueError) as error:
            _log.debug("no NUMA information above %s: %s", directory, error)
            return []

    def _online_of(self, nodes: set[int]) -> set[int]:
        """Remove NUMA nodes that are not online: their numbers have crashed other programs."""
        path = self._sysfs / "devices/system/node/online"
        try:
            text = read_attribute(path) if nodes else None
            if not text:  # a kernel without NUMA
                return nodes
            online = _parse_ranges(text)
        except (OSError, ValueError) as error:
            _log.debug("cannot tell which NUMA nodes are online: %s: %s", path, error)
            return nodes
        for node in sorted(nodes - online - self._warned):
            _log.warning("NUMA node %d is not online (%s): left out", node, text)
        self._warned |= nodes - online
        return nodes & online


def _parse_nodes(text: str) -> frozenset[int]:
    """Return the numbers of a list with commas; a negative number, usually -1, means unknown."""
    return frozenset(node for part in text.split(",") if part and (node := int(part)) >= 0)


def _parse_ranges(text: str) -> set[int]:
    """Return the numbers of a list such as `0-3,8`."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers
