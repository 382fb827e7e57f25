"""One h2 connection behind limits: the only module that calls h2.

`grpc_connection` hands in bytes and gets h2's events (and `GoAway`); whatever goes wrong inside h2
becomes `ProtocolError`. A leaner HTTP/2 engine would take the place of this module.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from h2.errors import ErrorCodes

from kubedevices.errors import ProtocolError
from kubedevices.wire.grpc_headers import Headers
from kubedevices.wire.header_codec import RememberingDecoder, TablelessEncoder
from kubedevices.wire.http2_limits import (
    GOAWAY,
    MAX_FRAME_SIZE,
    MAX_HEADER_BLOCK,
    PREFACE,
    SETTINGS,
    FloodGuard,
    FrameCutter,
    GoAway,
    goaway,
    known_settings,
    parse_goaway,
)

MAX_DATA = 65536
"""Our largest DATA frame, whatever more the peer allows: calls take turns."""
_DEFAULT_WINDOW = 65535
_Setting = h2.settings.SettingCodes
Received = h2.events.Event | GoAway


class Windows(NamedTuple):
    """How much a peer may send before we acknowledge, and in how many streams."""

    stream: int
    connection: int
    streams: int


class _Settings(h2.settings.Settings):
    """Tells the peer our limit of streams and h2 twice as many: one too many is refused, no error.

    A peer may open streams before it has seen our settings.
    """

    def _get_max_streams(self) -> int:
        return 2 * self[_Setting.MAX_CONCURRENT_STREAMS] + 2

    max_concurrent_streams = property(_get_max_streams)


class _Connection(h2.connection.H2Connection):
    """h2 remembers how streams ended; a late frame is never 1024 streams late."""

    MAX_CLOSED_STREAMS = 1024


def _new_connection(windows: Windows, *, is_client: bool) -> _Connection:
    # Headers are ours on one side and checked by grpc_headers on the other; h2's own checks take a
    # third of a call's time.
    config = h2.config.H2Configuration(
        client_side=is_client,
        header_encoding=None,
        validate_inbound_headers=False,
        normalize_inbound_headers=False,
        validate_outbound_headers=False,
        normalize_outbound_headers=False,
    )
    connection = _Connection(config)
    connection.encoder = TablelessEncoder()
    connection.decoder = RememberingDecoder()
    connection.decoder.max_header_list_size = MAX_HEADER_BLOCK
    settings = {
        _Setting.ENABLE_PUSH: 0,
        _Setting.MAX_CONCURRENT_STREAMS: windows.streams,
        _Setting.INITIAL_WINDOW_SIZE: windows.stream,
        _Setting.MAX_FRAME_SIZE: MAX_FRAME_SIZE,
        _Setting.MAX_HEADER_LIST_SIZE: MAX_HEADER_BLOCK,
    }
    connection.local_settings = _Settings(client=is_client, initial_values=settings)
    del connection.local_settings[_Setting.ENABLE_CONNECT_PROTOCOL]
    connection.max_inbound_frame_size = MAX_FRAME_SIZE
    connection.initiate_connection()
    connection.increment_flow_control_window(windows.connection - _DEFAULT_WINDOW)
    if not is_client:
        connection.receive_data(PREFACE)  # FrameCutter has compared it
    return connection


class Http2Session:
    """HTTP/2 as gRPC needs it; every method is safe to call at any time."""

    def __init__(self, windows: Windows, *, is_client: bool, clock: Callable[[], float]) -> None:
        self._h2 = _new_connection(windows, is_client=is_client)
        self.guard = FloodGuard(clock)
        self._cutter = FrameCutter(self.guard, expects_preface=not is_client)
        self._windows = windows
        self._unacknowledged = 0
        self._goodbye = b""
        self._failure: ProtocolError | None = None

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return self._cutter.buffered

    @property
    def peer_max_streams(self) -> int:
        """How many streams the peer lets us have open at once."""
        return self._h2.remote_settings.max_concurrent_streams

    # ------------------------------------------------------------ in

    def receive(self, data: bytes) -> Iterator[Received]:
        """Yield what the bytes mean, frame by frame; raises `ProtocolError`, then call `fail`."""
        if self._failure is not None:
            raise self._failure
        for frame in self._cutter.feed(data):
            if frame.kind == GOAWAY:
                # h2 would close its state, although the calls below the mark may finish.
                yield parse_goaway(frame)
            else:
                whole = known_settings(frame) if frame.kind == SETTINGS else frame.data
                yield from self._feed(whole)

    def fail(self, error: ProtocolError) -> None:
        """Tell the peer that it broke the rules; from now on nothing is received or sent."""
        if self._failure is None:
            self._failure = error
            if self._h2.state_machine.state is not h2.connection.ConnectionState.CLOSED:
                # h2 did not find it, so h2 has not said it.
                self._goodbye += goaway(
                    self._h2.highest_inbound_stream_id,
                    ErrorCodes.PROTOCOL_ERROR,
                    str(error)[:200].encode(),
                )

    def _feed(self, frame: bytes) -> list[h2.events.Event]:
        try:
            return self._h2.receive_data(frame)
        except h2.exceptions.H2Error as error:
            raise ProtocolError(str(error) or type(error).__name__) from error
        except Exception as error:
            # h2 and hyperframe let more through than their own errors (assertions, KeyError);
            # what a peer sends must never look like a fault of ours.
            raise ProtocolError(f"{type(error).__name__}: {error}") from error

    def acknowledge_connection(self, size: int) -> None:
        """Let the peer send `size` more bytes on the connection as a whole."""
        self._unacknowledged += size
        if self._unacknowledged >= self._windows.connection // 4 and self._failure is None:
            self._h2.increment_flow_control_window(self._unacknowledged)
            self._unacknowledged = 0

    def acknowledge_stream(self, stream_id: int, size: int) -> None:
        """Let the peer send `size` more bytes on one stream that has not ended."""
        if self._failure is None:
            self._h2.increment_flow_control_window(size, stream_id)

    # ------------------------------------------------------------ out

    def open_stream(self, headers: Headers) -> int:
        """Open a stream and return its number, 0 when the connection has no numbers left."""
        try:
            stream_id = self._h2.get_next_available_stream_id()
        except h2.exceptions.NoAvailableStreamIDError:
            return 0
        self._h2.send_headers(stream_id, headers)
        return stream_id

    def send_headers(self, stream_id: int, headers: Headers, *, end: bool = False) -> None:
        """Send response headers or trailers."""
        if self._failure is None:
            self._h2.send_headers(stream_id, headers, end_stream=end)

    def room(self, stream_id: int) -> int:
        """Return how many bytes one DATA frame may carry now; 0 or less means wait."""
        if self._failure is not None:
            return 0
        window = self._h2.local_flow_control_window(stream_id)
        return min(window, self._h2.max_outbound_frame_size, MAX_DATA)

    def send_data(self, stream_id: int, data: memoryview, *, end: bool) -> None:
        """Send one DATA frame within `room`."""
        self._h2.send_data(stream_id, data, end_stream=end)
        self.guard.earn(FloodGuard.payload_earns)

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """End a stream at once; a stream that has ended stays as it is."""
        if self._failure is None:
            try:
                self._h2.reset_stream(stream_id, code)
            except h2.exceptions.ProtocolError:
                return

    def ping(self) -> None:
        """Ask for a sign of life."""
        if self._failure is None:
            self._h2.ping(b"kubedevs")

    def go_away(self) -> None:
        """Tell the peer that we take no more streams."""
        if self._failure is None:
            self._goodbye += goaway(self._h2.highest_inbound_stream_id, ErrorCodes.NO_ERROR)

    def take_output(self) -> bytes:
        """Return everything that is ready for the peer."""
        goodbye, self._goodbye = self._goodbye, b""
        return self._h2.data_to_send() + goodbye
