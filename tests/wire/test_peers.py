"""kubedevices.wire.peers"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kubedevices.wire import peers
from kubedevices.wire.peers import NOBODY, YOUNG, Peer, Places, peer_of

KUBELET, ONE, TWO = Peer(0, 1), Peer(0, 2), Peer(0, 3)
UNKNOWN = Peer(0, 0)


def old(_item: str) -> float:
    """Every item may go, the oldest first."""
    return 0


def young(_item: str) -> float:
    """No item goes for another item of its peer."""
    return YOUNG


def test_the_process_that_connected_is_known() -> None:
    """Both ends of a pair are this process; two pairs give the same peer."""
    first, second = socket.socketpair(), socket.socketpair()
    try:
        found = {peer_of(each) for each in (*first, *second)}
        assert len(found) == 1
        (peer,) = found
        assert peer.uid == os.getuid()
        assert peer.is_known
        assert peer.group == ""
    finally:
        for each in (*first, *second):
            each.close()


def test_two_processes_are_two_peers(short_dir: Path) -> None:
    """A child that connects is another peer than its parent."""
    path = short_dir / "s"
    code = f"import socket,sys; s=socket.socket(1); s.connect({str(path)!r}); sys.stdin.read()"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as own:
        listener.bind(str(path))
        listener.listen()
        own.connect(str(path))
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
            with listener.accept()[0] as first, listener.accept()[0] as second:
                assert peer_of(first).key != peer_of(second).key
            assert child.stdin is not None
            child.stdin.close()


def test_without_inodes_the_process_number_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 6.9, and in another PID namespace the number is 0: then nothing is known."""
    monkeypatch.setattr(peers, "_pidfds_have_inodes", lambda: False)
    first, second = socket.socketpair()
    with first, second:
        assert peer_of(first).process == os.getpid()
    assert not UNKNOWN.is_known


def test_a_control_group_of_others_is_one_peer(tmp_path: Path) -> None:
    """All processes of a container share its places; our own control group says nothing."""
    for name, group in (("self", "0::/host"), (str(os.getpid()), "0::/pod")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(group)
    first, second = socket.socketpair()
    with first, second:
        assert peer_of(first, tmp_path).key == (os.getuid(), "0::/pod")
        (tmp_path / "self" / "cgroup").write_text("0::/pod")
        assert peer_of(first, tmp_path).group == ""


def test_what_is_no_unix_socket_is_nobody() -> None:
    """No error ends the acceptance of a connection."""
    assert peer_of(None) == NOBODY
    closed = socket.socket(socket.AF_UNIX)
    closed.close()
    assert peer_of(closed) == NOBODY


def test_a_peer_has_at_most_its_share() -> None:
    """Its oldest item goes; other peers lose nothing."""
    places = Places(10, 2, old)
    assert places.enter("k", KUBELET) is None
    assert [places.enter(each, ONE) for each in "abcd"] == [None, None, "a", "b"]
    assert [*places] == ["k", "c", "d"]


def test_the_peer_with_most_makes_room() -> None:
    """Also if the newest item is of another peer."""
    places = Places(4, 4, old)
    for each in "abcd":
        places.enter(each, ONE)
    assert [places.enter(each, TWO) for each in "xyz"] == ["a", "b", "x"]


def test_many_peers_do_not_push_out_the_kubelet() -> None:
    """A neighbour forks a process per connection: each has one place, as the kubelet has."""
    places = Places(3, 2, old)
    places.favoured = KUBELET.key
    assert places.enter("k", KUBELET) is None
    left = [places.enter(str(n), Peer(0, 100 + n)) for n in range(6)]
    assert left == [None, None, "0", "1", "2", "3"]
    assert places.enter("new", KUBELET) == "4"
    assert {"k", "new"} <= {*places}


def test_young_items_stay_for_a_newer_item_of_the_same_peer() -> None:
    """The newer item is refused then; but another peer gets in."""
    places = Places(3, 3, young)
    assert [places.enter(each, ONE) for each in "abcd"] == [None, None, None, "d"]
    assert places.enter("k", KUBELET) == "a"


def test_unknown_peers_share_no_limit_of_one_peer() -> None:
    """The kubelet may be among them: the newest always gets in."""
    places = Places(3, 1, young)
    assert [places.enter(each, UNKNOWN) for each in "abcd"] == [None, None, None, "a"]


def test_a_place_is_free_after_its_item_left() -> None:
    """Counts go back to nothing."""
    places = Places(1, 1, old)
    places.enter("a", ONE)
    assert (len(places), places.count(ONE)) == (1, 1)
    places.leave("a")
    places.leave("a")
    assert (len(places), places.count(ONE), places.crowded_out()) == (0, 0, None)
    assert places.enter("b", TWO) is None
