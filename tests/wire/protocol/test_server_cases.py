"""Our server, judged by what it does about bytes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.wire.unix_grpc import GrpcServer, StreamMethod, UnaryMethod
from tests.wire.by_hand import raw_client
from tests.wire.echo_server import CALL, WATCH, echo, server_of, watch
from tests.wire.protocol.cases import Case, acknowledged
from tests.wire.protocol.raw_end import RawEnd
from tests.wire.protocol.server_cases import (
    EXCHANGES,
    FIELDS,
    FRAMES,
    GENERIC,
    MAX_FRAME,
    MAX_STREAMS,
    MORE_CASES,
    REPRESENTATIONS,
    STREAM_WINDOW,
    STREAMS,
)

COUNTED = [*GENERIC, *EXCHANGES, *REPRESENTATIONS, *STREAMS, *FRAMES, *FIELDS]
"""The cases of h2spec, written again with gRPC requests: the program sends requests of its own."""


@pytest.fixture
async def path(short_dir: Path) -> AsyncIterator[Path]:
    """Serve an echo and a stream that stays open."""
    server: GrpcServer = server_of(
        {CALL: UnaryMethod(echo), WATCH: StreamMethod(watch)}, max_streams=MAX_STREAMS
    )
    await server.start(short_dir / "s")
    yield short_dir / "s"
    await server.stop()


@pytest.mark.parametrize("case", [*COUNTED, *MORE_CASES], ids=lambda case: case.name)
async def test_case(path: Path, case: Case) -> None:
    """The server does one of the things that the RFC allows."""
    async with raw_client(path) as streams:
        assert await RawEnd(streams).verdict(case) in case.allowed


def test_there_are_146_as_in_h2spec() -> None:
    """As many as h2spec counts, each under a name of its own."""
    assert len({case.name for case in COUNTED}) == len(COUNTED) == 146


async def test_settings_of_the_server(path: Path) -> None:
    """Before anything else it says what it allows, as the cases assume."""
    async with raw_client(path) as streams:
        end = RawEnd(streams)
        greeting = Case("6.5", "the greeting", (acknowledged(1),), frozenset({"alive"}))
        assert await end.verdict(greeting) == "alive"
    assert end.settings[3] == MAX_STREAMS
    assert end.settings[4] == STREAM_WINDOW
    assert end.settings[5] == MAX_FRAME
    assert end.settings.get(1, 4096) == 4096
