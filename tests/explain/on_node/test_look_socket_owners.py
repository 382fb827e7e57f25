"""Unix sockets of all network namespaces, by a /proc made of files."""

from pathlib import Path

from kubedevices.explain.on_node.facts import ProcessFacts
from kubedevices.explain.on_node.look_socket_owners import UnixSocket, open_sockets, unix_sockets
from tests.explain.on_node.test_look_processes import add_process

UNIX = """\
Num       RefCount Protocol Flags    Type St Inode Path
0000: 00000002 00000000 00010000 0001 01 100 /run/a b.sock
0001: 00000003 00000000 00000000 0001 03 101 /run/a b.sock
0002: 00000003 00000000 00000000 0001 03 102
"""


LISTENER = UnixSocket(100, True, "/run/a b.sock")


def have_open(place: Path, *inodes: int) -> None:
    for number, inode in enumerate(inodes):
        (place / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


def test_unix_sockets_with_a_path(tmp_path: Path) -> None:
    """A path may have blanks; a client's socket has none and is left out."""
    add_process(tmp_path, 9, "a", unix=UNIX)
    assert unix_sockets(9, tmp_path) == [LISTENER, (101, False, "/run/a b.sock")]
    assert unix_sockets(10, tmp_path) is None


def test_every_network_namespace_is_read_once(tmp_path: Path) -> None:
    """A plugin in a pod has one of its own, and its sockets are in no other."""
    add_process(tmp_path, 9, "a", unix=UNIX)
    add_process(tmp_path, 10, "b", unix=UNIX.replace(" 100 ", " 200 "))
    other = UNIX.replace(" 100 ", " 300 ").replace(" 101 ", " 0 ")  # 0: nobody has accepted it yet
    place = add_process(tmp_path, 11, "c", namespace="net:[2]", unix=other)
    have_open(place, 300)
    (add_process(tmp_path, 12, "d", namespace="net:[3]") / "net" / "unix").unlink()
    found = open_sockets(tmp_path)
    assert {*found.by_inode} == {100, 101, 300}
    assert [*found.listening()] == [
        (LISTENER, None),
        (LISTENER._replace(inode=300), ProcessFacts(11, "c")),
    ]
    assert found.sees(ProcessFacts(10, "b"))
    assert not found.sees(ProcessFacts(12, "d"))
    assert not found.sees(None)


def test_connections_accepted_by_a_child_are_counted(tmp_path: Path) -> None:
    """In whichever table they stand: of the kubelet's namespace, accepted by a child."""
    parent = add_process(tmp_path, 9, "a", unix=UNIX.replace("101", "102"))
    child = add_process(tmp_path, 10, "a")
    other = UNIX.replace("101", "103").replace(" 100 ", " 200 ")
    kubelet = add_process(tmp_path, 11, "kubelet", namespace="net:[2]", unix=other)
    have_open(parent, 100)
    have_open(child, 100, 102, 103)
    have_open(kubelet, 200)
    found = open_sockets(tmp_path)
    assert found.accepted(100) == 2
    assert found.accepted(200) == 0
    (parent / "fd" / "0").unlink()
    (child / "fd" / "0").unlink()
    assert open_sockets(tmp_path).accepted(100) is None  # nobody is seen to have it
    assert not found.is_still_open(LISTENER, ProcessFacts(9, "a"))
    assert found.is_still_open(LISTENER._replace(inode=200), ProcessFacts(11, "kubelet"))


def test_a_line_break_in_the_name_of_a_socket_does_no_harm(tmp_path: Path) -> None:
    """The kernel prints names as they are, so any user may add a line to the table."""
    forged = "x x x no_number x x no_inode name\nx x x 10000 x x y z\n"
    add_process(tmp_path, 4, "a", unix=f"Num\n{forged}0: 2 0 00010000 1 1 7 /good.sock\n")
    assert [each.path for each in unix_sockets(4, tmp_path) or ()] == ["/good.sock"]
