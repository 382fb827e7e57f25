"""Where a plugin program puts its socket and looks for devices."""

from pathlib import Path

import pytest


@pytest.fixture
def socket_dir(short_dir: Path) -> Path:
    """Give the directory in which plugins and kubelet meet."""
    directory = short_dir / "s"
    directory.mkdir()
    return directory


@pytest.fixture
def devices(short_dir: Path) -> Path:
    """Give a directory of device files, in which there is one."""
    directory = short_dir / "d"
    directory.mkdir()
    (directory / "w1").touch()
    return directory
