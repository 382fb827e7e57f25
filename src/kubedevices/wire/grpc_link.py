"""One connected socket driving one sans-I/O gRPC connection; both ends build on it.

Reads go in, events go to the owner, output goes out. Nothing runs while the peer is silent.
"""

import asyncio
import mmap
from typing import Generic, TypeVar, cast

from kubedevices.errors import ProtocolError
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import Event, PeerGoesAway

MAX_UNREAD = 4 * 2**20
"""Bytes that a peer may leave unread. Messages wait in the connection: only floods get here."""

LAST_WORDS = 0.05
"""Seconds a closing connection has to get its last bytes out."""

READ_SIZE = 262144

LOST = "the connection was lost"

C = TypeVar("C", bound=GrpcConnection)


class GrpcLink(asyncio.BufferedProtocol, Generic[C]):
    """Base of a server's and a client's connection: `on_event` and `on_lost` are theirs."""

    def __init__(self, connection: C) -> None:
        self.connection = connection
        self.loop = asyncio.get_running_loop()
        self.lost = asyncio.Event()
        # asyncio's own buffer is made anew for each read, which costs more than the read. Of a
        # mapping only the pages in use take memory.
        self._mapping = mmap.mmap(-1, READ_SIZE)
        self._buffer = memoryview(self._mapping)
        self._transport: asyncio.Transport | None = None
        # `_is_paused`: the transport's buffer is full. `_is_leaving`: close after the last call.
        # `_is_corked`: events are being worked through, and their answers go out in one write.
        self._is_paused = self._is_leaving = False
        self._is_corked = False
        self.has_started_tasks = False
        self.reason = LOST
        self._closing: asyncio.TimerHandle | None = None

    def on_event(self, event: Event) -> None:
        """Act on one event; may call the connection again."""
        raise NotImplementedError

    def on_lost(self) -> None:
        """Act on the end of the connection, once, after the events about its calls."""
        raise NotImplementedError

    # ------------------------------------------------------------ called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and say hello."""
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop inherit nothing
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand bytes in, events to the owner, and all the answers out in one write."""
        self._is_corked = True
        try:
            # A copy, because asyncio reads into the same buffer again and messages live longer.
            self.connection.receive(bytes(self._buffer[:nbytes]))
        except ProtocolError as error:
            self.reason = f"the peer broke the protocol: {error}"
            self.dispatch()
            self.close()
            return
        self.dispatch()
        if self.has_started_tasks:
            self.has_started_tasks = False
            self.loop.call_soon(self._uncork)  # after their first steps, which often answer
        else:
            self._uncork()

    def _uncork(self) -> None:
        self._is_corked = False
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every call and tell the owner."""
        if self._closing is not None:
            self._closing.cancel()
        if exc is not None and self.reason == LOST:
            self.reason = f"{LOST}: {exc}"
        self._transport = None
        # A mapping with a view on it cannot be closed.
        self._buffer.release()
        self._mapping.close()
        self.connection.lose(self.reason)
        self.dispatch()
        self.lost.set()
        self.on_lost()

    def pause_writing(self) -> None:
        """Stop sending messages: the peer reads slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_paused = False
        self.flush()

    # ------------------------------------------------------------ called by owners

    def dispatch(self) -> None:
        """Work through the connection's events until there are none."""
        while events := self.connection.take_events():
            for event in events:
                if type(event) is PeerGoesAway:
                    self._is_leaving, self.reason = True, event.reason
                else:
                    self.on_event(event)
        if self._is_leaving and not self.connection.open_calls:
            self.close()

    def flush(self) -> None:
        """Write what the connection has for the peer, and act on what that changed."""
        if self._is_corked:
            return
        transport = self._transport
        if transport is not None and not transport.is_closing():
            # A write may call pause_writing at once: then control frames still go out, messages
            # wait in the connection, where the limits count them.
            while output := self.connection.take_output(with_data=not self._is_paused):
                transport.write(output)
            if transport.get_write_buffer_size() > MAX_UNREAD:
                transport.abort()
        self.dispatch()

    def leave(self) -> None:
        """Close after the last open call."""
        self._is_leaving = True
        self.dispatch()

    def close(self) -> None:
        """Send the last words and close; at once when the peer does not take them."""
        transport = self._transport
        if transport is None or self._closing is not None:
            return
        # transport.close() waits for the peer to read, which a stuck peer never does.
        self._closing = self.loop.call_later(LAST_WORDS, self.abort)
        self._uncork()
        if not transport.is_closing():
            transport.close()

    def abort(self) -> None:
        """Close without a word."""
        if self._transport is not None:
            self._transport.abort()
