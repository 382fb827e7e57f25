"""A few read-only pages over HTTP/1.1, for scrapes and probes: metrics, health.

Not a web server: GET and HEAD of known paths, one request per connection, bounded in size, time and
number.
"""

import asyncio
import errno
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from kubedevices.errors import CannotAsk, UsageError

# Bytes of a request's head.
REQUEST_LIMIT = 8192
DEADLINE = 10.0
CONNECTION_LIMIT = 64
"""Open connections; each takes a file descriptor from the plugin beside."""
EVERYBODY = "*"
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
    """Return the address in `HOST:PORT`, `[HOST]:PORT` or `PORT` (then of this machine only).

    The host `*` stands for every address of the machine, IPv4 and IPv6.
    """
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if (
        not (port.isascii() and port.isdecimal() and int(port) <= 65535)
        or (not is_bracketed and ":" in host)
        or host != host.strip()
    ):
        raise UsageError(
            f"{text!r} is not an address: write HOST:PORT, for example 127.0.0.1:9400, [::1]:9400, "
            "or *:9400 for all addresses"
        )
    return Address((host[1:-1] if is_bracketed else host) or "127.0.0.1", int(port))


class PageServer:
    """Serves `pages`, path to page, at an address."""

    def __init__(
        self, address: Address, pages: Mapping[str, Callable[[], Awaitable[Page]]]
    ) -> None:
        self._address, self._pages = address, pages
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._silent: dict[
            asyncio.Task[None], None
        ] = {}  # have asked for nothing yet, oldest first

    @property
    def url(self) -> str:
        """Where it listens, with the port that the kernel chose."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def start(self) -> None:
        """Listen; raises `CannotAsk`."""
        host, port = self._address
        try:
            if host in (EVERYBODY, "::"):
                listening = _listen_to_everybody(port)
                self._server = await asyncio.start_server(
                    self._accept, sock=listening, limit=REQUEST_LIMIT
                )
            else:
                self._server = await asyncio.start_server(
                    self._accept, host, port, limit=REQUEST_LIMIT
                )
        except UnicodeError as error:  # of the encoding for host names
            raise CannotAsk(f"cannot listen on {host}:{port}: this is not a host name") from error
        except OSError as error:
            raise CannotAsk(f"cannot listen on {host}:{port}: {_reason(error)}") from error

    async def stop(self) -> None:
        """Listen no more and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in [*self._connections]:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTION_LIMIT:
            if not self._silent:
                writer.transport.abort()
                return
            # A client that connects and says nothing must not keep a scrape out.
            oldest = next(iter(self._silent))
            self._forget(oldest)
            oldest.cancel()
        task = asyncio.create_task(self._answer(reader, writer), name="http page")
        self._connections.add(task)
        self._silent[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._silent.pop(task, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                    self._stop_waiting()
                    method, page = await self._page(head)
                except asyncio.LimitOverrunError:
                    method, page = "GET", _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                writer.write(_response(page, with_body=method != "HEAD"))
                writer.write_eof()
                # To close with something unread, such as the body of a POST, would reset the
                # connection and might take the answer away.
                while await reader.read(REQUEST_LIMIT):
                    pass
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            return
        finally:
            writer.transport.abort()

    def _stop_waiting(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._silent.pop(task, None)

    async def _page(self, head: bytes) -> tuple[str, Page]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", _plain(HTTPStatus.BAD_REQUEST)
        method, target = words[0], words[1].partition("?")[0]
        path = re.sub(r"^https?://[^/]*", "", target, flags=re.IGNORECASE)  # as asked of a proxy
        if path not in self._pages:
            return method, _plain(HTTPStatus.NOT_FOUND, "try " + ", ".join(self._pages))
        if method not in ("GET", "HEAD"):
            return method, _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return method, await self._pages[path]()
        except Exception:  # whoever scrapes must not be able to end us
            logger.exception("page %s failed", path)
            return method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _listen_to_everybody(port: int) -> socket.socket:
    """Return a socket for IPv6 and IPv4, or for IPv4 where the machine knows no other."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return socket.create_server(("0.0.0.0", port))


def _reason(error: OSError) -> str:
    """Return what is wrong and, for a port that is taken, how to find out by whom."""
    if error.errno == errno.EADDRINUSE:
        return f"{os.strerror(error.errno)} (`ss -ltnp` says by whom)"
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


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
