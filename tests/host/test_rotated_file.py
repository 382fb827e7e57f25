"""A file of a bounded size, in a directory where strangers may write."""

import errno
import fcntl
import os
import resource
from pathlib import Path

import pytest

from kubedevices.host.rotated_file import RotatedFile


def contents(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


@pytest.mark.parametrize(
    ("files", "left"),
    [(1, {"f": b"4"}), (2, {"f": b"4", "f.1": b"3"}), (3, {"f": b"4", "f.1": b"3", "f.2": b"2"})],
)
def test_the_oldest_file_goes(tmp_path: Path, files: int, left: dict[str, bytes]) -> None:
    """Each `begin` renames one more file."""
    file = RotatedFile(tmp_path / "f", files=files)
    for number in b"1234":
        file.begin()
        file.write(bytes([number]))
    file.close()
    assert contents(tmp_path) == left
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("kind", ["link", "broken link", "pipe"])
def test_a_planted_file_is_moved_aside_and_not_followed(
    tmp_path: Path, kind: str, files: int
) -> None:
    """Any file of that name is renamed; nothing is written through it, no call blocks."""
    victim, path = tmp_path / "victim", tmp_path / "records" / "f"
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(victim)
    if kind == "link":
        victim.write_bytes(b"mine")
    file = RotatedFile(path, files=files)
    file.begin()
    file.write(b"line")
    file.close()
    assert path.read_bytes() == b"line"
    assert not path.is_symlink()
    assert (victim.read_bytes() if victim.exists() else None) == (
        b"mine" if kind == "link" else None
    )


def test_a_directory_with_the_name_stays(tmp_path: Path) -> None:
    """`begin` raises an error, and the older files keep their names, also after several tries."""
    (tmp_path / "f").mkdir()
    (tmp_path / "f.1").write_bytes(b"older")
    file = RotatedFile(tmp_path / "f", files=3)
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            file.begin()
    assert (tmp_path / "f.1").read_bytes() == b"older"
    assert not file.is_open


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    """The second is refused until the first has ended."""
    first, second = (RotatedFile(tmp_path / "f", files=2) for _ in range(2))
    first.begin()
    with pytest.raises(OSError, match="another process writes this file") as refused:
        second.begin()
    assert refused.value.errno == errno.EBUSY
    first.begin()
    first.close()
    second.begin()
    second.close()


def test_a_line_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A disk that is full in the middle of a line leaves the file as it was before."""
    file = RotatedFile(tmp_path / "f", files=1)
    file.begin()
    file.write(b"first\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            file.write(b"second line\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file.write(b"third\n")
    file.close()
    assert (tmp_path / "f").read_bytes() == b"first\nthird\n"


def test_the_file_is_locked_while_it_is_open(tmp_path: Path) -> None:
    """Other processes see from the lock that the file is in use."""
    file = RotatedFile(tmp_path / "f", files=1)
    file.begin()
    with (tmp_path / "f").open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.close()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
