"""Sockets in a plugin registry that strangers fill."""

import os
import socket
from pathlib import Path

from kubedevices.node.arrival.registry_scan import RegistryScan, find_sockets
from tests.host.test_listing import deep_chain


def serve(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(path))


def test_a_chain_beyond_every_path_hides_no_plugin(short_dir: Path) -> None:
    """Its owner cannot lock other plugins out."""
    deep_chain(short_dir)
    serve(short_dir / "a.sock")
    (short_dir / "driver").mkdir()
    serve(short_dir / "driver/b.sock")
    (short_dir / "driver/deep/deeper").mkdir(parents=True)
    serve(short_dir / "driver/deep/c.sock")
    serve(short_dir / "driver/deep/deeper/d.sock")
    assert {path.name for path in find_sockets(short_dir)} == {"a.sock", "b.sock", "c.sock"}


def test_a_look_at_many_files_is_short_and_finds_every_socket_in_the_end(short_dir: Path) -> None:
    """A known socket is never lost meanwhile; a socket that is gone is gone at the next look."""
    scan = RegistryScan(short_dir, at_once=100)
    serve(short_dir / "a.sock")
    assert [path.name for path in scan.look()] == ["a.sock"]
    for number in range(1000):
        (short_dir / f"x{number}").touch()
    serve(short_dir / "b.sock")
    looks = 0
    while {path.name for path in scan.look()} != {"a.sock", "b.sock"}:
        looks += 1
        assert looks < 25
        assert short_dir / "a.sock" in scan.look()
    for _ in range(25):
        assert len(scan.look()) == 2
    (short_dir / "a.sock").unlink()
    for _ in range(25):
        found = scan.look()
    assert [path.name for path in found] == ["b.sock"]


def test_other_kinds_of_files_are_no_sockets(short_dir: Path) -> None:
    """Nor a link to a socket, nor a hidden socket."""
    serve(short_dir / "a.sock")
    serve(short_dir / ".b.sock")
    (short_dir / "link.sock").symlink_to("a.sock")
    (short_dir / "file.sock").touch()
    os.mkfifo(short_dir / "pipe.sock")
    assert [path.name for path in RegistryScan(short_dir).look()] == ["a.sock"]
