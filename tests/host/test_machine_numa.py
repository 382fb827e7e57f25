"""kubedevices.host.machine_numa"""

from pathlib import Path

from kubedevices.host.machine_numa import MachineNuma, read_machine_numa


def test_nodes_and_distances_are_read(tmp_path: Path) -> None:
    """Online nodes, and the kernel's row of distances for each."""
    directory = tmp_path / "devices/system/node"
    for node, row in ((0, "10 21"), (2, "21 10")):
        (directory / f"node{node}").mkdir(parents=True)
        (directory / f"node{node}/distance").write_text(f"{row}\n")
    (directory / "online").write_text("0,2\n")
    assert read_machine_numa(tmp_path) == MachineNuma((0, 2), {0: (10, 21), 2: (21, 10)})


def test_a_kernel_without_numa_has_one_node(tmp_path: Path) -> None:
    """No directory: node 0 only, and no distance that could be wrong."""
    assert read_machine_numa(tmp_path).nodes == (0,)


def test_invalid_numbers_in_sysfs_are_ignored(tmp_path: Path) -> None:
    """An invalid distance removes that node's distances, an invalid `online` leaves node 0."""
    directory = tmp_path / "devices/system/node"
    (directory / "node0").mkdir(parents=True)
    (directory / "node0/distance").write_text("near far\n")
    (directory / "online").write_text("all of them\n")
    assert read_machine_numa(tmp_path) == MachineNuma((0,), {})
