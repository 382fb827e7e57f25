"""kubedevices.pages.page_server"""

import asyncio
import contextlib
import errno
import itertools
import re
import socket
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

import pytest

from kubedevices.errors import CannotAsk, UsageError
from kubedevices.pages import page_server
from kubedevices.pages.page_server import (
    Address,
    Page,
    PageServer,
    Producer,
    names_in,
    parse_address,
)
from tests.waiting import until


async def hello() -> Page:
    return Page(b"hello\n")


async def unwell() -> Page:
    return Page(b"no\n", status=HTTPStatus.SERVICE_UNAVAILABLE)


async def broken() -> Page:
    raise ValueError("oops")


LONG = Page(b"x" * 10_000_000)


async def long() -> Page:
    return LONG


PAGES = {"/hello": hello, "/unwell": unwell, "/broken": broken, "/long": long}


@contextlib.asynccontextmanager
async def running(
    host: str = "127.0.0.1", pages: Mapping[str, Producer] = PAGES
) -> AsyncIterator[PageServer]:
    server = PageServer(Address(host, 0), pages)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def address_of(server: PageServer) -> Address:
    return Address("127.0.0.1", int(server.url.rpartition(":")[2]))


@contextlib.asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncIterator[Address]:
    async with running(host) as server:
        yield address_of(server)


async def ask(address: Address, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return answer


async def get(address: Address, path: str = "/hello") -> bytes:
    return await ask(address, f"GET {path} HTTP/1.1\r\nHost: [::1]\r\n\r\n".encode())


@contextlib.asynccontextmanager
async def waiting_for_a_slow_page(clients: int) -> AsyncIterator[Address]:
    """Let `clients` wait for /slow; afterwards each of them must get it."""
    gate = asyncio.Event()

    async def slow() -> Page:
        await gate.wait()
        return Page(b"slow")

    async with running(pages={"/slow": slow, "/healthz": hello}) as server:
        address = address_of(server)
        asked = [asyncio.ensure_future(get(address, "/slow")) for _ in range(clients)]
        await until(lambda: server.waiting == clients)
        yield address
        gate.set()
        assert all(answer.endswith(b"slow") for answer in await asyncio.gather(*asked))


async def test_a_page_is_served_and_the_connection_closed() -> None:
    """Status, length and body; a query does not matter; HEAD has no body."""
    async with serving() as address:
        answer = await ask(address, b"GET /hello?x=1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nContent-Length: 6\r\n" in answer
        assert answer.endswith(b"\r\n\r\nhello\n")
        answer = await ask(address, b"HEAD /hello HTTP/1.1\r\nHost: [::1]\r\n\r\n")
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
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1", b"431"),
        (b"GET /hello HTTP/1.1\r\nX: " + b"x" * 9000, b"431"),
        (b"PRI * HTTP/2.0", b"400"),
        (b"GET /hello/ HTTP/1.1", b"404"),
        (b"GET http://127.0.0.1/hello HTTP/1.1", b"200"),
        (b"GET http://example.com/hello HTTP/1.1", b"421"),
    ],
)
async def test_everything_else_has_a_status(request_line: bytes, status: bytes) -> None:
    """Unknown paths, other methods, failing pages, nonsense and endless requests."""
    async with serving() as address:
        answer = await ask(address, request_line + b"\r\nHost: localhost\r\n\r\n")
        assert answer.split()[1] == status
        assert answer.partition(b"\r\n\r\n")[2], "nothing that says why"
        assert (await ask(address, b"GET /hello HTTP/1.0\r\n\r\n")).endswith(b"hello\n")


async def test_the_answer_to_a_post_arrives_in_spite_of_its_body() -> None:
    """A body that nobody reads would reset the connection before the status is read."""

    def post(address: Address) -> bytes:
        with socket.create_connection(address, timeout=5) as client:
            head = b"POST /hello HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 10000000\r\n\r\n"
            client.sendall(head + b"x" * 10_000_000)
            return client.recv(4096)

    async with serving() as address:
        answer = await asyncio.to_thread(post, address)
    assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nAllow: GET, HEAD\r\n" in answer


async def test_a_client_that_closes_its_side_gets_the_whole_page() -> None:
    """Half a connection is enough to answer on, also with more than a socket holds."""
    async with serving() as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /long HTTP/1.1\r\nHost: [::1]\r\n\r\n")
        writer.write_eof()
        assert (await asyncio.wait_for(reader.read(), 10)).endswith(LONG.body)
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "request_text", [b"", b"GET /long", b"GET /long HTTP/1.1\r\nHost: [::1]\r\n\r\n"]
)
async def test_a_client_that_does_nothing_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, request_text: bytes
) -> None:
    """Whether it asks nothing, half a question, or never reads the answer."""
    monkeypatch.setattr(page_server, "DEADLINE", 0.05)
    async with running() as server:
        with socket.create_connection(address_of(server), timeout=5) as client:
            client.sendall(request_text)
            await until(lambda: server.connections == 1, what="the connection")
            await until(lambda: server.connections == 0, what="its end")


async def test_too_many_clients_do_not_use_up_the_files_of_the_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond the limit the oldest that has asked for nothing makes room."""
    monkeypatch.setattr(page_server, "CONNECTION_LIMIT", 2)
    async with running() as server:
        address = address_of(server)
        silent = [await asyncio.open_connection(*address) for _ in range(5)]
        await until(lambda: server.connections == 2, what="the last two connections")
        for _ in range(3):
            assert (await get(address)).endswith(b"hello\n")
        for reader, writer in silent[:3]:
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
        for _, writer in silent[3:]:
            writer.close()


async def test_clients_that_sent_a_request_are_not_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page that takes its time is answered; who comes beyond the limit is refused."""
    monkeypatch.setattr(page_server, "CONNECTION_LIMIT", 2)
    async with waiting_for_a_slow_page(clients=2) as address:
        with contextlib.suppress(ConnectionResetError):
            assert await get(address, "/slow") == b""


@pytest.mark.parametrize("host", ["*", "::"])
async def test_everybody_means_both_families(host: str) -> None:
    """As Go programs listen on `[::]`: probes come by IPv4 in one cluster and IPv6 in another."""
    async with serving(host) as address:
        for loopback in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            there = Address(loopback, address.port)
            assert (await get(there)).endswith(b"hello\n")


async def test_everybody_works_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 alone, then, whether the kernel has no IPv6 or no address of it."""
    make = socket.create_server

    def refuse(address: tuple[str, int], **options: Any) -> socket.socket:
        if address[0] == "::":
            raise OSError(errno.EADDRNOTAVAIL, "no")
        return make(address, **options)

    monkeypatch.setattr(socket, "create_server", refuse)
    async with serving("*") as address:
        assert (await get(address)).endswith(b"hello\n")
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with serving("*") as address:
        assert (await get(address)).endswith(b"hello\n")


async def test_a_silent_client_does_not_delay_the_stop() -> None:
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
        ("*:9400", Address("*", 9400)),
        ("[::]:9400", Address("::", 9400)),
        ("*:9400,a.example,b", Address("*", 9400)),
    ],
)
def test_addresses_are_understood(text: str, address: Address) -> None:
    """A port alone listens on this machine only."""
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", "host:http", "1:65536", "1:-1", "::1:80", "[::1]", " :80", "1:80,"],
)
def test_other_addresses_are_usage_errors(text: str) -> None:
    """The message shows the form."""
    with pytest.raises(UsageError, match="write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "*"])
async def test_an_address_in_use_is_reported(host: str) -> None:
    """In few words, with the way to find out by whom."""
    async with serving(host) as address:
        there = Address(host, address.port)
        text = f"cannot listen on {host}:{address.port}: Address already in use (`ss -ltnp`"
        with pytest.raises(CannotAsk, match=re.escape(text)):
            await PageServer(there, {}).start()


@pytest.mark.parametrize(
    ("host", "reason"), [("a..b", "this is not a host name"), ("192.0.2.1", "Cannot assign")]
)
async def test_an_address_of_another_host_is_reported(host: str, reason: str) -> None:
    """As the resolver or the kernel puts it, in one line."""
    with pytest.raises(CannotAsk, match=f"cannot listen on {host}:0: {reason}"):
        await PageServer(Address(host, 0), {}).start()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1", b"200"),
        (b"10.244.0.7:9400", b"200"),
        (b"[fd00::7]:9400", b"200"),
        (b"localhost:9400", b"200"),
        (b"LocalHost", b"200"),
        (socket.gethostname().encode() + b":9400", b"200"),
        (b"metrics.example", b"200"),
        (b"evil.example", b"421"),
        (b"127.0.0.1.evil.example", b"421"),
        (b"127.0.0.1\r\nHost: evil.example", b"421"),
    ],
)
async def test_a_page_is_for_our_names_only(host: bytes, status: bytes) -> None:
    """A web page cannot read it through a browser, by a name of its own with our address."""
    server = PageServer(Address("127.0.0.1", 0), PAGES, names_in("0,metrics.example"))
    await server.start()
    request = b"GET /hello HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    answer = await ask(address_of(server), request)
    await server.stop()
    assert answer.split()[1] == status


async def test_a_request_without_a_host_is_refused() -> None:
    """HTTP/1.1 requires the header; clients of HTTP/1.0 have none."""
    async with serving() as address:
        for line, status in (
            (b"GET /hello HTTP/1.1", b"400"),
            (b"GET http://127.0.0.1/hello HTTP/1.1", b"400"),
            (b"GET /hello HTTP/1.0", b"200"),
        ):
            assert (await ask(address, line + b"\r\n\r\n")).split()[1] == status


async def test_clients_that_keep_their_connection_do_not_lock_probes_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have their answer: their connections go first, and end soon in any case."""
    monkeypatch.setattr(page_server, "CONNECTION_LIMIT", 8)
    async with running() as server, contextlib.AsyncExitStack() as stack:
        address = address_of(server)
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*address)
            stack.callback(writer.close)
            writer.write(b"GET /hello HTTP/1.1\r\nHost: [::1]\r\n\r\n")
            await reader.readuntil(b"hello\n")
            assert (await get(address, "/unwell")).endswith(b"no\n")
        monkeypatch.setattr(page_server, "CLOSE_TIME", 0.05)
        reader, writer = await asyncio.open_connection(*address)
        stack.callback(writer.close)
        writer.write(b"GET /hello HTTP/1.1\r\nHost: [::1]\r\n\r\n")
        await reader.readuntil(b"hello\n")
        await until(lambda: server.connections < 8, what="the end of answered connections")


async def test_clients_that_wait_for_a_page_leave_places_for_probes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond a limit the next client gets 503, and a probe its answer."""
    monkeypatch.setattr(page_server, "WAITING_LIMIT", 3)
    async with waiting_for_a_slow_page(clients=3) as address:
        assert b" 503 " in await get(address, "/slow")
        assert (await get(address, "/healthz")).endswith(b"hello\n")


async def test_one_address_cannot_take_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod has one address. The oldest of its own connections goes."""
    monkeypatch.setattr(page_server, "CONNECTIONS_OF_CLIENT", 3)
    async with running() as server, contextlib.AsyncExitStack() as stack:
        for _ in range(10):
            _, writer = await asyncio.open_connection(*address_of(server))
            stack.callback(writer.close)
        await until(lambda: server.connections == 3)
        assert (await get(address_of(server))).endswith(b"o\n")


async def test_all_clients_share_one_computation_of_a_page() -> None:
    """Beside many clients a page is computed once; each gets one computed after its request."""
    computed, gate = 0, asyncio.Event()

    async def state() -> Page:
        nonlocal computed
        computed += 1
        number = computed
        await gate.wait()
        return Page(b"%d" % number)

    server = PageServer(Address("127.0.0.1", 0), {"/state": state})
    await server.start()
    address = address_of(server)

    def some(count: int) -> list["asyncio.Future[bytes]"]:
        request = b"GET /state HTTP/1.1\r\nHost: [::1]\r\n\r\n"
        return [asyncio.ensure_future(ask(address, request)) for _ in range(count)]

    first = some(1)
    await until(lambda: computed == 1)
    later = some(12)
    await until(lambda: server.waiting == 13)
    gate.set()
    assert (await asyncio.gather(*first))[0].endswith(b"1")
    assert all(answer.endswith(b"2") for answer in await asyncio.gather(*later))
    assert computed == 2
    await server.stop()


async def test_an_expensive_page_is_computed_at_most_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a long computation the next client waits."""
    monkeypatch.setattr(page_server, "PAUSE", 0.3)
    loop, times = asyncio.get_running_loop(), list[float]()

    async def state() -> Page:
        times.append(loop.time())
        await asyncio.sleep(0.05)
        return Page(b"x")

    server = PageServer(Address("127.0.0.1", 0), {"/state": state})
    await server.start()
    for _ in range(3):
        await get(address_of(server), "/state")
    assert all(later - earlier >= 0.3 for earlier, later in itertools.pairwise(times))
    assert len(times) == 3
    await server.stop()


async def test_clients_that_do_not_read_keep_no_copy_of_a_page() -> None:
    """A page of 10 MB is sent in chunks."""
    async with running() as server, contextlib.AsyncExitStack() as stack:
        tracemalloc.start()
        for _ in range(10):
            client = socket.create_connection(address_of(server), timeout=5)
            stack.callback(client.close)
            client.sendall(b"GET /long HTTP/1.1\r\nHost: [::1]\r\n\r\n")
        await until(lambda: server.answered == 10)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert used < 5_000_000
