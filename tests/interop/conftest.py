"""Every test here has a Go peer."""

import pytest

from tests.interop import go_peer


@pytest.fixture(autouse=True)
def _peer_is_built() -> None:
    """Skip a test, if there is no Go, before anything of it has started."""
    go_peer.binary()
