"""Attributes in /sys, and which NUMA nodes a device file belongs to. Blocking file access.

The kernel says the latter in `numa_node` and `local_cpulist` of the device or of one of the buses
above it, and often only half of it; the rules for making sense of that are those of Intel's device
plugins, with four differences (`NumaReader`). Both roots are arguments and hold for every access.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kubedevices.device import natural_key

SYSFS_ROOT = Path("/sys")
DEV_ROOT = Path("/dev")

_log = logging.getLogger(__name__)


def read_attribute(path: Path) -> str | None:
    """Return the text of a sysfs file without white space around it, None where there is none.

    Raises `OSError` for a file that is there and cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_entries(directory: Path) -> tuple[Path, ...]:
    """Return what is in `directory`, naturally sorted; nothing where it is missing."""
    try:
        return tuple(sorted(directory.iterdir(), key=lambda path: natural_key(path.name)))
    except (FileNotFoundError, NotADirectoryError):
        return ()


class DeviceNumber(NamedTuple):
    """How the kernel names a device: `char` or `block`, and two numbers."""

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
    """Return the number of a device file, or of the disk that any other file lives on."""
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


class _Hint(NamedTuple):
    """What one directory of /sys says. A lone number without CPUs counts as one of a socket."""

    has_cpus: bool
    nodes: frozenset[int]
    is_socket: bool

    def __bool__(self) -> bool:
        return self.has_cpus or bool(self.nodes) or self.is_socket


class NumaReader:
    """Looks up NUMA nodes; remembers only which warnings it gave.

    Where the reference makes less of the same files: a file that fails costs only its own nodes,
    not those of the whole device; a directory that names CPUs and no NUMA node does not end the
    search; nodes that are not online are left out; every negative number means unknown.
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
        hints = self._hints(self._find_directory(path), is_second_opinion=False)
        return {node for hint in hints.values() for node in hint.nodes}

    def _find_directory(self, path: Path) -> Path:
        """Return the directory of /sys that describes a device file."""
        if self._dev != DEV_ROOT and path.is_relative_to(DEV_ROOT):
            path = self._dev / path.relative_to(DEV_ROOT)
        number = self._stat_device(path)
        if number.major == 0:
            raise ValueError("it is a virtual device node")
        return self._sysfs / "dev" / number.kind / f"{number.major}:{number.minor}"

    def _hints(self, directory: Path, *, is_second_opinion: bool) -> dict[Path, _Hint]:
        """Return what `directory`, those above it and those it is made of say."""
        directory = directory.resolve(strict=True)
        hints: dict[Path, _Hint] = {}
        for place in self._upwards(directory):
            hint = self._hint_of(place)
            if not hint:
                continue
            hints[place] = hint
            # Whoever asks for a second opinion knows a node already and lacks only the CPUs.
            if is_second_opinion or hint.nodes or hint.is_socket:
                break
        for part in self._parts_of(directory):
            found = self._hints(part, is_second_opinion=is_second_opinion)
            hints = found | hints  # the first hint per directory wins
        return hints

    def _upwards(self, directory: Path) -> Iterator[Path]:
        devices = self._sysfs / "devices"
        while directory != devices and directory.is_relative_to(devices):
            yield directory
            directory = directory.parent

    def _parts_of(self, directory: Path) -> tuple[Path, ...]:
        """Return the disks below a dm or md device, or the PCI devices of a vfio group."""
        parts = list_entries(directory / "slaves")
        if directory.parent == self._sysfs / "devices/virtual/vfio":
            groups = self._sysfs / "kernel/iommu_groups"
            parts += list_entries(groups / directory.name / "devices")
        return parts

    def _hint_of(self, place: Path) -> _Hint:
        has_cpus = bool(read_attribute(place / "local_cpulist"))
        nodes = _parse_nodes(read_attribute(place / "numa_node") or "")
        if not nodes or has_cpus:
            return _Hint(has_cpus, nodes, is_socket=False)
        # Firmware that reports a socket as NUMA node: does anything above know better?
        above = self._ask_above(place)
        nodes = frozenset[int]().union(*(hint.nodes for hint in above)) or nodes
        if any(hint.has_cpus for hint in above):
            return _Hint(has_cpus=True, nodes=nodes, is_socket=False)
        return _Hint(has_cpus=False, nodes=frozenset(), is_socket=True)

    def _ask_above(self, place: Path) -> list[_Hint]:
        try:
            return list(self._hints(place.parent, is_second_opinion=True).values())
        except (OSError, RuntimeError, ValueError) as error:
            _log.debug("nothing to be learned above %s: %s", place, error)
            return []

    def _online_of(self, nodes: set[int]) -> set[int]:
        """Drop node numbers that this machine does not have: they have crashed consumers."""
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
    """Return the numbers of a comma list; a negative one, mostly -1, means unknown."""
    return frozenset(node for part in text.split(",") if part and (node := int(part)) >= 0)


def _parse_ranges(text: str) -> set[int]:
    """Return the numbers of a list such as `0-3,8`."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers
