"""Files where strangers write: whatever has the name, and whenever it comes to have it."""

import errno
import os
from pathlib import Path

import pytest

from kubedevices.host import cdi_specs, untrusted_files
from kubedevices.host.cdi_inventory import CdiInventory
from kubedevices.host.cdi_specs import read_registry
from kubedevices.host.untrusted_files import read_bytes
from tests.host.test_cdi_inventory import FILE, KIND, a_device
from tests.planted import PLANTS, Outside, clear, plant

WRONG = [kind for kind in PLANTS if kind != "file"]
WORDS = {kind: f"a {kind}" for kind in ("named pipe", "directory", "device")}
WORDS |= {"dead socket": "a socket"}


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


@pytest.mark.parametrize("kind", WRONG)
def test_only_a_regular_file_is_read(tmp_path: Path, outside: Outside, kind: str) -> None:
    """Another type of file is named in the error, without opening it."""
    plant(kind, tmp_path / "f", outside)
    with pytest.raises(OSError, match=WORDS.get(kind, "a symbolic link")) as error:
        read_bytes(tmp_path / "f", limit=100)
    assert error.value.errno == errno.EINVAL


def test_a_link_may_be_followed_to_a_regular_file_only(tmp_path: Path, outside: Outside) -> None:
    """We follow links as runtimes do, but never to a pipe or a device."""
    plant("link to a file", tmp_path / "good", outside)
    assert read_bytes(tmp_path / "good", limit=100, follow_links=True) == b"precious"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bad").symlink_to("pipe")
    with pytest.raises(OSError, match="a named pipe, not a regular file"):
        read_bytes(tmp_path / "bad", limit=100, follow_links=True)


def test_no_more_is_read_than_allowed(tmp_path: Path) -> None:
    """A sparse file of a terabyte is not read."""
    (tmp_path / "f").write_bytes(b"12345")
    assert read_bytes(tmp_path / "f", limit=5) == b"12345"
    os.truncate(tmp_path / "f", 2**40)
    with pytest.raises(OSError, match="more than 5 bytes") as error:
        read_bytes(tmp_path / "f", limit=5)
    assert error.value.errno == errno.EFBIG


@pytest.mark.parametrize("has_proc", [True, False], ids=["/proc", "no /proc"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_file_replaced_after_the_check(
    tmp_path: Path, outside: Outside, kind: str, has_proc: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checked file is read; if that is impossible, no other file is read."""
    path = tmp_path / "f"
    path.write_text("looked at")
    check = untrusted_files._check
    really_open = os.open

    def check_and_swap(file: int) -> None:
        check(file)
        plant(kind, path, outside)
        monkeypatch.setattr(untrusted_files, "_check", check)

    def open_without_proc(place: str | Path, flags: int, dir_fd: int | None = None) -> int:
        is_proc = str(place).startswith("/proc")
        return really_open("/nowhere" if is_proc else place, flags, dir_fd=dir_fd)

    monkeypatch.setattr(untrusted_files, "_check", check_and_swap)
    if has_proc:
        assert read_bytes(path, limit=100) == b"looked at"
        return
    monkeypatch.setattr(os, "open", open_without_proc)
    with pytest.raises(OSError):  # noqa: PT011 - each kind has its own
        read_bytes(path, limit=100)


@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("name", [FILE, f"{FILE}.x.tmp", "foreign.json", "foreign.yaml"])
def test_a_cdi_directory(short_dir: Path, name: str, kind: str) -> None:
    """Our file is correct or the kind fails; no call blocks, and no file elsewhere changes."""
    outside, run = Outside(short_dir / "outside"), short_dir / "cdi"
    run.mkdir()
    for turn in range(2):  # at the start, and while it runs
        clear(run / name)
        plant(kind, run / name, outside)
        if turn == 0:
            inventory = CdiInventory(run, read_also=[])
        inventory.publish({KIND: [a_device(f"w{turn}")]})
        wanted = f"{KIND}=w{turn}"
        assert inventory.ensure([wanted]) == (wanted,)
        assert list(read_registry([run]).devices) == [wanted]
        assert not any(path.is_symlink() for path in cdi_specs.our_files(run))
        inventory.remove_dead({"example.com"})
    inventory.publish({})
    outside.assert_untouched()
