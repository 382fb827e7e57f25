"""The NUMA nodes of this machine and their distances. Blocking file access."""

from pathlib import Path
from typing import NamedTuple

from kubedevices.host.sysfs import SYSFS_ROOT, read_attribute
from kubedevices.values.numa import BadNumaNodes, parse_numa_nodes


class MachineNuma(NamedTuple):
    """`distances` maps a NUMA node to its distances to all `nodes`, in the order of `nodes`."""

    nodes: tuple[int, ...]
    distances: dict[int, tuple[int, ...]]


def read_machine_numa(sysfs_root: Path = SYSFS_ROOT) -> MachineNuma:
    """Return the online NUMA nodes; a kernel without NUMA has NUMA node 0 only.

    `distances` lacks a NUMA node whose distances cannot be read.
    """
    directory = sysfs_root / "devices" / "system" / "node"
    try:
        nodes = parse_numa_nodes(read_attribute(directory / "online") or "0")
    except (BadNumaNodes, OSError):
        nodes = (0,)
    distances = {}
    for node in nodes:
        try:
            words = (read_attribute(directory / f"node{node}" / "distance") or "").split()
            distances[node] = tuple(int(word) for word in words)
        except (OSError, ValueError):
            continue
    return MachineNuma(nodes, distances)
