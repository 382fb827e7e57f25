"""HPACK (RFC 7541): header blocks ⇄ header fields.

Our encoder does not use the dynamic table, so equal fields give equal bytes, which are cached. The
peer's encoder may use the table. The decoder caches each block as long as the table is unchanged.
"""

from collections import deque
from functools import lru_cache

from kubedevices.errors import ProtocolError
from kubedevices.wire import huffman
from kubedevices.wire.header_block import Field, Fields, HeaderBlock
from kubedevices.wire.http2_frames import ErrorCode

TABLE_SIZE = 4096
"""Bytes of a peer's dynamic table: the default of SETTINGS_HEADER_TABLE_SIZE, which we keep."""

# Bytes that a field counts in addition to name and value (RFC 7541, section 4.1).
FIELD_OVERHEAD = 32
# Limits of the decoder's cache, in blocks and in bytes of a block: the peer chooses the blocks.
MAX_REMEMBERED = 16
MAX_REMEMBERED_SIZE = 512
MAX_ENCODED = 128
"""Blocks that `encode` remembers for all connections: only we choose their fields."""

MAX_RESIZES = 2
"""Table size updates at the beginning of a block: the smallest and the last (section 4.2)."""

# Five bytes of seven bits hold any 32-bit number. Without a limit an integer could be endless.
_MAX_INTEGER_BYTES = 5

NO_TABLE = b"\x20"
"""A dynamic table size update to 0: it begins the first block that a connection sends."""

_STATIC_TABLE = """\
:authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https\
|:status 200|:status 204|:status 206|:status 304|:status 400|:status 404|:status 500\
|accept-charset|accept-encoding gzip, deflate|accept-language|accept-ranges|accept\
|access-control-allow-origin|age|allow|authorization|cache-control|content-disposition\
|content-encoding|content-language|content-length|content-location|content-range|content-type\
|cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range\
|if-unmodified-since|last-modified|link|location|max-forwards|proxy-authenticate\
|proxy-authorization|range|referer|refresh|retry-after|server|set-cookie\
|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"""


def _static_field(text: str) -> Field:
    name, _, value = text.partition(" ")
    return name.encode(), value.encode()


_STATIC: tuple[Field, ...] = tuple(map(_static_field, _STATIC_TABLE.split("|")))
_INDEX = {field: at for at, field in enumerate(_STATIC, 1)}
# Reversed, so that the lowest index wins if several entries have the same name.
_INDEX_OF_NAME = {field[0]: at for at, field in reversed([*enumerate(_STATIC, 1)])}


# ---------------------------------------------------------------- writing


@lru_cache(maxsize=MAX_ENCODED)
def encode(fields: Fields) -> bytes:
    """Return the block for `fields`. It does not depend on earlier blocks."""
    return b"".join([_encode_field(name, value) for name, value in fields])


def _encode_field(name: bytes, value: bytes) -> bytes:
    """Return an index of the static table, or a literal field without indexing (section 6)."""
    if (name, value) in _INDEX:
        return bytes((0x80 | _INDEX[name, value],))
    at = _INDEX_OF_NAME.get(name, 0)
    return _integer(at, 4) + (b"" if at else _string(name)) + _string(value)


def _string(text: bytes) -> bytes:
    return _integer(len(text), 7) + text


def _integer(value: int, prefix: int) -> bytes:
    limit = (1 << prefix) - 1
    if value < limit:
        return bytes((value,))
    rest = bytearray((limit,))
    value -= limit
    while value >= 128:
        rest.append(value % 128 + 128)
        value //= 128
    rest.append(value)
    return bytes(rest)


# ---------------------------------------------------------------- reading


class Decoder:
    """Decodes all header blocks of one connection, in the order of their arrival."""

    def __init__(self, max_list_size: int, max_table_size: int = TABLE_SIZE) -> None:
        self._max_list_size = max_list_size
        self._max_table_size = self._table_limit = max_table_size
        self._table: deque[Field] = deque()
        self._table_size = 0
        self._decoded: dict[bytes, HeaderBlock] = {}

    def find(self, block: bytes) -> HeaderBlock | None:
        """Return the fields of `block` if an equal block was decoded before: no work."""
        return self._decoded.get(block)

    def decode(self, block: bytes) -> HeaderBlock:
        """Return the fields of a whole block; raises `ProtocolError`.

        The work grows with the bytes of the block: the caller limits them (`FloodGuard`).
        """
        try:
            fields, is_table_unchanged = self._read(block)
        except IndexError:
            raise ProtocolError("a header block is cut off", ErrorCode.COMPRESSION) from None
        result = HeaderBlock(fields)
        if not is_table_unchanged:  # an index may mean another field now: the cache is wrong
            self._decoded.clear()
        elif len(self._decoded) < MAX_REMEMBERED and len(block) < MAX_REMEMBERED_SIZE:
            self._decoded[block] = result
        return result

    def _read(self, block: bytes) -> tuple[Fields, bool]:
        fields: list[Field] = []
        is_table_unchanged, resizes = True, 0
        at, end, left = 0, len(block), self._max_list_size
        while at < end:
            begin = block[at]
            if begin >= 0x80:
                index, at = _read_integer(block, at, 7)
                field = self._field(index)
            elif begin & 0xE0 == 0x20:
                is_table_unchanged = False
                # Allowed only at the beginning of a block (section 4.2).
                resizes += 1
                if fields or resizes > MAX_RESIZES:
                    text = "a table size inside a block" if fields else "too many table sizes"
                    raise ProtocolError(text, ErrorCode.COMPRESSION)
                at = self._resize(block, at)
                continue
            else:
                index, at = _read_integer(block, at, 6 if begin & 0x40 else 4)
                if index:
                    name = self._field(index)[0]
                else:
                    name, at = _read_string(block, at)
                value, at = _read_string(block, at)
                field = name, value
                if begin & 0x40:
                    is_table_unchanged = False
                    self._add(field)
            fields.append(field)
            # Checked for each field: a block of a few bytes may expand to many fields.
            left -= len(field[0]) + len(field[1]) + FIELD_OVERHEAD
            if left < 0:
                text = f"header list above {self._max_list_size} bytes"
                raise ProtocolError(text, ErrorCode.ENHANCE_YOUR_CALM)
        return tuple(fields), is_table_unchanged

    def _field(self, index: int) -> Field:
        if 0 < index <= len(_STATIC):
            return _STATIC[index - 1]
        if 0 <= index - len(_STATIC) - 1 < len(self._table):
            # The newest entry of the dynamic table has the lowest index (section 2.3.3).
            return self._table[index - len(_STATIC) - 1]
        raise ProtocolError(f"no header field has the index {index}", ErrorCode.COMPRESSION)

    def _add(self, field: Field) -> None:
        self._table.appendleft(field)
        self._table_size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
        self._evict()

    def _evict(self) -> None:
        while self._table_size > self._table_limit:
            name, value = self._table.pop()
            self._table_size -= len(name) + len(value) + FIELD_OVERHEAD

    def _resize(self, block: bytes, at: int) -> int:
        self._table_limit, at = _read_integer(block, at, 5)
        if self._table_limit > self._max_table_size:
            raise ProtocolError("a table size above ours", ErrorCode.COMPRESSION)
        self._evict()
        return at


def _read_integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """Return an integer with a prefix of `prefix` bits (section 5.1), and where it ends."""
    limit = (1 << prefix) - 1
    value = block[at] & limit
    at += 1
    if value < limit:
        return value, at
    for shift in range(0, 7 * _MAX_INTEGER_BYTES, 7):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ProtocolError("an endless integer in a header block", ErrorCode.COMPRESSION)


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    is_huffman = block[at] >= 0x80
    size, at = _read_integer(block, at, 7)
    text = block[at : at + size]
    if len(text) < size:
        raise IndexError
    return (huffman.decode(text) if is_huffman else text), at + size
