"""Serves a few read-only pages over HTTP/1.1, for scrapes and probes: metrics, health.

This is not a general web server: it answers GET and HEAD of known paths, one request per
connection. The size and time of a request and the number of connections are limited.
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

from kubedevices import deadlines
from kubedevices.errors import CannotAsk, UsageError

REQUEST_LIMIT = 8192
"""Bytes of the head of a request."""
DEADLINE = 10.0
"""Seconds for a request and its answer."""
CONNECTION_LIMIT = 64
"""Open connections. Each one needs a file descriptor of the plugin's process."""
EVERYBODY = "*"
TEXT = "text/plain; charset=utf-8"

logger = logging.getLogger(__name__)


class Page(NamedTuple):
    """The answer for a path."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK


class Address(NamedTuple):
    """Where to listen; for port 0 the kernel chooses a port."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Return the address in `HOST:PORT`, `[HOST]:PORT` or `PORT` (for this machine only).

    The host `*` means every address of the machine, IPv4 and IPv6. Raises `UsageError`.
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
        # Connections that have sent no request yet, oldest first.
        self._silent: dict[asyncio.Task[None], None] = {}

    @property
    def url(self) -> str:
        """The address on which it listens, with the port that the kernel chose."""
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
                listening = _listen_everywhere(port)
                self._server = await asyncio.start_server(
                    self._accept, sock=listening, limit=REQUEST_LIMIT
                )
            else:
                self._server = await asyncio.start_server(
                    self._accept, host, port, limit=REQUEST_LIMIT
                )
        except UnicodeError as error:  # from the encoding of host names
            raise CannotAsk(f"cannot listen on {host}:{port}: this is not a host name") from error
        except OSError as error:
            raise CannotAsk(f"cannot listen on {host}:{port}: {_reason(error)}") from error

    async def stop(self) -> None:
        """Stop listening and end every connection."""
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
            # Clients that connect and send nothing must not keep a scrape out: end the oldest.
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
            async with deadlines.timeout(DEADLINE):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                    self._stop_waiting()
                    method, page = await self._page(head)
                except asyncio.LimitOverrunError:
                    method, page = "GET", _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                writer.write(_response(page, with_body=method != "HEAD"))
                writer.write_eof()
                # Read the rest, such as the body of a POST. To close with unread data would reset
                # the connection, and the client might lose the answer.
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
        path = re.sub(r"^https?://[^/]*", "", target, flags=re.IGNORECASE)  # the form for proxies
        if path not in self._pages:
            return method, _plain(HTTPStatus.NOT_FOUND, "try " + ", ".join(self._pages))
        if method not in ("GET", "HEAD"):
            return method, _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return method, await self._pages[path]()
        except Exception:  # a scrape must not end the process
            logger.exception("page %s failed", path)
            return method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _listen_everywhere(port: int) -> socket.socket:
    """Return a socket for IPv6 and IPv4, or for IPv4 on a machine without IPv6."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return socket.create_server(("0.0.0.0", port))


def _reason(error: OSError) -> str:
    """Return the reason; for a port in use, with the command that finds the process."""
    if error.errno == errno.EADDRINUSE:
        return f"{os.strerror(error.errno)} (`ss -ltnp` says by whom)"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    # Newer versions of asyncio skip addresses that the machine does not have. If none is left, the
    # error has no number.
    return os.strerror(error.errno or errno.EADDRNOTAVAIL)


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
