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
    """Whoever looks sees process and command; a release leaves nothing."""
    with OwnedHold.claim(tmp_path, POD, "podman run x") as hold:
        assert not hold.was_left_behind
        (owner,) = read_owners(tmp_path).values()
        assert owner == (os.getpid(), "podman run x", True)
        hold.is_released = True
    assert read_owners(tmp_path) == {}
    assert list((tmp_path / OWNERS).iterdir()) == []


def test_a_hold_that_was_not_released_is_seen_as_left_behind(tmp_path: Path) -> None:
    """Its file stays without a lock, also over a reboot; the next claim learns of it."""
    with OwnedHold.claim(tmp_path, POD, "podman run x"):
        pass
    assert read_owners(tmp_path) == {POD: (os.getpid(), "podman run x", False)}
    with OwnedHold.claim(tmp_path, POD, "podman run y") as hold:
        assert hold.was_left_behind
        assert read_owners(tmp_path) == {POD: (os.getpid(), "podman run y", True)}


def test_two_commands_cannot_own_one_hold(tmp_path: Path) -> None:
    """The second is refused and told who the first is; looking is no claim."""
    with OwnedHold.claim(tmp_path, POD, "podman run x"):
        assert read_owners(tmp_path)[POD].is_running
        with pytest.raises(HoldInUse, match=f"process {os.getpid()}: podman run x") as refused:
            OwnedHold.claim(tmp_path, POD, "podman run y")
        assert refused.value.pod_uid == POD
        with OwnedHold.claim(tmp_path, "default/other", "podman run y") as other:
            assert not other.was_left_behind


def test_a_command_that_inherited_the_hold_keeps_it(tmp_path: Path) -> None:
    """Killed, we leave a command behind that still uses the devices: nobody calls it gone."""
    hold = OwnedHold.claim(tmp_path, POD, "sleep")
    command = subprocess.Popen(SLEEP, stdin=subprocess.PIPE, pass_fds=[hold.file])
    hold.__exit__()
    assert read_owners(tmp_path)[POD].is_running
    command.kill()
    command.communicate()
    assert not read_owners(tmp_path)[POD].is_running


def test_a_claim_beside_a_removal_gets_a_file_of_its_own(tmp_path: Path) -> None:
    """A lock on a file that its owner has just removed would be worth nothing."""
    with OwnedHold.claim(tmp_path, POD, "a") as first:
        first.is_released = True
        stale = os.open(next((tmp_path / OWNERS).iterdir()), os.O_RDWR)
    with OwnedHold.claim(tmp_path, POD, "b") as second:
        assert not os.path.sameopenfile(second.file, stale)
        assert read_owners(tmp_path)[POD].is_running
    os.close(stale)


@pytest.mark.parametrize("what", ["fifo", "directory", "link", "no json", "other json", "empty"])
def test_foreign_files_are_skipped_without_waiting(tmp_path: Path, what: str) -> None:
    """What is not a file of ours is left out, and never waited for or followed."""
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


def test_without_a_state_directory_there_is_no_owner(tmp_path: Path) -> None:
    """Reading finds nothing, claiming says why it cannot."""
    assert read_owners(tmp_path / "none") == {}
    with pytest.raises(CannotAsk, match="No such file"):
        OwnedHold.claim(tmp_path / "none", POD, "a")
