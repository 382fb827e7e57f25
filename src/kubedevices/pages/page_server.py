"""Serves a few read-only pages over HTTP/1.1, for scrapes and probes: metrics, health.

This is not a general web server: it answers GET and HEAD of known paths, one request per
connection. Any pod may ask. So the size and time of a request, the connections, in all and of one
address, and the work are limited: probes always have a place, and all clients share one
computation of any other page.
"""

import asyncio
import errno
import ipaddress
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from kubedevices.errors import CannotAsk, UsageError
from kubedevices.host import deadlines

REQUEST_LIMIT = 8192
"""Bytes of the head of a request."""
DEADLINE = 10.0
"""Seconds for a request and its answer."""
CONNECTION_LIMIT, CONNECTIONS_OF_CLIENT = 64, 16
"""Open connections, in all and of one address. Each needs a file descriptor of the process."""
WAITING_LIMIT = 48
"""Connections that wait for pages. The others are for probes and for new connections."""
CLOSE_TIME = 1.0
"""Seconds after the answer in which the client should close the connection."""
PROBES = ("/healthz", "/livez", "/readyz")
"""Pages that are quick and answered at once; the kubelet kills a plugin without an answer."""
PAUSE = 1.0
"""Seconds between two computations of any other page, if clients ask all the time."""
_PAUSE_SHARE = 20
"""The pause is so many times the time of the computation, if that is less than `PAUSE`."""
_CHUNK = 65536
EVERYBODY = "*"
TEXT = "text/plain; charset=utf-8"

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_HOST = re.compile(rb"\r\nhost:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)", re.IGNORECASE)

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

    The host `*` means every address of the machine, IPv4 and IPv6. Names by which clients may ask
    may follow, separated by commas. Raises `UsageError`.
    """
    address, *names = text.split(",")
    host, _, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if (
        not (port.isascii() and port.isdecimal() and int(port) <= 65535)
        or (not is_bracketed and ":" in host)
        or host != host.strip()
        or not all(map(_NAME.fullmatch, names))
    ):
        raise UsageError(
            f"{text!r} is not an address: write HOST:PORT, for example 127.0.0.1:9400, [::1]:9400, "
            "or *:9400 for all addresses"
        )
    return Address((host[1:-1] if is_bracketed else host) or "127.0.0.1", int(port))


Producer = Callable[[], Awaitable[Page]]


def names_in(text: str) -> tuple[str, ...]:
    """Return the names behind an address that `parse_address` accepts."""
    return tuple(text.split(",")[1:])


class _SharedPage:
    """One computation for all clients that ask meanwhile, and a pause before the next one.

    A client gets a page that was computed after its request.
    """

    def __init__(self, make: Producer) -> None:
        self._make = make
        self._next: asyncio.Task[Page] | None = None
        self._has_begun = False
        self._not_before = 0.0

    async def get(self) -> Page:
        task = self._next
        if task is None or self._has_begun:
            task = self._next = asyncio.create_task(self._compute(task), name="http page content")
            self._has_begun = False
        # Shielded: other clients wait for the same page.
        return await asyncio.shield(task)

    async def _compute(self, before: asyncio.Task[Page] | None) -> Page:
        loop = asyncio.get_running_loop()
        if before is not None:
            await asyncio.wait({before})
        await asyncio.sleep(self._not_before - loop.time())
        self._has_begun, began = True, loop.time()
        try:
            return await self._make()
        finally:
            took = loop.time() - began
            self._not_before = began + took + min(PAUSE, _PAUSE_SHARE * took)

    async def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)


class _Connection:
    """A client. The connections that got their answer go first, then those without a request."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_answered, self.is_silent = False, True
        self.waits_for: str | None = None

    @property
    def may_go(self) -> bool:
        """Whether the connection may be closed for another connection."""
        return self.is_answered or self.is_silent


class PageServer:
    """Serves `pages`, path to page, at an address.

    `PROBES` are computed for each request, other pages for all waiting clients together.
    """

    def __init__(
        self, address: Address, pages: Mapping[str, Producer], names: Iterable[str] = ()
    ) -> None:
        """`names` are names of this server beside IP addresses and the name of the machine."""
        self._address = address
        self._shared = [_SharedPage(make) for path, make in pages.items() if path not in PROBES]
        shared = iter(self._shared)
        self._pages = {
            path: make if path in PROBES else next(shared).get for path, make in pages.items()
        }
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}  # the oldest first
        names = ("localhost", "", address.host, *_names_of_machine(), *names)
        self._names = {each.lower() for each in names}

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

    @property
    def waiting(self) -> int:
        """How many clients wait for a page that is no probe."""
        return sum(each.waits_for is not None for each in self._connections.values())

    @property
    def answered(self) -> int:
        """How many clients have their answer, or a part of it."""
        return sum(each.is_answered for each in self._connections.values())

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
        for page in self._shared:
            await page.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection((writer.get_extra_info("peername") or ("",))[0])
        own = [
            task for task, each in self._connections.items() if each.address == connection.address
        ]
        is_full = len(self._connections) >= CONNECTION_LIMIT
        if len(own) >= CONNECTIONS_OF_CLIENT or is_full:
            among = own if len(own) >= CONNECTIONS_OF_CLIENT else [*self._connections]
            if not self._make_room(among):
                writer.transport.abort()
                return
        task = asyncio.create_task(self._answer(reader, writer, connection), name="http page")
        self._connections[task] = connection
        task.add_done_callback(lambda ended: self._connections.pop(ended, None))

    def _make_room(self, among: list[asyncio.Task[None]]) -> bool:
        """Close the oldest connection that may go; return False if none may."""
        found = [task for task in among if self._connections[task].may_go]
        if not found:
            return False
        # `min` returns the first of equals, which is the oldest.
        leaves = min(found, key=lambda task: not self._connections[task].is_answered)
        del self._connections[leaves]
        leaves.cancel()
        return True

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: _Connection,
    ) -> None:
        try:
            async with deadlines.timeout(DEADLINE):
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                    connection.is_silent = False
                    method, page = await self._page(head, connection)
                except asyncio.LimitOverrunError:
                    method, page = "GET", _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                connection.is_answered = True
                await _send(writer, page, with_body=method != "HEAD")
            async with deadlines.timeout(CLOSE_TIME):
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

    async def _page(self, head: bytes, connection: _Connection) -> tuple[str, Page]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", _plain(HTTPStatus.BAD_REQUEST)
        method, target = words[0], words[1].partition("?")[0]
        asked = [each.decode("latin-1") for each in _HOST.findall(head)]
        if not asked and words[2] != "HTTP/1.0":  # RFC 9112, 3.2
            return method, _plain(HTTPStatus.BAD_REQUEST, "the header Host is missing")
        if form := re.match(r"https?://([^/]*)", target, flags=re.IGNORECASE):  # that for proxies
            asked.append(form[1])
        if not all(map(self._is_ours, asked)):
            return method, _plain(HTTPStatus.MISDIRECTED_REQUEST, _WRONG_HOST)
        path = target[form.end() if form else 0 :]
        if path not in self._pages:
            return method, _plain(HTTPStatus.NOT_FOUND, "try " + ", ".join(self._pages))
        if method not in ("GET", "HEAD"):
            return method, _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        if path not in PROBES:
            if self.waiting >= WAITING_LIMIT:
                return method, _plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many clients")
            connection.waits_for = path
        try:
            return method, await self._pages[path]()
        except Exception:  # a scrape must not end the process
            logger.exception("page %s failed", path)
            return method, _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        finally:
            connection.waits_for = None

    def _is_ours(self, host: str) -> bool:
        """Whether `host` is an IP address or a name of this server.

        A web page could otherwise read our pages through its reader's browser, by a name of its
        own that leads to our address (DNS rebinding).
        """
        name = re.sub(r":[0-9]*$", "", host).lower().rstrip(".")
        try:
            ipaddress.ip_address(name.strip("[]").partition("%")[0])
        except ValueError:
            return name in self._names
        return True


_WRONG_HOST = "ask by an IP address, or start with --listen ADDRESS,NAME"


def _names_of_machine() -> list[str]:
    """Return the name of the pod or host, and of the node of a pod."""
    name, node = socket.gethostname(), os.environ.get("NODE_NAME", "")
    return [name, name.partition(".")[0], node]


async def _send(writer: asyncio.StreamWriter, page: Page, *, with_body: bool) -> None:
    """Send the answer in chunks: clients that do not read keep no copies of the page."""
    writer.transport.set_write_buffer_limits(0)
    writer.write(_head(page))
    for start in range(0, len(page.body) if with_body else 0, _CHUNK):
        writer.write(page.body[start : start + _CHUNK])
        await writer.drain()
    await writer.drain()
    writer.write_eof()


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


def _head(page: Page) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Connection: close",
    ]
    if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join([*lines, "", ""]).encode()
