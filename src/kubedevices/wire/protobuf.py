"""Messages of protobuf as bytes: what the kubelet's APIs need of its wire format, and no more.

Strings, integers, booleans, messages and maps of strings, with field numbers up to 15. Each field
is written as every library writes it: in the order of the numbers, and not at all with the value
that is the default. Reading is as lenient and as strict as theirs: unknown fields do no harm, the
last of two counts, two of one message are merged; tests compare with protobuf itself.
Format: https://protobuf.dev/programming-guides/encoding/.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from kubedevices.errors import ProtocolError

_VARINT, _FIXED64, _BLOCK, _GROUP, _GROUP_END, _FIXED32 = range(6)
_TAG_BYTES, _VARINT_BYTES = 5, 10
"""How long a number may be: as a tag or a size, and as a value."""

T = TypeVar("T")
Plain = TypeVar("Plain", bound=str | tuple[Any, ...])


# ---------------------------------------------------------------- writing


def block(number: int, content: bytes) -> bytes:
    """Return a field of any content: a message, also an empty one, or an element of a list."""
    size = len(content)
    if size < 128:
        return bytes((number << 3 | _BLOCK, size)) + content
    return bytes((number << 3 | _BLOCK,)) + varint(size) + content


def text(number: int, value: str) -> bytes:
    """Return a string field; nothing for an empty one."""
    return block(number, value.encode()) if value else b""


def texts(number: int, values: Iterable[str]) -> bytes:
    """Return a repeated string field, empty ones included."""
    return b"".join([block(number, value.encode()) for value in values])


def integer(number: int, value: int) -> bytes:
    """Return an int32, int64 or bool field; nothing for 0."""
    return bytes((number << 3 | _VARINT,)) + varint(value & 2**64 - 1) if value else b""


def text_map(number: int, values: Mapping[str, str]) -> bytes:
    """Return a map of strings, keys in order, so that equal maps are equal bytes."""
    if not values:
        return b""
    entries = [(key.encode(), value.encode()) for key, value in sorted(values.items())]
    return b"".join([block(number, block(1, key) + block(2, value)) for key, value in entries])


def varint(value: int) -> bytes:
    """Return a number from 0, seven bits to a byte, the lowest first."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


# ---------------------------------------------------------------- reading


def read(full_name: str, data: bytes, value_of: Callable[["Fields"], T]) -> T:
    """Return the value that `value_of` makes of the message in `data`.

    Raises `ProtocolError` with `full_name`, for example `v1beta1.Device`, if it is no message.
    """
    try:
        return value_of(Fields(data))
    except (ValueError, IndexError) as error:  # IndexError: a number that is cut off
        raise ProtocolError(f"{len(data)} bytes are no {full_name} message: {error}") from error


class Fields:
    """The fields of one message, for those who know their types; of several they are merged.

    Raises `ValueError` or `IndexError` for bytes that are none: of the message when it is made, of
    a field when it is asked for.
    """

    __slots__ = ("_found", "_parts")

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts
        self._found: dict[int, list[bytes | int]] = {}
        for data in parts:
            at, end = 0, len(data)
            while at < end:
                tag, value, at = next_field(data, at)
                self._found.setdefault(tag, []).append(value)

    def __contains__(self, number: int) -> bool:
        """Whether there is a string or a message with this number."""
        return number << 3 | _BLOCK in self._found

    def unknown(self, known: frozenset[int]) -> bytes:
        """Return the fields that have none of the tags `known`, as they came: see `next_field`.

        Whoever passes a message on adds them behind the others, as every library does.
        """
        if self._found.keys() <= known:
            return b""
        kept = []
        for data in self._parts:
            at, end = 0, len(data)
            while at < end:
                start = at
                tag, _, at = next_field(data, at)
                if tag not in known:
                    kept.append(data[start:at])
        return b"".join(kept)

    def text(self, number: int) -> str:
        """Return a string."""
        return (self.texts(number) or ("",))[-1]

    def texts(self, number: int) -> tuple[str, ...]:
        """Return a repeated string."""
        return tuple([value.decode() for value in self._blocks(number)])

    def flag(self, number: int) -> bool:
        """Return a bool."""
        return self.int64(number) != 0

    def int32(self, number: int) -> int:
        """Return an int32; a larger number loses its upper bits."""
        return _signed(self._numbers(number)[-1], 32)

    def int64(self, number: int) -> int:
        """Return an int64."""
        return _signed(self._numbers(number)[-1], 64)

    def message(self, number: int) -> "Fields":
        """Return a message, an empty one by default."""
        return Fields(*self._blocks(number))

    def messages(self, number: int) -> list["Fields"]:
        """Return a repeated message."""
        return [Fields(value) for value in self._blocks(number)]

    def text_map(self, number: int) -> dict[str, str]:
        """Return a map of strings, keys in order: a map on the wire has none."""
        return dict(sorted({each.text(1): each.text(2) for each in self.messages(number)}.items()))

    def _blocks(self, number: int) -> list[bytes]:
        return cast("list[bytes]", self._found.get(number << 3 | _BLOCK, []))

    def _numbers(self, number: int) -> list[int]:
        return cast("list[int]", self._found.get(number << 3 | _VARINT, [0]))


def tags(*, blocks: Iterable[int] = (), numbers: Iterable[int] = ()) -> frozenset[int]:
    """Return the tags of known fields: those with content and those with a number."""
    return frozenset(
        [*(each << 3 | _BLOCK for each in blocks), *(each << 3 | _VARINT for each in numbers)]
    )


@cache
def _kind_with_unknown(kind: type) -> type:
    return type(kind.__name__, (kind,), {"unknown": b""})


def carrying(value: Plain, unknown: bytes) -> Plain:
    """Return an equal `value` that has the attribute `unknown`, if there are unknown fields.

    For the small parts of messages that are tuples or texts: without unknown fields, which is
    always, they stay as small as they are.
    """
    if not unknown:
        return value
    kind: Any = _kind_with_unknown(cast("Any", type(value)))
    made = str.__new__(kind, value) if isinstance(value, str) else tuple.__new__(kind, value)
    made.unknown = unknown
    return cast("Plain", made)


def carried(value: object) -> bytes:
    """Return the unknown fields of `value`, see `carrying`."""
    found: bytes = getattr(value, "unknown", b"")
    return found


def _signed(value: int, bits: int) -> int:
    sign = 1 << bits - 1
    return ((value & (sign << 1) - 1) ^ sign) - sign


def next_field(data: bytes, at: int) -> tuple[int, bytes | int, int]:
    """Return tag and value of the field at `at`, and where the next one is.

    The tag is the number times 8 plus the type, the value that of a block or a varint, or b"".
    """
    tag, at = _read_varint(data, at, _TAG_BYTES)
    if not 8 <= tag < 2**32:
        raise ValueError(f"no field has the tag {tag}")
    kind, value = tag & 7, b""
    if kind == _VARINT:
        number, at = _read_varint(data, at, _VARINT_BYTES)
        return tag, number, at
    if kind == _BLOCK:
        size, start = _read_varint(data, at, _TAG_BYTES)
        at = start + size
        value = data[start:at]
    elif kind == _FIXED64:
        at += 8
    elif kind == _FIXED32:
        at += 4
    elif kind == _GROUP:
        at = _skip_group(data, at, tag)
    else:
        raise ValueError(f"no field is of the type {kind}")
    if at > len(data):
        raise ValueError("the last field is cut off")
    return tag, value, at


def _skip_group(data: bytes, at: int, tag: int) -> int:
    """Return where the group ends that began with `tag`: an old form of messages, not in ours."""
    open_groups = [tag >> 3]
    while open_groups:
        tag, after = _read_varint(data, at, _TAG_BYTES)
        if tag & 7 == _GROUP:
            open_groups.append(tag >> 3)
        elif tag & 7 != _GROUP_END:
            after = next_field(data, at)[2]
        elif open_groups.pop() != tag >> 3:
            raise ValueError("a group ends that did not begin")
        at = after
    return at


def _read_varint(data: bytes, at: int, most_bytes: int) -> tuple[int, int]:
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for position in range(1, most_bytes):
        byte = data[at + position]
        value |= (byte & 127) << 7 * position
        if byte < 128:
            return value, at + position + 1
    raise ValueError(f"a number of more than {most_bytes} bytes")
