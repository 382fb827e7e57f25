"""HPACK (RFC 7541): header blocks ⇄ header fields.

We write without a dynamic table, so equal fields are equal bytes. The peer may use the table as it
likes; a block is decoded once for as long as the table stays as it is.
"""

from collections import deque
from functools import lru_cache

from kubedevices.errors import ProtocolError
from kubedevices.wire import huffman
from kubedevices.wire.header_block import Field, Fields, HeaderBlock
from kubedevices.wire.http2_frames import ErrorCode

TABLE_SIZE = 4096
"""How large a peer's dynamic table may be: what SETTINGS_HEADER_TABLE_SIZE is if nobody says it."""

# What a field counts beyond its name and value (RFC 7541, section 4.1).
FIELD_OVERHEAD = 32
# Bounds on `_known`: a peer chooses the blocks, so they must not fill the memory.
MAX_REMEMBERED = 128
MAX_REMEMBERED_SIZE = 512
# Five bytes of seven bits hold any 32-bit number; without a bound a peer could send zeros for ever.
_MAX_INTEGER_BYTES = 5

NO_TABLE = b"\x20"
"""A dynamic table size update to 0, for the beginning of the first block a connection sends."""

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
# Reversed, so that of several entries with one name the lowest index stays.
_INDEX_OF_NAME = {field[0]: at for at, field in reversed([*enumerate(_STATIC, 1)])}


# ---------------------------------------------------------------- writing


@lru_cache(maxsize=MAX_REMEMBERED)
def encode(fields: Fields) -> bytes:
    """Return the block for `fields`, which needs nothing of what was sent before."""
    return b"".join([_encode_field(name, value) for name, value in fields])


def _encode_field(name: bytes, value: bytes) -> bytes:
    """Return an index of the static table, or a literal that is not to be indexed."""
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
    """Reads the blocks of one connection, in the order in which they come."""

    def __init__(self, max_list_size: int, max_table_size: int = TABLE_SIZE) -> None:
        self._max_list_size = max_list_size
        self._max_table_size = self._table_limit = max_table_size
        self._table: deque[Field] = deque()
        self._table_size = 0
        self._known: dict[bytes, HeaderBlock] = {}

    def decode(self, block: bytes) -> HeaderBlock:
        """Return the fields of a whole block; raises `ProtocolError`."""
        known = self._known.get(block)
        if known is not None:
            return known
        try:
            fields, is_pure = self._read(block)
        except IndexError:
            raise ProtocolError("a header block is cut off", ErrorCode.COMPRESSION) from None
        result = HeaderBlock(fields)
        if not is_pure:  # the table has changed: every block may mean something else now
            self._known.clear()
        elif len(self._known) < MAX_REMEMBERED and len(block) < MAX_REMEMBERED_SIZE:
            self._known[block] = result
        return result

    def _read(self, block: bytes) -> tuple[Fields, bool]:
        fields: list[Field] = []
        is_pure = True
        at, end, room = 0, len(block), self._max_list_size
        while at < end:
            begin = block[at]
            if begin >= 0x80:
                index, at = _read_integer(block, at, 7)
                field = self._field(index)
            elif begin & 0xE0 == 0x20:
                is_pure = False
                # Only at the beginning of a block (section 4.2).
                if fields:
                    raise ProtocolError("a table size inside a block", ErrorCode.COMPRESSION)
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
                    is_pure = False
                    self._add(field)
            fields.append(field)
            room -= len(field[0]) + len(field[1]) + FIELD_OVERHEAD
            if room < 0:
                text = f"header list above {self._max_list_size} bytes"
                raise ProtocolError(text, ErrorCode.ENHANCE_YOUR_CALM)
        # `is_pure`: the dynamic table is as before, so the same bytes mean the same again.
        return tuple(fields), is_pure

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
    """Return an integer that begins in the last `prefix` bits of a byte, and where it ends."""
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
