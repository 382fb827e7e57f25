"""Which boot this is."""

from pathlib import Path

from kubedevices.host.boot_id import read_boot_id


def test_the_boot_id_of_this_machine_is_read() -> None:
    """The kernel's own form: 36 characters, the same every time."""
    assert len(read_boot_id()) == 36
    assert read_boot_id() == read_boot_id()


def test_an_unreadable_boot_id_is_empty(tmp_path: Path) -> None:
    """A missing file, and a file that is not text."""
    assert read_boot_id(tmp_path / "none") == ""
    (tmp_path / "binary").write_bytes(b"\xff")
    assert read_boot_id(tmp_path / "binary") == ""
