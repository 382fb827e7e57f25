"""A kubelet for the plugins under test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fake_kubelet import FakeKubelet


@pytest.fixture
async def kubelet(short_dir: Path) -> AsyncIterator[FakeKubelet]:
    """Serve `kubelet.sock` in `short_dir`."""
    async with FakeKubelet(short_dir) as kubelet:
        yield kubelet
