"""gRPC's words in headers: timeouts, percent-encoding, statuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import StatusCode
from kubedevices.wire.grpc_headers import (
    MAX_MESSAGE,
    decode_message,
    encode_message,
    format_timeout,
    parse_status,
    parse_timeout,
    request_headers,
    trailers,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.000001, b"1u"),
        (0.05, b"50000u"),
        (0.25, b"250m"),
        (5, b"5000m"),
        (4.9996, b"5000m"),
        (99_999, b"99999000m"),
        (100_000, b"100000S"),
        (99_999_999, b"99999999S"),
        (10**9, b"277778H"),
        (10**15, b"99999999H"),
    ],
)
def test_timeout_sent(seconds: float, text: bytes) -> None:
    """A timeout has at most eight digits, and equal timeouts are equal bytes."""
    assert format_timeout(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1H", 3600.0),
        (b"2M", 120.0),
        (b"3S", 3.0),
        (b"40m", 0.04),
        (b"50u", 0.00005),
        (b"60n", 0.00000006),
        (b"0S", 0.0),
        (b"99999999H", 359999996400.0),
    ],
)
def test_timeout_received(text: bytes, seconds: float) -> None:
    """Every unit of gRPC is understood."""
    assert parse_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"S", b"5", b"5s", b"-5S", b"123456789S", b"1.5S", b"\xb2S"])
def test_no_timeout(text: bytes) -> None:
    """Anything else is none."""
    assert parse_timeout(text) is None


@given(st.floats(0.001, 10**9))
def test_timeouts_survive_the_wire(seconds: float) -> None:
    """A timeout arrives exactly to a millisecond, or to 0.3 %."""
    arrived = parse_timeout(format_timeout(seconds))
    assert arrived == pytest.approx(seconds, rel=0.003, abs=0.0006)


@given(st.text())
def test_texts_survive_the_wire(text: str) -> None:
    """Any text that is Unicode comes back as it was, in printable ASCII between."""
    encoded = encode_message(text)
    assert all(0x20 <= byte < 0x7F for byte in encoded)
    assert encoded == encoded.strip()
    if len(encoded) < MAX_MESSAGE - 20:
        assert decode_message(encoded) == text.encode("utf-8", "replace").decode()


def test_percent_encoding_as_others_write_it() -> None:
    """The encoding is the one of the gRPC specification."""
    assert encode_message("a b~%ü\n") == b"a b~%25%C3%BC%0A"
    assert encode_message("  x ") == b"%20%20x%20"
    assert encode_message("   ") == b"%20%20%20"


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"%", "%"), (b"%zz", "%zz"), (b"%FF", "�"), (b"%c3%bc", "ü"), (b"\xc3\xbc", "ü")],
)
def test_badly_encoded_texts_are_shown(text: bytes, expected: str) -> None:
    """A badly encoded text is better than none."""
    assert decode_message(text) == expected


def test_long_texts_are_cut() -> None:
    """A text too long for grpcio's header limit is cut after a whole character."""
    encoded = encode_message("ü" * 3000)
    assert len(encoded) <= MAX_MESSAGE
    text = decode_message(encoded)
    assert text.endswith("ü...")
    assert set(text) == {"ü", "."}


def test_an_empty_status_message_has_no_header() -> None:
    """OK has no message."""
    assert trailers(StatusCode.OK, "") == ((b"grpc-status", b"0"),)
    assert parse_status(dict(trailers(StatusCode.OK, ""))) is None


def test_authority() -> None:
    """We call the other side `localhost`: a socket's path is no authority, and Go rejects it."""
    assert dict(request_headers("/a/b", 1.0))[b":authority"] == b"localhost"
