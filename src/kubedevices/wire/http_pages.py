"""A few read-only pages over HTTP/1.1, for scrapes and probes: metrics, health.

Not a web server: GET and HEAD of known paths, one request per connection, bounded in size and time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from kubedevices.errors import CannotAsk, UsageError

REQUEST_LIMIT = 8192
DEADLINE = 10.0
TEXT = "text/plain; charset=utf-8"

logger = logging.getLogger(__name__)


class Page(NamedTuple):
    """What is sent for a path."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


class Address(NamedTuple):
    """Where to listen; port 0 lets the kernel choose."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Return the address in `HOST:PORT`, `[HOST]:PORT` or `PORT` (then of this machine only)."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address: write HOST:PORT, for example 127.0.0.1:9400")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


class PageServer:
    """Serves `pages`, path to page, at an address."""

    def __init__(
        self, address: Address, pages: Mapping[str, Callable[[], Awaitable[Page]]]
    ) -> None:
        self._address, self._pages = address, pages
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens, with the port that the kernel chose."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def start(self) -> None:
        """Listen; raises `CannotAsk`."""
        host, port = self._address
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=REQUEST_LIMIT)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotAsk(f"cannot listen on {host}:{port}: {reason}") from error

    async def stop(self) -> None:
        """Listen no more and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in [*self._connections]:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._answer(reader, writer), name="http page")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except asyncio.LimitOverrunError:
                    head = b""
                method, page = await self._page(head)
                writer.write(_response(page, with_body=method != "HEAD"))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _page(self, head: bytes) -> tuple[str, Page]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", _plain(HTTPStatus.BAD_REQUEST)
        method, path = words[0], words[1].partition("?")[0]
        if path not in self._pages:
            return method, _plain(HTTPStatus.NOT_FOUND, "try " + ", ".join(self._pages))
        if method not in ("GET", "HEAD"):
            return method, _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return method, await self._pages[path]()
        except Exception:  # whoever scrapes must not be able to end us
            logger.exception("page %s failed", path)
            return method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(status: HTTPStatus, hint: str = "") -> Page:
    return Page(f"{status.phrase}{': ' + hint if hint else ''}\n".encode(), status=status)


def _response(page: Page, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Connection: close",
    ]
    if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join([*lines, "", ""]).encode() + (page.body if with_body else b"")
