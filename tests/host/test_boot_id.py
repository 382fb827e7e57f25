"""Which boot this is."""

from pathlib import Path

from kubedevices.host.boot_id import read_boot_id


def test_this_machine_tells() -> None:
    """The kernel's own form: 36 characters, the same every time."""
    assert len(read_boot_id()) == 36
    assert read_boot_id() == read_boot_id()


def test_a_machine_that_does_not_tell_has_none(tmp_path: Path) -> None:
    """No file, or one that is not a text."""
    assert read_boot_id(tmp_path / "none") == ""
    (tmp_path / "binary").write_bytes(b"\xff")
    assert read_boot_id(tmp_path / "binary") == ""
