"""Who holds a lock: the process with its command, as /proc tells."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubedevices.host.lock_holder import holder_of

CODE = (
    "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); "
    "print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.touch()
    return path


def test_the_process_and_its_command_are_named(file: Path) -> None:
    """A control character in the command is not passed on to the terminal."""
    other = subprocess.Popen(
        [sys.executable, "-c", CODE, str(file), "red \033[31m"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    with other, file.open() as ours:
        assert other.stdout.readline() == "held\n"
        found = holder_of(ours.fileno())
        other.kill()
    assert found.startswith(f"process {other.pid} ({sys.executable} -c import fcntl")
    assert found.isprintable()


def test_a_lock_without_a_visible_process_is_said(file: Path, tmp_path: Path) -> None:
    """The holder may be in another container, and /proc may be missing."""
    with file.open() as ours, file.open() as other:
        assert "not visible" in holder_of(ours.fileno())
        fcntl.flock(other, fcntl.LOCK_SH)
        assert holder_of(ours.fileno()).startswith(f"process {os.getpid()} (")
        assert "not visible" in holder_of(ours.fileno(), tmp_path / "nowhere")


def test_a_lock_on_another_file_with_the_same_inode_number_does_not_count(
    file: Path, tmp_path: Path
) -> None:
    """A process counts only if it has the file open."""
    proc = tmp_path / "proc"
    (proc / "17/fd").mkdir(parents=True)
    (proc / "17/cmdline").write_bytes(b"stranger\0--flag\0")
    inode = file.stat().st_ino
    (proc / "locks").write_text(f"1: FLOCK  ADVISORY  WRITE 17 00:1f:{inode} 0 EOF\nx\n")
    with file.open() as ours:
        assert "not visible" in holder_of(ours.fileno(), proc)
        (proc / "17/fd/3").symlink_to(file)
        assert holder_of(ours.fileno(), proc) == "process 17 (stranger --flag)"
