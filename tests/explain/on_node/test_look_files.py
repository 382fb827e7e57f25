"""Device files on a host and in containers, by trees made of files and links to real devices."""

import os
from pathlib import Path

import pytest

from kubedevices.explain.on_node.facts import ProcessFacts, Selinux
from kubedevices.explain.on_node.look_files import (
    look_at_file,
    look_at_selinux,
    look_inside,
    processes_of_pods,
)

UID = "0e1b-22"


def test_a_device_file_of_the_host() -> None:
    """Kind, number and mode are the host's own."""
    seen = look_at_file("/dev/null")
    assert (seen.kind, seen.major, seen.minor, seen.problem) == ("c", 1, 3, "")
    assert seen.mode & 0o666 == 0o666


def test_paths_that_are_not_a_device_file(tmp_path: Path) -> None:
    """Missing, a directory, a file; below another /dev the same."""
    (tmp_path / "w").mkdir()
    (tmp_path / "f").touch()
    (tmp_path / "null").symlink_to("/dev/null")
    assert look_at_file("/dev/w", dev_root=tmp_path).kind == "directory"
    assert look_at_file("/dev/f", dev_root=tmp_path).kind == "file"
    assert look_at_file("/dev/null", dev_root=tmp_path).kind == "c"
    (tmp_path / "loop").symlink_to("loop")
    for name, problem in (("none", ""), ("f/none", ""), ("loop", "too many levels of symbolic")):
        seen = look_at_file(f"/dev/{name}", dev_root=tmp_path)
        assert (seen.kind, seen.problem[: len(problem) or None]) == ("", problem)


@pytest.mark.parametrize(("target", "link"), [("null", "/dev/char/1:3"), ("zero", "")])
def test_the_link_in_dev_char(tmp_path: Path, target: str, link: str) -> None:
    """Only one that leads to this very device counts."""
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "char").mkdir()
    (tmp_path / "char" / "1:3").symlink_to(f"/dev/{target}")
    assert look_at_file("/dev/null", dev_root=tmp_path).link == link


def test_selinux(tmp_path: Path) -> None:
    """Not there, enforcing, and with the boolean."""
    assert look_at_selinux(tmp_path) == Selinux()
    place = tmp_path / "fs" / "selinux" / "booleans"
    place.mkdir(parents=True)
    (place.parent / "enforce").write_text("1")
    assert look_at_selinux(tmp_path) == Selinux(is_enforcing=True)
    (place / "container_use_devices").write_text("1 1")
    assert look_at_selinux(tmp_path) == Selinux(is_enforcing=True, use_devices=True)
    (place / "container_use_devices").write_text("0 0")
    (place.parent / "enforce").write_text("0")
    assert look_at_selinux(tmp_path) == Selinux(is_enforcing=False, use_devices=False)


# ---------------------------------------------------------------- containers


def add_process(proc: Path, pid: int, cgroup: str, *, uid: int = 0, groups: str = "") -> Path:
    place = proc / str(pid)
    (place / "root" / "dev").mkdir(parents=True)
    (place / "comm").write_text("train\n")
    (place / "cgroup").write_text(cgroup)
    status = f"Name:\ttrain\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t7\t7\t7\t7\n"
    (place / "status").write_text(status + f"Groups:\t{groups}\n")
    return place


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods/burstable/pod{UID}/abc\n",
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-abc.scope\n",
    ],
)
def test_processes_of_a_pod_are_found_by_their_cgroup(tmp_path: Path, cgroup: str) -> None:
    """In the spelling of cgroupfs and in that of systemd."""
    add_process(tmp_path, 40, cgroup)
    add_process(tmp_path, 41, "0::/system.slice/sshd.service\n")
    assert processes_of_pods([UID], tmp_path) == {UID: [ProcessFacts(40, "train")]}
    assert processes_of_pods(["other"], tmp_path) == {}
    assert processes_of_pods([""], tmp_path) == {}


def test_a_device_inside_a_container(tmp_path: Path) -> None:
    """What the process sees, as whom it runs, and what a version 1 cgroup permits."""
    proc, sysfs = tmp_path / "proc", tmp_path / "sys"
    place = add_process(proc, 40, "5:cpu,devices:/pod1\n", uid=1000, groups="44 45")
    os.mkfifo(place / "root" / "dev" / "w0")  # the one device file that needs no root
    allowed = sysfs / "fs" / "cgroup" / "devices" / "pod1"
    allowed.mkdir(parents=True)
    (allowed / "devices.list").write_text("c 1:3 rw\n")
    seen = look_inside(
        [ProcessFacts(40, "train")], ["/dev/w0", "/dev/w1"], proc_root=proc, sysfs_root=sysfs
    )
    assert seen is not None
    there, missing = seen
    assert (there.kind, there.runs_as, there.groups) == ("p", 1000, (7, 44, 45))
    assert there.cgroup == "c 1:3 rw\n"
    assert (missing.container_path, missing.kind) == ("/dev/w1", "")


def test_device_permissions_are_unknown_with_cgroup_version_2(tmp_path: Path) -> None:
    """Its permissions are a program."""
    place = add_process(tmp_path, 40, "0::/pod1\n")
    os.mkfifo(place / "root" / "dev" / "w0")
    seen = look_inside([ProcessFacts(40, "train")], ["/dev/w0"], proc_root=tmp_path)
    assert seen is not None
    assert [each.cgroup for each in seen] == [None]


def test_a_process_that_ended_is_not_a_container_without_devices(tmp_path: Path) -> None:
    """None at all means that nobody could be looked at, or only at half of it."""
    train = ProcessFacts(40, "train")
    assert look_inside([train], ["/dev/w0"], proc_root=tmp_path) is None
    place = add_process(tmp_path, 40, "0::/pod1\n")
    os.mkfifo(place / "root" / "dev" / "w0")
    (place / "cgroup").unlink()
    assert processes_of_pods([UID], tmp_path) == {}
    seen = look_inside([train], ["/dev/w0"], proc_root=tmp_path)
    assert seen is not None
    assert [(each.kind, each.cgroup) for each in seen] == [("p", None)]
    (place / "status").unlink()
    assert look_inside([train], ["/dev/w0"], proc_root=tmp_path) is None
