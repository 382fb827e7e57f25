"""The Huffman code of HPACK (RFC 7541, appendix B), decoded eight bits at a time.

Only `hpack` uses it. Our encoder never does: on a Unix socket fewer bytes save no time.
"""

from kubedevices.errors import ProtocolError
from kubedevices.wire.http2_frames import ErrorCode

_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJB"
    "KABABABBBACCBBBABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRS"
    "VVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWVZ"
)
"""The length of the code of each byte, then of EOS (end of string): A is 5 bits, Z is 30 bits.

The code is canonical: shorter codes come first, and codes of one length in the order of the bytes.
"""

_LONGEST = 30
_BYTES, _SIZES = bytearray(256), bytearray(256)
"""For each value of eight bits: the first byte they encode and the size of its code.

Size 0: the code is longer than eight bits.
"""
_LONG: dict[tuple[int, int], int] = {}
"""(size, code) → byte, for codes of more than eight bits."""


def _fill_tables() -> None:
    code = previous = 0
    for size, byte in sorted((ord(letter) - 60, byte) for byte, letter in enumerate(_LENGTHS)):
        code <<= size - previous
        previous = size
        if size <= 8:
            for begin in range(code << (8 - size), (code + 1) << (8 - size)):
                _BYTES[begin], _SIZES[begin] = byte, size
        elif byte < 256:
            _LONG[size, code] = byte
        code += 1


_fill_tables()


def decode(data: bytes) -> bytes:
    """Return the decoded string; raises `ProtocolError`."""
    text = bytearray()
    bits = left = 0  # the bits that are not decoded yet, and their number
    for each in data:
        bits = bits << 8 | each
        left += 8
        while left >= 8:
            begin = bits >> (left - 8)
            size, byte = _SIZES[begin], _BYTES[begin]
            if not size:
                size, byte = _long_code(bits, left)
                if not size:
                    break
            text.append(byte)
            left -= size
            bits &= (1 << left) - 1
    while 5 <= left < 8 and 0 < (size := _SIZES[begin := (bits + 1 << (8 - left)) - 1]) <= left:
        text.append(_BYTES[begin])
        left -= size
        bits &= (1 << left) - 1
    # The padding is fewer than eight bits, all 1: the beginning of EOS (section 5.2).
    if left > 7 or bits + 1 != 1 << left:
        raise ProtocolError("a Huffman code is cut off or padded wrong", ErrorCode.COMPRESSION)
    return bytes(text)


def _long_code(bits: int, left: int) -> tuple[int, int]:
    """Return size and byte of a code of more than eight bits, size 0 if the code is incomplete."""
    for size in range(10, min(left, _LONGEST) + 1):
        byte = _LONG.get((size, bits >> (left - size)))
        if byte is not None:
            return size, byte
    if left >= _LONGEST:
        raise ProtocolError("a string contains the EOS code", ErrorCode.COMPRESSION)
    return 0, 0
