"""Neither streams nor connections leave memory or files behind."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kubedevices.wire.unix_grpc import GrpcServer
from tests.wire.frames import Joined
from tests.wire.protocol.lives import STREAMS, growth_of_connections, growth_of_streams


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(live, id=name, marks=[pytest.mark.slow] * (name != "answered"))
        for name, live in STREAMS.items()
    ],
)
def test_streams_leave_nothing(live: Callable[[Joined], None]) -> None:
    """However a stream ends, a connection that had 1,550 is not larger than one that had 1,400."""
    assert growth_of_streams(live, 1_100, 450) < 50


async def test_connections_leave_nothing(server: GrpcServer, short_dir: Path) -> None:
    """However a connection ends, a server that had 400 is not larger than one that had 300."""
    blocks, files = await growth_of_connections(server, short_dir / "s.sock", 100, 300)
    assert files == 0
    assert blocks < 200
