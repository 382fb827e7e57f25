"""The server over a Unix socket: `GrpcServer` serves methods from `start` to `stop`."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from kubedevices.wire.acceptor import Acceptor
from kubedevices.wire.http2_limits import Limits
from kubedevices.wire.peers import Peer
from kubedevices.wire.server_connection import ServerConnection
from kubedevices.wire.server_link import Methods, ServerLink
from kubedevices.wire.server_load import BUDGET, MAX_CONNECTIONS, ServerLoad, make_room
from kubedevices.wire.unix_socket import FileIdentity, listen, unlink_own

logger = logging.getLogger(__name__)

IDLE_TIMEOUT = 300.0
"""Seconds without a call after which we close a connection; gRPC clients then reconnect."""

MAX_REQUEST = 2**16
"""Bytes of a request, if a server sets no other limit: most requests have a few hundred bytes."""

STOP_TIME, STOP_STEPS = 0.08, 4
"""Seconds for the end of everything, in steps: a pause of the machine uses up only one step."""


class GrpcServer:
    """Serves methods on one Unix socket from `start` to `stop`; may be started again."""

    def __init__(
        self,
        methods: Methods,
        *,
        name: str,
        max_receive: int | Callable[[], int] = MAX_REQUEST,
        max_streams: int = 1000,
        max_connections: int = MAX_CONNECTIONS,
        max_held: int = BUDGET,
    ) -> None:
        """`max_receive` is the limit of a request in bytes, or a function that returns it.

        `max_held` and four such requests are the limit of unfinished and unread messages together.
        """
        self.methods = methods
        self.name = name
        self.tasks: set[asyncio.Task[None]] = set()
        self._max_receive = max_receive if callable(max_receive) else lambda: max_receive
        most = 4 * 2**20 if callable(max_receive) else max_receive
        self._limits = Limits(
            max_receive=most, max_streams=max_streams, max_buffered=max(max_held, 2 * most)
        )
        self.load = ServerLoad(
            name,
            max_connections=max_connections,
            budget=lambda: max_held + 4 * self._max_receive(),
        )
        self._links: set[ServerLink] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._listener: Acceptor | None = None
        self._path: Path | None = None
        self._identity: FileIdentity | None = None

    def __repr__(self) -> str:
        where = self._path if self._listener is not None else "stopped"
        return f"<GrpcServer {self.name} {where} connections={len(self._links)}>"

    @property
    def identity(self) -> FileIdentity | None:
        """Identity of our socket file, None before `start`."""
        return self._identity

    def owns_socket(self) -> bool:
        """Whether the file at our path is still our socket."""
        return (
            self._path is not None
            and self._identity is not None
            and FileIdentity.of(self._path) == self._identity
        )

    async def start(self, path: Path, *, mode: int = 0o600, by_rename: bool = False) -> None:
        """Listen at `path`; with `by_rename` the file appears only when the socket listens."""
        if self._listener is not None:
            raise RuntimeError(f"{self.name} is already started")
        listening = listen(path, mode=mode, by_rename=by_rename)
        loop = asyncio.get_running_loop()
        self._listener = Acceptor(
            listening.socket, self._new_link, self.name, make_room=lambda: make_room(loop)
        )
        self._path, self._identity = path, listening.identity

    def favour(self, peer: Peer | None) -> None:
        """Never make room for other processes by closing connections of `peer`, the kubelet."""
        self.load.favour(peer)

    def _new_link(self) -> ServerLink:
        clock = asyncio.get_running_loop().time
        connection = ServerConnection(
            clock=clock, limits=self._limits, message_limit=self._max_receive
        )
        return ServerLink(self, connection)

    async def stop(self, grace: float = 0) -> None:
        """Refuse new calls, give open calls `grace` seconds, then end everything within 100 ms.

        Removes the socket file if it is still ours.
        """
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._path is not None:
            unlink_own(self._path, self._identity)  # first: a client that dials now finds no socket
        if self._identity is not None:
            # Not left to the garbage collector: a plugin gets a new server with each kubelet.
            self._identity.release()
            self._identity = None
        listener.close()
        for link in list(self._links):
            link.connection.refuse_calls()
        if grace > 0 and self._open_tasks():
            await asyncio.wait(self._open_tasks(), timeout=grace)
        for link in list(self._links):
            link.end_calls()
        await self._wait_for_the_end()  # longer than CLOSE_TIMEOUT, after which links abort
        for task in self._open_tasks():
            logger.warning("%s: %s does not end although cancelled", self.name, task.get_name())

    async def _wait_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        ends = [
            loop.create_task(link.lost.wait(), name=f"{self.name}: end of a connection")
            for link in self._links
        ]
        left: set[asyncio.Task[None] | asyncio.Task[bool]] = {*ends, *self._open_tasks()}
        for _ in range(STOP_STEPS):
            if left:
                _, left = await asyncio.wait(left, timeout=STOP_TIME / STOP_STEPS)
        for end in ends:
            end.cancel()

    def _open_tasks(self) -> set[asyncio.Task[None]]:
        # A handler may call stop(); then it must not wait for its own task.
        return {task for task in self.tasks if task is not asyncio.current_task()}

    # ------------------------------------------------------------ called by links

    def admit(self, link: ServerLink) -> bool:
        """Add a new connection; return False if the server stopped or has too many."""
        if self._listener is None or not self.load.admit(link):
            return False
        self._links.add(link)
        if self._sweep is None:
            self._sweep = link.loop.call_later(IDLE_TIMEOUT, self._end_idle_links)
        return True

    def _end_idle_links(self) -> None:
        """Close connections that are idle for `IDLE_TIMEOUT`; repeat while connections exist."""
        loop = asyncio.get_running_loop()
        for link in [*self._links]:
            if link.is_idle and loop.time() - link.idle_since >= IDLE_TIMEOUT:
                link.end()
        self._sweep = (
            loop.call_later(IDLE_TIMEOUT / 2, self._end_idle_links) if self._links else None
        )

    def forget(self, link: ServerLink) -> None:
        """Remove a connection that ended."""
        self._links.discard(link)
        self.load.forget(link)
