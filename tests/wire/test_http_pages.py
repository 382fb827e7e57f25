"""kubedevices.wire.http_pages"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from kubedevices.errors import CannotAsk, UsageError
from kubedevices.wire.http_pages import Address, Page, PageServer, parse_address


async def hello() -> Page:
    return Page(b"hello\n")


async def unwell() -> Page:
    return Page(b"no\n", status=HTTPStatus.SERVICE_UNAVAILABLE)


async def broken() -> Page:
    raise ValueError("oops")


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Address]:
    pages = {"/hello": hello, "/unwell": unwell, "/broken": broken}
    server = PageServer(Address("127.0.0.1", 0), pages)
    await server.start()
    try:
        yield Address("127.0.0.1", int(server.url.rpartition(":")[2]))
    finally:
        await server.stop()


async def ask(address: Address, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_page_is_served_and_the_connection_closed() -> None:
    """Status, length and body; a query does not matter; HEAD has no body."""
    async with serving() as address:
        answer = await ask(address, b"GET /hello?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nContent-Length: 6\r\n" in answer
        assert answer.endswith(b"\r\n\r\nhello\n")
        answer = await ask(address, b"HEAD /hello HTTP/1.1\r\n\r\n")
        assert answer.endswith(b"\r\n\r\n")
        assert b"Content-Length: 6" in answer


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /unwell HTTP/1.1", b"503"),
        (b"GET /other HTTP/1.1", b"404"),
        (b"POST /hello HTTP/1.1", b"405"),
        (b"GET /broken HTTP/1.1", b"500"),
        (b"nonsense", b"400"),
        (b"GET /hello SPDY/9", b"400"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1", b"400"),
    ],
)
async def test_everything_else_has_a_status(request_line: bytes, status: bytes) -> None:
    """Unknown paths, other methods, failing pages, nonsense and endless requests."""
    async with serving() as address:
        with contextlib.suppress(ConnectionError):
            answer = await ask(address, request_line + b"\r\n\r\n")
            assert answer.split()[1] == status
        assert (await ask(address, b"GET /hello HTTP/1.0\r\n\r\n")).endswith(b"hello\n")


async def test_a_client_that_says_nothing_does_not_hold_up_the_stop() -> None:
    """Stopping ends open connections."""
    async with serving() as address:
        reader, writer = await asyncio.open_connection(*address)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9400", Address("127.0.0.1", 9400)),
        (":9400", Address("127.0.0.1", 9400)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        ("[::1]:80", Address("::1", 80)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_addresses_are_understood(text: str, address: Address) -> None:
    """A port alone listens on this machine only."""
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:http", "1:65536", "1:-1"])
def test_other_addresses_are_usage_errors(text: str) -> None:
    """The message shows the form."""
    with pytest.raises(UsageError, match="write HOST:PORT"):
        parse_address(text)


async def test_an_address_that_is_taken_is_told() -> None:
    """Two servers cannot have one port."""
    async with serving() as address:
        with pytest.raises(CannotAsk, match="cannot listen on 127"):
            await PageServer(address, {}).start()
