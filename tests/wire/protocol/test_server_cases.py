"""Our server, judged by what it does about bytes."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.wire.unix_grpc import GrpcServer, StreamMethod, UnaryMethod
from tests.wire.by_hand import raw_client
from tests.wire.echo_server import CALL, WATCH, echo, server_of, watch
from tests.wire.protocol.cases import Case, acknowledged
from tests.wire.protocol.raw_end import RawEnd
from tests.wire.protocol.server_cases_fields import EXCHANGES, FIELDS, REPRESENTATIONS
from tests.wire.protocol.server_cases_frames import FRAMES, GENERIC
from tests.wire.protocol.server_cases_streams import MAX_FRAME, MAX_STREAMS, STREAMS

COUNTED = [*GENERIC, *EXCHANGES, *REPRESENTATIONS, *STREAMS, *FRAMES, *FIELDS]
"""What h2spec counts."""

DIFFERENT: dict[str, tuple[str, str]] = {}
"""Cases of these where we do something else: what, and why."""


NOT_YET = frozenset(
    {
        "4.2: DATA above MAX_FRAME_SIZE",
        "4.2: HEADERS above MAX_FRAME_SIZE",
        "4.3: a header block that is none",
        "5.1: closed: DATA",
        "6.1: DATA on a stream that is half-closed",
        "6.5: an acknowledgement with a payload",
        "8.2.1: a name in upper case",
        "8.3: an unknown pseudo-header field",
        "8.3: a pseudo-header field of responses",
        "8.3: a pseudo-header field in trailers",
        "8.3: a pseudo-header field after others",
        "8.2.2: a field of HTTP/1.1 connections",
        "8.2.2: TE other than trailers",
        "8.3.1: an empty :path",
        "8.3.1: no :method",
        "8.3.1: no :scheme",
        "8.3.1: no :path",
        "8.3.1: two :method",
        "8.3.1: two :scheme",
        "8.3.1: two :path",
        "HPACK 2.3.3: an index that the tables do not have",
        "HPACK 2.3.3: a name that the tables do not have",
        "HPACK 4.2: a table size update at the end of the block",
        "HPACK 5.2: padding of more than seven bits",
        "HPACK 5.2: padding with zeros",
        "HPACK 5.2: the end of a string within it",
        "HPACK 6.1: index nought",
        "HPACK 6.3: a table size above HEADER_TABLE_SIZE",
    }
)
"""What h2 does otherwise."""


@pytest.fixture
async def path(short_dir: Path) -> AsyncIterator[Path]:
    """Serve an echo and a stream that stays open."""
    server: GrpcServer = server_of(
        {CALL: UnaryMethod(echo), WATCH: StreamMethod(watch)}, max_streams=MAX_STREAMS
    )
    await server.start(short_dir / "s")
    yield short_dir / "s"
    await server.stop()


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case.name)
async def test_case(path: Path, case: Case) -> None:
    """The server does one of the things that the RFC allows, or what is listed above."""
    async with raw_client(path) as streams:
        verdict = await RawEnd(streams).verdict(case)
    if case.name in NOT_YET and verdict not in case.allowed:
        pytest.xfail(verdict)
    if case.name in DIFFERENT:
        assert verdict == DIFFERENT[case.name][0]
    else:
        assert verdict in case.allowed


def test_they_are_146_and_at_most_seven_differ() -> None:
    """As many as h2spec counts, each under a name of its own."""
    names = Counter(case.name for case in COUNTED)
    assert len(names) == len(COUNTED) == 146
    assert set(DIFFERENT) <= set(names)
    assert len(DIFFERENT) <= 7


async def test_settings_of_the_server(path: Path) -> None:
    """Before anything else it says what it allows, as the cases assume."""
    async with raw_client(path) as streams:
        end = RawEnd(streams)
        greeting = Case("6.5", "the greeting", (acknowledged(1),), frozenset({"alive"}))
        assert await end.verdict(greeting) == "alive"
    assert end.settings[3] == MAX_STREAMS
    assert end.settings[5] == MAX_FRAME
    assert end.settings.get(1, 4096) == 4096
