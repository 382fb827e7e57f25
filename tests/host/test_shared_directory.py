"""Directories that strangers may reach: links lead nowhere, and foreign files are no obstacle."""

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubedevices.host.shared_directory import SharedDirectory
from tests.planted import PLANTS, Outside, clear, plant

ANY = re.compile(r"f.*")
TEMPORARY = "f.0123456789abcdef.tmp"


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    directory = tmp_path / "root" / "ours"
    directory.mkdir(parents=True)
    return directory


@pytest.mark.parametrize("kind", PLANTS)
def test_whatever_has_the_name_is_replaced(ours: Path, outside: Outside, kind: str) -> None:
    """A directory is kept under another name, and no temporary file stays."""
    plant(kind, ours / "f", outside)
    SharedDirectory.at(ours).replace("f", b"new", mode=0o640)
    assert (ours / "f").read_bytes() == b"new"
    assert (ours / "f").lstat().st_mode & 0o7777 == 0o640
    kept = [path for path in ours.iterdir() if path.name != "f"]
    assert [path.name[:10] for path in kept] == (["f.corrupt-"] if kind == "directory" else [])
    outside.assert_untouched()


@pytest.mark.parametrize("kind", PLANTS)
def test_a_replaced_temporary_file(
    ours: Path, outside: Outside, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker can replace the name in our directory, but no file elsewhere."""
    sync = os.fsync

    def swap_and_sync(file: int) -> None:
        for unfinished in ours.glob("*.tmp"):
            plant(kind, unfinished, outside)
        sync(file)

    monkeypatch.setattr(os, "fsync", swap_and_sync)
    try:
        SharedDirectory.at(ours).replace("f", b"new")
    except OSError:
        assert kind == "directory"
    outside.assert_untouched()


@pytest.mark.parametrize("kind", PLANTS)
def test_a_lock_file_of_another_kind_is_replaced(ours: Path, outside: Outside, kind: str) -> None:
    """The lock is on a regular file in our directory; a link, a pipe or a device is not opened."""
    plant(kind, ours / "f", outside)
    file = SharedDirectory.at(ours).open_lock("f")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert os.path.samestat(os.fstat(file), (ours / "f").lstat())
    assert (ours / "f").is_file()
    os.close(file)
    outside.assert_untouched()


@pytest.mark.parametrize("kind", PLANTS)
def test_whatever_has_the_name_is_removed(ours: Path, outside: Outside, kind: str) -> None:
    """A directory gets another name; the second removal says that there was nothing."""
    plant(kind, ours / "f", outside)
    directory = SharedDirectory.at(ours)
    assert directory.remove("f")
    assert not directory.remove("f")
    outside.assert_untouched()


@pytest.mark.parametrize("kind", PLANTS)
def test_leftovers_are_files_of_dead_writers(ours: Path, outside: Outside, kind: str) -> None:
    """A planted file is not opened; a file of a living writer, or of another form, stays."""
    held, planted = ours / "f.fedcba9876543210.tmp", ours / TEMPORARY
    held.touch()
    others = [ours / name for name in ("f.tmp", "f.1.tmp", "x.0123456789abcdef.tmp")]
    for each in others:
        each.touch()
    plant(kind, planted, outside)
    with held.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        found = SharedDirectory.at(ours).remove_leftovers(ANY)
        assert found == ((planted,) if kind == "file" else ())
    assert os.path.lexists(planted) is (kind != "file")
    assert all(each.exists() for each in (held, *others))
    outside.assert_untouched()


STEPS: dict[str, Callable[[SharedDirectory], object]] = {
    "create": lambda each: each.create(mode=0o755, for_all=True),
    "read": lambda each: each.read("file", limit=100),
    "names": lambda each: each.names(re.compile(".*")),
    "replace": lambda each: each.replace("file", b"new"),
    "remove": lambda each: each.remove("file"),
    "remove leftovers": lambda each: each.remove_leftovers(re.compile(".*")),
    "set aside": lambda each: each.set_aside("file"),
    "lock": lambda each: each.open_lock("file"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("level", ["ours", "inner"])
def test_a_link_below_the_root_is_refused(
    ours: Path, outside: Outside, level: str, step: str
) -> None:
    """At each level, by each step; the message names the link."""
    (outside.directory / TEMPORARY).write_text("")
    outside.remember()
    if level == "ours":
        clear(ours)
        ours.symlink_to(outside.directory)
        directory = SharedDirectory.at(ours)
    else:
        (ours / "inner").symlink_to(outside.directory)
        directory = SharedDirectory.at(ours).folder("inner")
    with pytest.raises(NotADirectoryError, match=f"{level} is a link or another file"):
        STEPS[step](directory)
    assert not directory.has("file", outside.file.read_bytes())
    assert directory.is_locked("file") is None
    outside.assert_untouched()


def test_links_to_the_root_count(tmp_path: Path) -> None:
    """The root directory of a kubelet may be a link; a missing directory is created below it."""
    (tmp_path / "there").mkdir()
    (tmp_path / "root").symlink_to("there")
    directory = SharedDirectory(tmp_path / "root", "plugins", "driver")
    directory.create()
    directory.replace("f", b"new")
    assert (tmp_path / "there/plugins/driver/f").read_bytes() == b"new"
    assert (tmp_path / "there/plugins/driver").stat().st_mode & 0o777 == 0o750


def test_a_directory_that_is_replaced_meanwhile(
    ours: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step goes on in the directory that it opened: the link that came later is not used."""
    sync = os.fsync

    def swap_and_sync(file: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        ours.rename(ours.with_name("moved"))
        ours.symlink_to(outside.directory)
        sync(file)

    monkeypatch.setattr(os, "fsync", swap_and_sync)
    SharedDirectory.at(ours).replace("file", b"new")
    assert (ours.with_name("moved") / "file").read_bytes() == b"new"
    outside.assert_untouched()


def test_a_foreign_lock_does_not_block(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root in a pod may lock our temporary file before we do."""
    others: list[int] = []
    make = os.open

    def make_and_lock(name: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        file = make(name, flags, mode, **more)
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL, "the name may be a link that leads elsewhere"
            others.append(make(name, os.O_RDONLY, **more))
            fcntl.flock(others[0], fcntl.LOCK_EX)
        return file

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", make_and_lock)
        SharedDirectory.at(ours).replace("f", b"new")
    os.close(others.pop())
    assert not others
    assert (ours / "f").read_bytes() == b"new"


def test_a_damaged_file_gets_another_name(ours: Path) -> None:
    """A second one in the same second too; a copy leaves the file where it is."""
    directory = SharedDirectory.at(ours)
    for text in (b"1", b"2"):
        directory.replace("f", text)
        directory.set_aside("f")
    directory.replace("f", b"3")
    directory.set_aside("f", is_copied=True)
    assert (ours / "f").read_bytes() == b"3"
    kept = sorted(path.read_bytes() for path in ours.glob("f.corrupt-*"))
    assert kept == [b"1", b"2", b"3"]
