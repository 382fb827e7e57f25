"""`GrpcLink` joins one connected socket with one `GrpcConnection`, for client and server.

The link passes received bytes to the connection, its events to the owner, and its output to the
socket. No timer runs while the peer is silent.
"""

import asyncio
import mmap
import threading
from functools import cached_property
from typing import Generic, TypeVar, cast

from kubedevices.errors import ProtocolError
from kubedevices.wire.grpc_connection import GrpcConnection
from kubedevices.wire.grpc_events import Event, PeerGoesAway
from kubedevices.wire.unix_socket import peer_uid

MAX_UNREAD = 2**20
"""Bytes that a peer may leave unread before we abort the connection.

While the transport's buffer is full, messages wait in the connection. Only answers to a flood of
control frames can fill this much.
"""

CLOSE_TIMEOUT = 0.05
"""Seconds that a closing connection has to send its last bytes."""

READ_SIZE = 262144

LOST = "the connection was lost"


class _ReadBuffer(threading.local):
    """The buffer for all reads of a thread: its event loop hands over one read at a time.

    `asyncio.Protocol` allocates a buffer for each read, which costs more than the read. A buffer
    per connection would use 256 KB of memory for each peer that once sent so much. In a mapping,
    only pages that were used take memory.
    """

    @cached_property
    def view(self) -> memoryview:
        return memoryview(mmap.mmap(-1, READ_SIZE))


_read_buffer = _ReadBuffer()

C = TypeVar("C", bound=GrpcConnection)


class GrpcLink(asyncio.BufferedProtocol, Generic[C]):
    """Base of the server's and the client's link, which implement `on_event` and `on_lost`."""

    def __init__(self, connection: C) -> None:
        self.connection = connection
        self.loop = asyncio.get_running_loop()
        self.lost = asyncio.Event()
        self._buffer = _read_buffer.view
        self._transport: asyncio.Transport | None = None
        self._is_paused = False  # the transport's buffer is full
        self._closes_after_calls = False
        self._is_corked = False  # collect the answers to all events of one read for one write
        self.has_started_tasks = False
        self.reason = LOST
        self._closing: asyncio.TimerHandle | None = None

    @property
    def peer_uid(self) -> int:
        """The user of the process at the other end; -1 if the connection was lost before."""
        if self._transport is None:
            return -1
        try:
            return peer_uid(self._transport.get_extra_info("socket"))
        except OSError:  # closed
            return -1

    def on_event(self, event: Event) -> None:
        """Handle one event; may call methods of the connection."""
        raise NotImplementedError

    def count_bytes(self) -> None:
        """Note that `held` may have changed; a server limits the bytes of all its connections."""

    @property
    def held(self) -> int:
        """Bytes that the peer makes us keep."""
        unread = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self.connection.held + unread

    def on_lost(self) -> None:
        """Handle the end of the connection; called once, after the events of its calls."""
        raise NotImplementedError

    # ------------------------------------------------------------ called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and send the first frames."""
        # uvloop's transports do not inherit from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that asyncio reads into, before the next call of `buffer_updated`."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass bytes to the connection, events to the owner, and send all answers in one write."""
        self._is_corked = True
        try:
            # A copy: asyncio reads into the same buffer again, and messages live longer.
            self.connection.receive(bytes(self._buffer[:nbytes]))
        except ProtocolError as error:
            self.reason = f"the peer broke the protocol: {error}"
            self.dispatch()
            self.close()
            return
        self.dispatch()
        if self.has_started_tasks:
            self.has_started_tasks = False
            # After the first step of the new tasks, because most tasks answer in it.
            self.loop.call_soon(self._uncork)
        else:
            self._uncork()

    def _uncork(self) -> None:
        self._is_corked = False
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every call, then call `on_lost`."""
        if self._closing is not None:
            self._closing.cancel()
        if exc is not None and self.reason == LOST:
            self.reason = f"{LOST}: {exc}"
        self._transport = None
        self.connection.end_calls(self.reason)
        self.dispatch()
        self.lost.set()
        self.on_lost()

    def pause_writing(self) -> None:
        """Stop sending messages: the peer reads slowly and the transport's buffer is full."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send messages again."""
        self._is_paused = False
        self.flush()

    # ------------------------------------------------------------ called by owners

    def dispatch(self) -> None:
        """Handle the connection's events until none is left."""
        while events := self.connection.take_events():
            for event in events:
                if type(event) is PeerGoesAway:
                    self._closes_after_calls, self.reason = True, event.reason
                else:
                    self.on_event(event)
        if self._closes_after_calls and not self.connection.open_calls:
            self.close()

    def flush(self) -> None:
        """Write the connection's output, then handle the events that this caused."""
        if self._is_corked:
            return
        transport = self._transport
        if transport is not None and not transport.is_closing():
            # A write may call pause_writing at once. Then control frames still go out, and messages
            # wait in the connection, where the limits count them.
            while output := self.connection.take_output(with_data=not self._is_paused):
                transport.write(output)
                if transport.is_closing():  # the write failed
                    break
            if transport.get_write_buffer_size() > MAX_UNREAD:
                transport.abort()
        self.dispatch()
        self.count_bytes()

    def close_after_calls(self) -> None:
        """Close the connection as soon as no call is open."""
        self._closes_after_calls = True
        self.dispatch()

    def close(self) -> None:
        """Send the remaining output and close; abort if the peer does not read in time."""
        transport = self._transport
        if transport is None or self._closing is not None:
            return
        # transport.close() waits until the peer has read everything: a stuck peer never does.
        self._closing = self.loop.call_later(CLOSE_TIMEOUT, self.abort)
        self._uncork()
        if not transport.is_closing():
            transport.close()

    def abort(self) -> None:
        """Close at once, without the remaining output."""
        if self._transport is not None:
            self._transport.abort()
