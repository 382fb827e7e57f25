"""Fixtures for every test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Give a directory whose path leaves room for a Unix socket name (107 bytes in all)."""
    directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
