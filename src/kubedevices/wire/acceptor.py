"""Accepts connections on a listening socket until `close`. For `GrpcServer`.

We do not use `asyncio.Server`: if it is closed while it sets up a connection, the connection stays
open without a protocol, and the client waits until its deadline (`Server._attach` in CPython up to
3.13).
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from kubedevices.wire.unix_socket import BACKLOG

logger = logging.getLogger(__name__)

PAUSE = 0.1
"""Seconds without accepting after the process ran out of descriptors or memory.

Meanwhile a connection that makes room closes, of any server of the process.
"""

_WARN_INTERVAL = 60.0

_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts connections from its creation on; owns `listener`, a non-blocking socket."""

    def __init__(
        self,
        listener: socket.socket,
        new_protocol: Callable[[], asyncio.BaseProtocol],
        name: str,
        *,
        make_room: Callable[[], object] = lambda: None,
    ) -> None:
        """`make_room` is called when the process has no free descriptor; it may close one."""
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._listener, self._new_protocol, self._name = listener, new_protocol, name
        self._being_set_up: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._warned_at = -_WARN_INTERVAL
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Stop accepting; connections that were accepted before still reach `new_protocol`."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        # Limited, so that a client that connects again and again cannot block the event loop.
        for _ in range(BACKLOG):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Without a free descriptor the listener stays readable: without the pause the loop
                # would call us again at once, and use all of a CPU.
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                if self._loop.time() - self._warned_at >= _WARN_INTERVAL:
                    self._warned_at = self._loop.time()
                    logger.warning("%s: cannot accept: %s", self._name, error.strerror)
                self._make_room()
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE, self._resume)
                return
            task = self._loop.create_task(
                self._set_up(connection), name=f"{self._name}: a connection"
            )
            # asyncio keeps only weak references to tasks: without ours a task could disappear.
            self._being_set_up.add(task)
            task.add_done_callback(self._being_set_up.discard)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    async def _set_up(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._new_protocol, connection)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):  # an OSError means: the client is gone already
                raise
