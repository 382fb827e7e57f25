"""Files that tell the next process which slices may exist."""

from pathlib import Path

import pytest

from kubedevices.dra import state_files
from kubedevices.dra.state_files import SLICES_FILE, StateFiles
from kubedevices.errors import PreparedUnwritable
from kubedevices.host.shared_directory import SharedDirectory


def test_the_next_process_knows_which_devices_were_published(tmp_path: Path) -> None:
    """Devices are added before they are published, and removed when they have left DRA."""
    files = StateFiles(tmp_path / "made")
    assert files.published() == frozenset()
    files.note_slices({"a", "b"})
    files.note_slices({"b", "c"})
    assert StateFiles(tmp_path / "made").published() == frozenset("abc")
    files.forget_devices({"a", "x"})
    assert StateFiles(tmp_path / "made").published() == frozenset("bc")
    files.forget_slices()
    assert files.published() == frozenset()
    assert not files.may_have_slices()


def test_an_empty_pool_is_noted_too(tmp_path: Path) -> None:
    """The driver has one empty slice then, which the next process must delete."""
    StateFiles(tmp_path).note_slices(())
    assert StateFiles(tmp_path).may_have_slices()
    assert StateFiles(tmp_path).published() == frozenset()


def test_nothing_is_written_without_a_new_device(tmp_path: Path) -> None:
    """A driver notes its devices at each change of one of them."""
    files = StateFiles(tmp_path)
    files.note_slices({"a", "b"})
    before = (tmp_path / SLICES_FILE).stat().st_ino
    files.note_slices({"a"})
    assert (tmp_path / SLICES_FILE).stat().st_ino == before


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"devices": 7}'])
def test_a_damaged_file_means_any_device(tmp_path: Path, text: str) -> None:
    """It stays as it is: a note of some devices would hide the others."""
    (tmp_path / SLICES_FILE).write_text(text)
    files = StateFiles(tmp_path)
    assert files.published() is None
    files.note_slices({"a"})
    files.forget_devices({"a"})
    assert files.published() is None


def test_a_file_of_very_many_devices_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices that come and go with new names must not fill the disk."""
    monkeypatch.setattr(state_files, "_MOST_DEVICES", 2)
    files = StateFiles(tmp_path)
    files.note_slices({"a", "b", "c"})
    assert files.may_have_slices()
    assert files.published() is None


def test_a_file_that_cannot_be_written_is_an_error_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No slice is published then."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SharedDirectory, "replace", full)
    with pytest.raises(PreparedUnwritable, match=f"{SLICES_FILE}: No space"):
        StateFiles(tmp_path).note_slices({"a"})
    assert StateFiles(tmp_path).published() == frozenset()
