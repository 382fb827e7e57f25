"""The Huffman code of HPACK (RFC 7541, appendix B), decoded eight bits at a time.

Only `hpack` uses it. Our encoder never does: on a Unix socket fewer bytes save no time.
"""

from bisect import bisect_right

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

_LONGEST, _EOS = 30, 256
_BYTES, _SIZES = bytearray(256), bytearray(256)
"""For each value of eight bits: the first byte they encode and the size of its code.

Size 0: the code is longer than eight bits.
"""
_CODES: list[tuple[int, int, int]] = []
"""All codes in ascending order: the code with zero bits up to `_LONGEST`, its size, its byte.

A search finds a code in the same time, whatever its size: a peer may send only the longest codes.
"""


def _fill_tables() -> None:
    code = previous = 0
    for size, byte in sorted((ord(letter) - 60, byte) for byte, letter in enumerate(_LENGTHS)):
        code <<= size - previous
        previous = size
        _CODES.append((code << (_LONGEST - size), size, byte))
        if size <= 8:
            for begin in range(code << (8 - size), (code + 1) << (8 - size)):
                _BYTES[begin], _SIZES[begin] = byte, size
        code += 1


_fill_tables()
_STARTS = [start for start, _, _ in _CODES]


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
    # Bits that have not arrived count as zeros. A code that is found with them is too long.
    window = bits >> (left - _LONGEST) if left >= _LONGEST else bits << (_LONGEST - left)
    _, size, byte = _CODES[bisect_right(_STARTS, window) - 1]
    if size > left:
        return 0, 0
    if byte == _EOS:
        raise ProtocolError("a string contains the EOS code", ErrorCode.COMPRESSION)
    return size, byte
