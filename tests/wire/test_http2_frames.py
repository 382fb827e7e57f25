"""Frames as bytes, against the library hyperframe."""

import pytest
from hyperframe.frame import Frame, GoAwayFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from kubedevices.errors import ProtocolError
from kubedevices.wire import http2_frames as frames
from kubedevices.wire.http2_frames import ErrorCode


def parsed(data: bytes) -> Frame:
    """Return the library's reading of one whole frame."""
    found, size = Frame.parse_frame_header(memoryview(data[:9]))
    assert len(data) == 9 + size
    found.parse_body(memoryview(data[9:]))
    return found


def test_encoded_frames_are_decoded_again() -> None:
    """Each kind of frame that has numbers in it."""
    update = parsed(frames.number(frames.WINDOW_UPDATE, 5, 70_000))
    assert isinstance(update, WindowUpdateFrame)
    assert (update.stream_id, update.window_increment) == (5, 70_000)
    reset = parsed(frames.number(frames.RST_STREAM, 7, ErrorCode.CANCEL))
    assert isinstance(reset, RstStreamFrame)
    assert (reset.stream_id, reset.error_code) == (7, 8)
    goodbye = parsed(frames.goaway(9, ErrorCode.PROTOCOL, b"why"))
    assert isinstance(goodbye, GoAwayFrame)
    assert (goodbye.last_stream_id, goodbye.error_code) == (9, 1)
    assert goodbye.additional_data == b"why"
    greeting = parsed(frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31 - 1}))
    assert isinstance(greeting, SettingsFrame)
    assert greeting.settings == {4: 2**31 - 1}


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 2**24 - 1])
def test_sizes(size: int) -> None:
    """The three bytes of a size, at their borders."""
    found, length = Frame.parse_frame_header(memoryview(frames.head(frames.DATA, 1, 3, size)))
    assert (length, found.stream_id, "END_STREAM" in found.flags) == (size, 3, True)


@pytest.mark.parametrize(
    ("padded", "expected"),
    [(b"\0abc", b"abc"), (b"\2abc", b"a"), (b"\3abc", b""), (b"\0", b"")],
)
def test_padding(padded: bytes, expected: bytes) -> None:
    """The first byte says how many of the last are padding."""
    assert frames.without_padding(padded) == expected


@pytest.mark.parametrize("payload", [b"", b"\1", b"\4abc", b"\xffabc"])
def test_padding_longer_than_the_frame(payload: bytes) -> None:
    """Also by one, which is the byte that says so."""
    with pytest.raises(ProtocolError, match="padding"):
        frames.without_padding(payload)


def test_settings_of_both_ends() -> None:
    """The last value of a setting counts, unknown ones are no matter, and servers push nothing."""
    pairs = ((3, 1), (0x99, 7), (3, 2))
    body = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in pairs)
    assert frames.read_settings(body, from_server=True) == {3: 2, 0x99: 7}
    push = frames.settings({frames.ENABLE_PUSH: 1})[9:]
    assert frames.read_settings(push, from_server=False) == {frames.ENABLE_PUSH: 1}
    with pytest.raises(ProtocolError, match="ENABLE_PUSH"):
        frames.read_settings(push, from_server=True)


def test_the_reason_of_a_goaway() -> None:
    """Reason and code, for the errors of the calls that it ends."""
    assert frames.read_goaway(frames.goaway(5, 0)[9:]) == (5, "the peer is going away")
    last, reason = frames.read_goaway(frames.goaway(2**31 - 1, 11, b"too_many_pings")[9:])
    assert last == 2**31 - 1
    assert reason == "the peer is going away (HTTP/2 error code 11): too_many_pings"
