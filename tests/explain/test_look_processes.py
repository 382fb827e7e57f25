"""Processes, by a /proc made of files."""

from pathlib import Path

import pytest

from kubedevices.explain.facts import Process
from kubedevices.explain.look_processes import (
    all_listening,
    kubelets,
    owner_of,
    process,
    processes,
    unix_sockets,
)

UNIX = """\
Num       RefCount Protocol Flags    Type St Inode Path
0000: 00000002 00000000 00010000 0001 01 100 /run/a b.sock
0001: 00000003 00000000 00000000 0001 03 101 /run/a b.sock
0002: 00000003 00000000 00000000 0001 03 102
"""


def add_process(
    proc: Path, pid: int, name: str, *arguments: str, namespace: str = "net:[1]", unix: str = UNIX
) -> Path:
    place = proc / str(pid)
    for folder in ("ns", "net", "fd"):
        (place / folder).mkdir(parents=True)
    (place / "comm").write_text(name + "\n")
    (place / "cmdline").write_text("\0".join((name, *arguments)) + "\0")
    (place / "ns" / "net").symlink_to(namespace)
    (place / "net" / "unix").write_text(unix)
    return place


def test_processes_are_listed_in_order(tmp_path: Path) -> None:
    """Only what is a process; one that ended meanwhile is none."""
    add_process(tmp_path, 10, "b")
    add_process(tmp_path, 9, "a")
    (tmp_path / "self").mkdir()
    (tmp_path / "11").mkdir()
    assert [*processes(tmp_path)] == [Process(9, "a"), Process(10, "b")]
    assert process(0, tmp_path) is None
    assert [*processes(tmp_path / "nothing")] == []


def test_unix_sockets_with_a_path(tmp_path: Path) -> None:
    """A path may have blanks; a client's socket has none and is left out."""
    add_process(tmp_path, 9, "a")
    assert unix_sockets(9, tmp_path) == [
        (100, True, "/run/a b.sock"),
        (101, False, "/run/a b.sock"),
    ]
    assert unix_sockets(10, tmp_path) is None


def test_every_network_namespace_is_read(tmp_path: Path) -> None:
    """A plugin in a pod has one of its own, and its sockets are in no other."""
    add_process(tmp_path, 9, "a")
    add_process(tmp_path, 10, "b", unix=UNIX.replace("100", "200"))
    other = UNIX.replace("100", "300").replace("/run/a b.sock", "/run/c.sock")
    add_process(tmp_path, 11, "c", namespace="net:[2]", unix=other)
    (add_process(tmp_path, 12, "d", namespace="net:[3]") / "net" / "unix").unlink()
    assert all_listening(tmp_path) == {100: "/run/a b.sock", 300: "/run/c.sock"}


def test_the_owner_of_a_socket(tmp_path: Path) -> None:
    """Whoever has it open; nobody if we may not see."""
    place = add_process(tmp_path, 9, "a")
    (place / "fd" / "3").symlink_to("socket:[100]")
    assert owner_of(100, tmp_path) == Process(9, "a")
    assert owner_of(101, tmp_path) is None


def test_a_kubelet_that_hides_its_command_line_has_the_usual_root(tmp_path: Path) -> None:
    """As it is for a user who is not root, where /proc is mounted so."""
    (add_process(tmp_path, 9, "kubelet", "--root-dir=/data/k") / "cmdline").unlink()
    (found,) = kubelets(tmp_path)
    assert found.root_dir == Path("/var/lib/kubelet")


@pytest.mark.parametrize(
    ("arguments", "root", "policy"),
    [
        ((), "/var/lib/kubelet", None),
        (("--root-dir", "/data/k"), "/data/k", None),
        (("--root-dir=/data/k", "--v=2"), "/data/k", None),
        (("--topology-manager-policy=restricted",), "/var/lib/kubelet", "restricted"),
        (("--config={config}",), "/var/lib/kubelet", "single-numa-node"),
        (("--config={empty}",), "/var/lib/kubelet", "none"),
    ],
)
def test_kubelets_are_found_with_their_settings(
    tmp_path: Path, arguments: tuple[str, ...], root: str, policy: str | None
) -> None:
    """By name, command line and configuration file, as far as they can be read."""
    config, empty = tmp_path / "config.yaml", tmp_path / "empty.yaml"
    config.write_text("kind: KubeletConfiguration\ntopologyManagerPolicy: single-numa-node\n")
    empty.write_text("kind: KubeletConfiguration\n")
    add_process(tmp_path, 8, "widgets")
    filled = [each.format(config=config, empty=empty) for each in arguments]
    add_process(tmp_path, 9, "kubelet", *filled)
    (found,) = kubelets(tmp_path)
    assert (found.process, found.root_dir) == (Process(9, "kubelet"), Path(root))
    if policy is not None:  # without --config it is whatever this host has
        assert found.topology_policy == policy
