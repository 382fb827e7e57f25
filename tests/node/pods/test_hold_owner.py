"""`kubedevices.node.pods.hold_owner`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubedevices.errors import CannotAsk, HoldInUse
from kubedevices.node.pods.hold_owner import OWNERS, OwnedHold, read_owners

SLEEP = (sys.executable, "-c", "import sys; sys.stdin.read()")
POD = "default/train"


def test_a_hold_is_owned_until_it_is_released(tmp_path: Path) -> None:
    """A reader sees process and command. A release leaves no file."""
    with OwnedHold.claim(tmp_path, POD, "podman run x") as hold:
        assert not hold.was_left_behind
        (owner,) = read_owners(tmp_path).values()
        assert owner == (os.getpid(), "podman run x", True)
        hold.is_released = True
    assert read_owners(tmp_path) == {}
    assert list((tmp_path / OWNERS).iterdir()) == []


def test_a_hold_without_a_release_is_left_behind(tmp_path: Path) -> None:
    """Its file stays without a lock, also over a reboot. The next claim reports it."""
    with OwnedHold.claim(tmp_path, POD, "podman run x"):
        pass
    assert read_owners(tmp_path) == {POD: (os.getpid(), "podman run x", False)}
    with OwnedHold.claim(tmp_path, POD, "podman run y") as hold:
        assert hold.was_left_behind
        assert read_owners(tmp_path) == {POD: (os.getpid(), "podman run y", True)}


def test_two_commands_cannot_own_the_same_hold(tmp_path: Path) -> None:
    """The error names the first command. Reading does not need the lock."""
    with OwnedHold.claim(tmp_path, POD, "podman run x"):
        assert read_owners(tmp_path)[POD].is_running
        with pytest.raises(HoldInUse, match=f"process {os.getpid()}: podman run x") as refused:
            OwnedHold.claim(tmp_path, POD, "podman run y")
        assert refused.value.pod_uid == POD
        with OwnedHold.claim(tmp_path, "default/other", "podman run y") as other:
            assert not other.was_left_behind


def test_a_command_that_inherited_the_hold_keeps_it(tmp_path: Path) -> None:
    """If kubedevices is killed, its command still uses the devices: the hold counts as running."""
    hold = OwnedHold.claim(tmp_path, POD, "sleep")
    command = subprocess.Popen(SLEEP, stdin=subprocess.PIPE, pass_fds=[hold.file])
    hold.__exit__()
    assert read_owners(tmp_path)[POD].is_running
    command.kill()
    command.communicate()
    assert not read_owners(tmp_path)[POD].is_running


def test_a_claim_never_locks_a_file_that_was_removed(tmp_path: Path) -> None:
    """The owner removes its file at the same time: a lock on this file would protect nothing."""
    with OwnedHold.claim(tmp_path, POD, "a") as first:
        first.is_released = True
        stale = os.open(next((tmp_path / OWNERS).iterdir()), os.O_RDWR)
    with OwnedHold.claim(tmp_path, POD, "b") as second:
        assert not os.path.sameopenfile(second.file, stale)
        assert read_owners(tmp_path)[POD].is_running
    os.close(stale)


@pytest.mark.parametrize("what", ["fifo", "directory", "link", "no json", "other json", "empty"])
def test_foreign_files_are_skipped_without_waiting(tmp_path: Path, what: str) -> None:
    """The reader does not block on a foreign file and does not follow a link."""
    with OwnedHold.claim(tmp_path, POD, "a"):
        pass
    file = next((tmp_path / OWNERS).iterdir())
    target = tmp_path / "target"
    target.write_text("precious")
    match what:
        case "fifo":
            file.unlink()
            os.mkfifo(file)
        case "directory":
            file.unlink()
            file.mkdir()
        case "link":
            file.unlink()
            file.symlink_to(target)
        case _:
            file.write_text({"no json": "{", "other json": "[1]", "empty": ""}[what])
    assert read_owners(tmp_path) == {}
    if what in ("fifo", "directory", "link"):
        with pytest.raises(CannotAsk, match="cannot write"):
            OwnedHold.claim(tmp_path, POD, "b")
    assert target.read_text() == "precious"


def test_without_a_state_directory_reading_finds_nothing(tmp_path: Path) -> None:
    """A claim is an error with a reason."""
    assert read_owners(tmp_path / "none") == {}
    with pytest.raises(CannotAsk, match="No such file"):
        OwnedHold.claim(tmp_path / "none", POD, "a")
