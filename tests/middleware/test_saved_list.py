"""Lists on disk: what is written is read, what is damaged is told."""

from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.allocation import PluginOptions
from kubedevices.device import ForeignDevice
from kubedevices.middleware.saved_list import SavedList, read_saved_lists, write_saved_lists

DEVICES = (
    kd.Device("b", health="Unhealthy", numa_nodes=(0, 1)),  # type: ignore[arg-type]
    ForeignDevice("a", unknown=b"\x32\x01x"),
    kd.Device("c", numa_nodes=()),
)


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    """In its order, for its domain only; a list that is there already is not written again."""
    state = tmp_path / "state"
    kept = {
        "gpu": SavedList(DEVICES, PluginOptions(True, False, b"\x18\x01")),
        "nic": SavedList(()),
    }
    write_saved_lists(state, "a.example.com", kept)
    write_saved_lists(state, "b.example.com", {"gpu": SavedList(DEVICES[:1])})
    assert read_saved_lists(state, "a.example.com") == (kept, [])
    file = state / "lists/a.example.com_gpu.json"
    before = file.stat().st_ino
    write_saved_lists(state, "a.example.com", kept)
    assert file.stat().st_ino == before
    assert read_saved_lists(tmp_path / "none", "a.example.com") == ({}, [])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"resource": "example.com/w", "devices": [7], "options": {}}',
        '{"resource": "example.com/w", "devices": [{"id": ""}], "options": {}}',
        '{"resource": "example.com/w", "devices": [], "options": {"unknown": 1}}',
        '{"resource": "example.com", "devices": [], "options": {}}',
    ],
)
def test_a_damaged_list_is_logged_and_not_offered(tmp_path: Path, content: str) -> None:
    """The plugin starts as without a saved list."""
    write_saved_lists(tmp_path, "example.com", {"v": SavedList(DEVICES)})
    file = tmp_path / "lists/example.com_w.json"
    file.write_text(content)
    found, (problem,) = read_saved_lists(tmp_path, "example.com")
    assert [*found] == ["v"]
    assert problem.startswith(f"cannot read {file}: it is damaged: ")
