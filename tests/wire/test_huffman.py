"""The Huffman code of RFC 7541, appendix B; `test_hpack` has its strings in header blocks."""

import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import ProtocolError
from kubedevices.wire import huffman
from kubedevices.wire.http2_frames import ErrorCode

LIBRARY = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.binary(max_size=200))
def test_every_text(text: bytes) -> None:
    """Texts encoded by the library are decoded."""
    assert huffman.decode(LIBRARY.encode(text)) == text


@pytest.mark.parametrize("byte", range(256))
def test_padding(byte: int) -> None:
    """Up to seven 1 bits may follow each code, no 0 bit and no whole byte."""
    size = REQUEST_CODES_LENGTH[byte]
    whole = -(-size // 8)
    spare = 8 * whole - size
    padded = (REQUEST_CODES[byte] + 1 << spare) - 1
    assert huffman.decode(padded.to_bytes(whole, "big")) == bytes((byte,))
    for wrong in (padded.to_bytes(whole, "big") + b"\xff", (padded ^ 1).to_bytes(whole, "big")):
        if spare or len(wrong) > whole:
            with pytest.raises(ProtocolError) as caught:
                huffman.decode(wrong)
            assert caught.value.code == ErrorCode.COMPRESSION


def test_long_strings_take_no_longer_for_each_byte() -> None:
    """The number of undecoded bits stays small, also with 60,000 codes of 28 bits."""
    assert huffman.decode(LIBRARY.encode(b"\x02" * 60_000)) == b"\x02" * 60_000
