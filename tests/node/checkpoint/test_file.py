"""kubelet_internal_checkpoint as a file: read once at the start, replaced as a whole."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kubedevices.errors import CannotRead, NodeError
from kubedevices.node.checkpoint.file import pods_of, read_bytes, replace
from kubedevices.node.pods.pod_devices import HeldDevices, Holding
from tests.ledger_rows import GADGET, WIDGET, held


def test_the_new_content_replaces_the_old(tmp_path: Path) -> None:
    """Only its owner may read the file. No temporary file is left."""
    file = tmp_path / "checkpoint"
    for data in (b"one", b"two, longer", b""):
        replace(file, data)
        assert file.read_bytes() == data
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_reader_still_sees_the_file_that_it_opened(tmp_path: Path) -> None:
    """A reader sees the old or the new content, never a part: each version is a new file."""
    file = tmp_path / "checkpoint"
    replace(file, b"old")
    with file.open("rb") as reader:
        replace(file, b"new")
        assert reader.read() == b"old"


def test_a_failed_write_has_the_kubelets_words(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    with pytest.raises(NodeError) as error:
        replace(tmp_path / "missing/checkpoint", b"new")
    reason = "No such file or directory"
    assert str(error.value) == f'failed to write checkpoint file "checkpoint": {reason}'


def test_a_full_disk_leaves_the_old_content(tmp_path: Path) -> None:
    """A real process whose files are limited to 1,000 bytes gets the error from the kernel."""
    code = (
        "import sys; from pathlib import Path\n"
        "from kubedevices.node.checkpoint.file import replace\n"
        "file = Path(sys.argv[1]); replace(file, b'x' * 900)\n"
        "try: replace(file, b'y' * 1100)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "print(file.read_bytes() == b'x' * 900, len(list(file.parent.iterdir())))"
    )
    done = subprocess.run(
        ["prlimit", "--fsize=1000", sys.executable, "-c", code, tmp_path / "checkpoint"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        'NodeError failed to write checkpoint file "checkpoint": File too large',
        "True 1",
    ]


def test_a_missing_file_is_none_and_another_problem_is_an_error(tmp_path: Path) -> None:
    """A missing file is normal at a first start."""
    assert read_bytes(tmp_path / "none") is None
    with pytest.raises(CannotRead, match="it is a directory, not a regular file"):
        read_bytes(tmp_path)


def test_a_replaced_file_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync of the content before the rename, and of the directory after the rename."""
    synced = []
    fsync = os.fsync

    def note(file: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(file).st_mode)
        synced.append(("directory" if is_directory else "file", (tmp_path / "f").exists()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    replace(tmp_path / "f", b"data")
    assert synced == [("file", False), ("directory", True)]


def test_pods_are_derived_from_their_holdings() -> None:
    """A device on two NUMA nodes is one device. Containers are in the order of the file."""
    both = HeldDevices({0: ["w0"], 1: ["w0", "w1"]}, held("w0").response)
    of = [
        Holding("p", "main", WIDGET, both),
        Holding("q", "only", WIDGET, held("w5")),
        Holding("p", "main", GADGET, held("g0")),
        Holding("p", "side", GADGET, held("g1", "g2")),
    ]
    made = pods_of(of)
    assert [pod.uid for pod, _ in made] == ["p", "q"]
    assert [(each.name, each.limits) for each in made[0][0]] == [
        ("main", {WIDGET: 2, GADGET: 1}),
        ("side", {GADGET: 2}),
    ]
    assert made[0][1] == [of[0], of[2], of[3]]
