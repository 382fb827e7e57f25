"""State files of ours: damage of any kind is one error, and any kind of file is replaced."""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kubedevices.dra.claim_log import read_refusals
from kubedevices.dra.prepared_file import PreparedClaims
from kubedevices.errors import CannotRead
from kubedevices.host.state_file import StateFile
from kubedevices.proxy.known_sockets import KnownSockets
from kubedevices.proxy.proxy_config import ProxyRule
from kubedevices.proxy.saved_list import SavedLists
from kubedevices.rules.cordon_file import read_cordoned
from kubedevices.serving.held_devices_file import HeldDevicesFile
from tests.planted import PLANTS, Outside, plant

DEEP = b"[" * 100_000
DAMAGED = {
    "deep lists": DEEP,
    "deep objects": b'{"a":' * 50_000,
    "deep in a field": b'{"version": 1, "claims": ' + DEEP,
    "nothing": b"",
    "half": b'{"a": 1',
    "a list": b"[]",
    "a number": b"7",
    "no text": b"\xff\xfe\x00",
    "another form": b'{"b": 1}',
    "null": b"null",
    "a huge number": b'{"a": 1' + b"0" * 5000 + b"}",
}


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_one_error_and_the_next_write_replaces_the_file(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing file is no damage, and is not logged."""
    file = StateFile.at(tmp_path / "ours/state.json", limit=2**20, version=1)

    def read() -> int:
        return file.read_or(lambda found: int(found["a"]), -1)

    assert (read(), caplog.text) == (-1, "")
    file.write({"a": 1})
    file.path.write_bytes(content)
    with pytest.raises(CannotRead, match="it is damaged: "):
        file.read(lambda found: int(found["a"]))
    assert read() == -1
    assert f"cannot read {file.path}: it is damaged: " in caplog.text
    file.write({"a": 2})
    assert read() == 2


@pytest.mark.parametrize("kind", PLANTS)
def test_any_kind_of_file_is_replaced(tmp_path: Path, outside: Outside, kind: str) -> None:
    """It is not read, and nothing outside changes."""
    file = StateFile.at(tmp_path / "ours/state.json", limit=100, version=1)
    file.path.parent.mkdir()
    plant(kind, file.path, outside)
    assert file.read_or(lambda found: int(found["a"]), -1, level=logging.DEBUG) == -1
    file.write({"a": 1})
    assert file.read(lambda found: int(found["a"])) == 1
    outside.assert_untouched()


def test_equal_content_is_not_written_again(tmp_path: Path) -> None:
    """The file keeps its inode; a leftover of a killed writer goes with the first write."""
    file = StateFile.at(tmp_path / "ours/state.json", limit=100, version=1)
    file.path.parent.mkdir()
    left = file.path.with_name("state.json.0123456789abcdef.tmp")
    left.touch()
    file.write({"a": 1})
    before = file.path.stat().st_ino
    file.write({"a": 1})
    assert file.path.stat().st_ino == before
    assert not left.exists()


HELD = ProxyRule(hold=300.0, hold_over_reboot=True)
READERS: dict[str, Callable[[Path], object]] = {
    "prepared.json": PreparedClaims.read,
    "refused.json": read_refusals,
    "held-by-plugin.json": lambda path: HeldDevicesFile(path.parent, "boot").read(),
    "proxy-sockets.json": lambda path: KnownSockets(path.parent).load(),
    "lists/example.com_w.json": lambda path: SavedLists(path.parents[1], lambda _: HELD).load(),
    "maintenance.json": read_cordoned,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", [*PLANTS, *DAMAGED])
def test_each_state_file_may_be_anything(
    tmp_path: Path, outside: Outside, name: str, kind: str
) -> None:
    """Its reader goes on or names the file; no other error, and no wait for a pipe."""
    path = tmp_path / "state" / name
    path.parent.mkdir(parents=True)
    if kind in PLANTS:
        plant(kind, path, outside)
    else:
        path.write_bytes(DAMAGED[kind])
    # People write the file of cordoned devices, so its damage is told and not repaired.
    told = pytest.raises(CannotRead, match=f"cannot read {path}: ")
    is_told = name == "maintenance.json" and kind != "nothing"
    with told if is_told else contextlib.nullcontext():
        READERS[name](path)
    outside.assert_untouched()


@pytest.mark.parametrize("name", READERS)
def test_no_state_file_fills_the_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A file that something fills without an end is not read; it is said why."""
    caplog.set_level("DEBUG")
    path = tmp_path / "state" / name
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, 2**26 + 1)
    told = pytest.raises(CannotRead, match=r": more than \d+ bytes")
    with told if name == "maintenance.json" else contextlib.nullcontext():
        READERS[name](path)
        assert "more than " in caplog.text
