"""Which header fields HTTP/2 allows; `protocol` has the same as seen from outside."""

import pytest

from kubedevices.wire.header_block import Field, HeaderBlock, HeaderKind
from tests.wire.frames import OK, REQUEST, RESPONSE


def problem(*fields: Field) -> str:
    return HeaderBlock(fields).problem


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (REQUEST, HeaderKind.REQUEST),
        (RESPONSE, HeaderKind.RESPONSE),
        (OK, HeaderKind.TRAILERS),
        ([], HeaderKind.TRAILERS),
    ],
)
def test_kind(fields: list[Field], kind: HeaderKind) -> None:
    """The pseudo-header fields say what a block is."""
    block = HeaderBlock(tuple(fields))
    assert (block.kind, block.problem) == (kind, "")
    assert block.named == dict(fields)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ((b"Upper", b""), "header name 'Upper'"),
        ((b"", b""), "header name ''"),
        ((b"a b", b""), "header name 'a b'"),
        ((b"a:b", b""), "header name 'a:b'"),
        ((b"\xe9", b""), "header name '\\xe9'"),
        ((b"a", b"b\n"), "value of 'a'"),
        ((b"a", b"\0"), "value of 'a'"),
        ((b"connection", b"close"), "field of HTTP/1.1"),
        ((b"te", b"gzip"), "field of HTTP/1.1"),
        ((b":path", b"/again"), "':path' twice or after"),
        ((b"content-length", b"-1"), "content-length '-1'"),
        ((b"content-length", b""), "content-length ''"),
    ],
)
def test_forbidden_everywhere(field: Field, expected: str) -> None:
    """In requests and responses alike; the text names the field."""
    for fields in (REQUEST, RESPONSE):
        assert problem(*fields, field).startswith(expected)


@pytest.mark.parametrize("missing", [b":method", b":scheme", b":path"])
def test_required_fields_of_a_request(missing: bytes) -> None:
    """`:authority` may be absent or empty, the others not."""
    fields = [field for field in REQUEST if field[0] != missing]
    assert problem(*fields) == f"missing {missing.decode()!r}"
    without = [field for field in REQUEST if field[0] != b":authority"]
    assert problem(*without) == problem((b":authority", b""), *without) == ""
    assert problem((b":protocol", b"x"), *REQUEST) == "unexpected ':protocol'"


def test_spaces_around_values() -> None:
    """grpc-go's servers send such status texts and metadata; in requests they are malformed."""
    for value in (b" a", b"a\t"):
        assert problem(*RESPONSE, (b"x", value)) == problem((b"grpc-message", value)) == ""
        assert problem(*REQUEST, (b"x", value)).startswith("value of 'x'")


def test_content_length() -> None:
    """Two equal values are allowed, two different ones are malformed."""
    three = (b"content-length", b"3")
    assert HeaderBlock((*REQUEST, three, three)).content_length == 3
    assert problem(*REQUEST, three, (b"content-length", b"4")).startswith("content-length")
    assert HeaderBlock(tuple(REQUEST)).content_length is None


def test_informational() -> None:
    """Only a response with a 1xx status is informational."""
    assert HeaderBlock(((b":status", b"103"),)).is_informational
    assert not HeaderBlock(tuple(RESPONSE)).is_informational
    assert not HeaderBlock(tuple(REQUEST)).is_informational
