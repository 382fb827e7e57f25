"""A directory whose disk is full: no socket can be bound in it."""

import errno
import os
import socket
from pathlib import Path

import pytest


def refuse_sockets(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each bind of a socket in `directory` fail with ENOSPC; elsewhere bind works."""
    bind = socket.socket.bind

    def refuse(self: socket.socket, address: object) -> None:
        if isinstance(address, str) and Path(address).parent == directory:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        bind(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "bind", refuse)
