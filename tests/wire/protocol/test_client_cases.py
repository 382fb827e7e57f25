"""Our channel, judged by what it does about a server's bytes."""

import asyncio
from pathlib import Path

import pytest

from kubedevices.errors import RpcError
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.waiting import until
from tests.wire.by_hand import raw_server
from tests.wire.conftest import dialled
from tests.wire.echo_server import CALL
from tests.wire.protocol.cases import PREFACE, ended, over
from tests.wire.protocol.client_cases import CLIENT_CASES, ClientCase, answer
from tests.wire.protocol.raw_end import RawEnd

PATIENCE = 20.0


async def outcome(channel: GrpcChannel) -> str:
    """Call once; return the status by name, whatever happens."""
    try:
        return "OK" if await channel.unary(CALL, b"hello", timeout=PATIENCE) == b"hi" else "other"
    except RpcError as error:
        return error.code.name


@pytest.mark.parametrize("case", CLIENT_CASES, ids=lambda case: case.case.name)
async def test_case(short_dir: Path, case: ClientCase) -> None:
    """The channel says what the RFC allows; its call ends as it should, and so does the next."""
    words: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = RawEnd((reader, writer), is_server=True)
        await reader.readexactly(len(PREFACE))
        words.append(await end.verdict(case.case))
        for step in (*case.then, ended(3), answer(3), over):
            if isinstance(step, bytes):
                writer.write(step)
            else:
                await end.until(step)

    async with raw_server(short_dir / "s.sock", talk), dialled(short_dir) as channel:
        first = await outcome(channel)
        await until(lambda: words, what="the verdict")
        if words[0].startswith(("goaway", "ended")):
            await asyncio.wait_for(channel.closed.wait(), PATIENCE)
        else:
            assert await outcome(channel) == "OK"
    assert words == [word for word in words[:1] if word in case.case.allowed]
    assert first in case.outcomes
