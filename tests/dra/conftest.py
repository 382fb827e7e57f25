"""An API server for the tests of the driver."""

from collections.abc import AsyncIterator

import pytest

from tests.dra.cluster import OneNode


@pytest.fixture
async def server() -> AsyncIterator[OneNode]:
    async with OneNode().running() as running:
        yield running
