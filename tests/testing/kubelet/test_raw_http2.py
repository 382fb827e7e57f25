"""HTTP/2 by hand, against our server and grpcio's."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kubedevices.testing.kubelet.raw_http2 import RawConnection
from kubedevices.wire.grpc_framing import PREFIX
from kubedevices.wire.unix_grpc import GrpcServer, StreamMethod, UnaryMethod
from tests.waiting import until

ECHO, COUNT = "/test.Service/Echo", "/test.Service/Count"


async def echo(payload: bytes) -> bytes:
    return payload


async def count(payload: bytes) -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"x" * 1000


@pytest.fixture(params=["ours", "grpcio"])
async def socket(request: pytest.FixtureRequest, short_dir: Path) -> AsyncIterator[Path]:
    """Serve the same two methods on both implementations."""
    path = short_dir / "s"
    if request.param == "ours":
        server = GrpcServer({ECHO: UnaryMethod(echo), COUNT: StreamMethod(count)}, name="test")
        await server.start(path)
        yield path
        await server.stop()
        return

    async def echo_there(payload: bytes, context: object) -> bytes:
        return payload

    async def count_there(payload: bytes, context: object) -> AsyncIterator[bytes]:
        async for each in count(payload):
            yield each

    there = grpc.aio.server()
    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo_there),
        "Count": grpc.unary_stream_rpc_method_handler(count_there),
    }
    there.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("test.Service", handlers),)
    )
    there.add_insecure_port(f"unix:{path}")
    await there.start()
    yield path
    await there.stop(None)


async def hang_up(connection: RawConnection) -> None:
    connection.hang_up()
    await until(connection.ended.is_set, what="the end")
    await asyncio.sleep(0)  # the transport says goodbye to the loop


async def test_a_call_is_answered(socket: Path) -> None:
    """Status and message arrive."""
    connection = await RawConnection.open(socket)
    answer = connection.call(ECHO, b"hello", authority="somewhere")
    await asyncio.wait_for(answer.ended.wait(), 5)
    assert answer.grpc_status == 0
    assert answer.data[PREFIX:] == b"hello"
    await hang_up(connection)


async def test_a_window_of_one_byte_holds_the_server_back(socket: Path) -> None:
    """The server sends one byte only, and the stream stays open."""
    connection = await RawConnection.open(socket, window=1)
    answer = connection.call(COUNT, b"")
    await until(lambda: answer.data, what="the one byte")
    await asyncio.sleep(0.1)
    assert len(answer.data) == 1
    assert not answer.ended.is_set()
    await hang_up(connection)


async def test_half_a_frame_gets_no_answer(socket: Path) -> None:
    """The rest of the frame is not sent, so no answer arrives."""
    connection = await RawConnection.open(socket)
    answer = connection.call(ECHO, b"hello", leave_out=3)
    await connection.greeted_or_ended.wait()
    await asyncio.sleep(0.05)
    assert answer.grpc_status is None
    await hang_up(connection)


async def test_silence_is_possible(socket: Path) -> None:
    """A connection on which nothing is sent stays open."""
    connection = await RawConnection.open(socket, is_silent=True)
    await asyncio.sleep(0.05)
    assert not connection.ended.is_set()
    await hang_up(connection)
