"""The node of these tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.serving.node_rig import NodeRig, a_node


@pytest.fixture
async def rig(short_dir: Path) -> AsyncIterator[NodeRig]:
    async with a_node(short_dir) as running:
        yield running
