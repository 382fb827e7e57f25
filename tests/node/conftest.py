"""The plugin directory of a node, and its device manager."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.node.device_manager import DeviceManager


@pytest.fixture
def plugins(short_dir: Path) -> Path:
    """Give the plugin directory of a node."""
    return short_dir / "p"


@pytest.fixture
async def manager(plugins: Path) -> AsyncIterator[DeviceManager]:
    """Give a node that serves `plugins`."""
    async with DeviceManager(plugins) as manager:
        yield manager
