"""HPACK's Huffman code (RFC 7541, appendix B), read eight bits at a time.

Only `hpack` uses it. We never write it: bytes are cheap on a Unix socket, time is not.
"""

from kubedevices.errors import ProtocolError
from kubedevices.wire.http2_frames import ErrorCode

_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCDIOIJB"
    "KABABABBBACCBBBABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSPRRRSRRS"
    "VVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWVZ"
)
"""The length of the code of each byte, and of the end of the string: A is 5 bits, Z is 30.

The code is canonical: shorter codes first, those of one length in the order of their bytes.
"""

_LONGEST = 30
_BYTES, _SIZES = bytearray(256), bytearray(256)
"""For eight bits: the byte whose code they begin with, and the size of the code; 0: it is longer"""
_LONG: dict[tuple[int, int], int] = {}
"""Size and code of the others → their byte."""


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
    """Return the text whose code is `data`; raises `ProtocolError`."""
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
    if left > 7 or bits + 1 != 1 << left:  # what is left must be the beginning of the end's code
        raise ProtocolError("a Huffman code is cut off or padded wrong", ErrorCode.COMPRESSION)
    return bytes(text)


def _long_code(bits: int, left: int) -> tuple[int, int]:
    """Return size and byte of the code of more than eight bits, size 0 if it is not complete."""
    for size in range(10, min(left, _LONGEST) + 1):
        byte = _LONG.get((size, bits >> (left - size)))
        if byte is not None:
            return size, byte
    if left >= _LONGEST:
        raise ProtocolError("a string holds the code of its end", ErrorCode.COMPRESSION)
    return 0, 0
