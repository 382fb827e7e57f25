"""Directories for the socket and the devices of a plugin program."""

from pathlib import Path

import pytest


@pytest.fixture
def socket_dir(short_dir: Path) -> Path:
    """Give the directory for the sockets of plugins and kubelet."""
    directory = short_dir / "s"
    directory.mkdir()
    return directory


@pytest.fixture
def devices(short_dir: Path) -> Path:
    """Give a directory with one device file."""
    directory = short_dir / "d"
    directory.mkdir()
    (directory / "w1").touch()
    return directory
