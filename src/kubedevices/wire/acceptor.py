"""Takes connections on a listening socket until it is closed. For `GrpcServer`.

Not `asyncio.Server`: closed while a connection is being set up, that leaves it open and silent, and
whoever dialled waits for an answer until a deadline (`Server._attach` in CPython up to 3.13).
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from kubedevices.wire.unix_socket import BACKLOG

logger = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds without accepting after the process ran out of files or memory, as in asyncio."""

_OUT_OF_SOMETHING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts from the moment it is made; owns `listener`, which must not block."""

    def __init__(
        self, listener: socket.socket, new_protocol: Callable[[], asyncio.BaseProtocol], name: str
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener, self._new_protocol, self._name = listener, new_protocol, name
        self._joining: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more; connections that are being set up still reach `new_protocol`."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        # A bound: a peer that connects without end must not keep the loop here.
        for _ in range(BACKLOG):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of files the listener stays readable, and the loop would spin on it.
                if error.errno not in _OUT_OF_SOMETHING:
                    raise
                logger.warning("%s: no connections for %g s: %s", self._name, PAUSE, error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE, self._resume)
                return
            task = self._loop.create_task(
                self._join(connection), name=f"{self._name}: a connection"
            )
            # The loop keeps only weak references to tasks.
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    async def _join(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._new_protocol, connection)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):  # it is gone again: nobody is waiting
                raise
