"""Messages of protobuf as bytes: only the parts of the wire format that the kubelet's APIs need.

These are strings, integers, booleans, messages and maps of strings, with field numbers up to 15.
Fields are written in the order of their numbers, and default values are not written. Reading
accepts what protobuf's own libraries accept: unknown fields are allowed, the last of repeated
scalar values counts, repeated values of a message field are merged. Tests compare with protobuf.
Format: https://protobuf.dev/programming-guides/encoding/.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeVar, cast

from kubedevices.errors import ProtocolError

_VARINT, _FIXED64, _BLOCK, _GROUP, _GROUP_END, _FIXED32 = range(6)
_TAG_BYTES, _VARINT_BYTES = 5, 10
"""Most bytes of a varint: as a tag or a size, and as a value."""

T = TypeVar("T")
Plain = TypeVar("Plain", bound=str | int | tuple[Any, ...])


# ---------------------------------------------------------------- writing


def block(number: int, content: bytes) -> bytes:
    """Return a length-delimited field, also with empty content: a message, a text of a list."""
    size = len(content)
    if size < 128:
        return bytes((number << 3 | _BLOCK, size)) + content
    return bytes((number << 3 | _BLOCK,)) + varint(size) + content


def text(number: int, value: str) -> bytes:
    """Return a string field; no bytes for an empty string, the default."""
    return block(number, value.encode()) if value else b""


def texts(number: int, values: Iterable[str]) -> bytes:
    """Return a repeated string field; empty strings are elements too."""
    return b"".join([block(number, value.encode()) for value in values])


def integer(number: int, value: int) -> bytes:
    """Return an int32, int64 or bool field; no bytes for 0, the default."""
    return bytes((number << 3 | _VARINT,)) + varint(value & 2**64 - 1) if value else b""


def text_map(number: int, values: Mapping[str, str]) -> bytes:
    """Return a map of strings with sorted keys, so that equal maps give equal bytes."""
    if not values:
        return b""
    entries = [(key.encode(), value.encode()) for key, value in sorted(values.items())]
    return b"".join([block(number, block(1, key) + block(2, value)) for key, value in entries])


def varint(value: int) -> bytes:
    """Return a non-negative number as varint: seven bits in each byte, the lowest bits first."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


# ---------------------------------------------------------------- messages


class Field:
    """A field of a message. Its content is the `attribute` of the value; "": the value itself.

    If the bytes do not have the field, kind `message` gives an empty message, kind `optional` gives
    None. `json` is the name in protobuf's JSON. `of` describes the message of a message field.
    """

    __slots__ = ("attribute", "json", "kind", "number", "of", "read", "tag", "write")

    def __init__(
        self,
        number: int,
        attribute: str,
        kind: str,
        json: str = "",
        of: "Message[Any] | None" = None,
    ) -> None:
        self.number, self.attribute, self.kind, self.json, self.of = (
            number, attribute, kind, json, of,
        )  # fmt: skip
        self.tag = number << 3 | (_VARINT if kind in ("flag", "int32", "int64") else _BLOCK)
        how = _PLAIN[kind] if of is None else _of_messages(kind, of)
        self.read: Callable[[Sequence[Any]], Any] = how[0]
        """Returns the value for all occurrences of the field, in their order.

        They are bytes, numbers, or pairs of texts for a map.
        """

        self.write: Callable[[int, Any], bytes] = how[1]

    @property
    def is_repeated(self) -> bool:
        """Whether the field is a list."""
        return self.kind in ("texts", "messages")


class Message(Generic[T]):
    """A message type. `make` returns the value for the contents of `fields`, in their order.

    With `keeps_unknown` its last argument is the bytes of all unknown fields, and the value has
    them as `unknown`. A program that passes the message on sends them too, as protobuf does.
    """

    def __init__(
        self, name: str, make: Callable[..., T], *fields: Field, keeps_unknown: bool = False
    ) -> None:
        self.name, self.fields, self._make, self._keeps_unknown = name, fields, make, keeps_unknown
        self.by_number = sorted(fields, key=lambda field: field.number)
        # Empty content is not written, except for a message: an empty message is not an absent one.
        self._writers = [
            (each.number, each.attribute, each.write, each.kind not in ("message", "optional"))
            for each in self.by_number
        ]
        self._readers = [(each.tag, each.read) for each in fields]
        has_texts_only = all(each.kind == "text" for each in fields)
        self._places = {each.tag: i for i, each in enumerate(fields)} if has_texts_only else None
        self._tags = frozenset([each.tag for each in fields])
        self._blocks = frozenset([tag for tag in self._tags if tag & 7 == _BLOCK and tag < 128])
        self._maps = frozenset([each.tag for each in fields if each.kind == "map"])

    def to_wire(self, value: Any) -> bytes:
        """Return `value` as an encoded message."""
        written = []
        for number, attribute, write, leaves_empty_out in self._writers:
            content = getattr(value, attribute) if attribute else value
            if content or not leaves_empty_out:
                written.append(write(number, content))
        if self._keeps_unknown and (unknown := unknown_of(value)):
            written.append(unknown)
        return b"".join(written)

    def from_wire(self, data: bytes) -> T:
        """Return the value of an encoded message; raises `ProtocolError`."""
        try:
            return self.value(data)
        except (ValueError, IndexError) as error:  # IndexError: the bytes end in a varint
            text = f"{len(data)} bytes are not a {self.name} message: {error}"
            raise ProtocolError(text) from error

    def value(self, *parts: bytes) -> T:
        """Return the value of encoded messages, merged; raises `ValueError` or `IndexError`."""
        places = self._places if len(parts) == 1 else None
        if places is not None and (quick := self._short_texts(parts[0], places)) is not None:
            return self._make(*quick, b"") if self._keeps_unknown else self._make(*quick)
        found, unknown = self.split(*parts)
        take = found.get
        values = [read(take(tag, ())) for tag, read in self._readers]
        return self._make(*values, unknown) if self._keeps_unknown else self._make(*values)

    def _short_texts(self, data: bytes, places: Mapping[int, int]) -> list[str] | None:
        """Return the fields of a message of short texts only; None for any other message."""
        values = [""] * len(places)
        at, end = 0, len(data)
        while at < end:
            place, size = places.get(data[at]), data[at + 1]
            at += 2 + size
            if place is None or size > 127 or at > end:
                return None
            values[place] = data[at - size : at].decode()
        return values

    def split(self, *parts: bytes) -> tuple[dict[int, list[Any]], bytes]:
        """Return tag → contents of the known fields, and the bytes of the unknown fields.

        An entry of a map with a field of another number or type is unknown as a whole, and is not
        in the map. The protobuf library (upb) does the same. Go's library leaves the fields out and
        takes the entry. A program that passes the bytes on leaves this choice to the reader.
        """
        found: dict[int, list[Any]] = {}
        unknown = bytearray()  # a sum of bytes would take quadratic time
        tags, blocks, maps = self._tags, self._blocks, self._maps
        for data in parts:
            at, end = 0, len(data)
            while at < end:
                start = at
                # Hot path: most fields are short. `next_field` would cost a call for each.
                if data[at] in blocks and data[at + 1] < 128:
                    tag, size = data[at], data[at + 1]
                    at += 2 + size
                    if at > end:
                        raise ValueError("the last field is cut off")
                    value: bytes | int | tuple[str, str] = data[at - size : at]
                else:
                    tag, value, at = next_field(data, at)
                if tag in maps:
                    value = _ENTRY.value(cast("bytes", value))
                if tag not in tags or (tag in maps and unknown_of(value)):
                    unknown += data[start:at]
                elif tag in found:
                    found[tag].append(value)
                else:
                    found[tag] = [value]
        return found, bytes(unknown)


def _last_text(found: Sequence[bytes]) -> str:
    if len(found) == 1:
        return found[0].decode()
    return [each.decode() for each in found][-1] if found else ""


def _texts(found: Sequence[bytes]) -> tuple[str, ...]:
    return tuple([each.decode() for each in found])


def _flag(found: Sequence[int]) -> bool:
    return bool(found) and found[-1] & 2**64 - 1 != 0


def _whole(bits: int) -> Callable[[Sequence[int]], int]:
    sign = 1 << bits - 1

    def read(found: Sequence[int]) -> int:
        return ((found[-1] & (sign << 1) - 1) ^ sign) - sign if found else 0

    return read


def _text_map(found: Sequence[tuple[str, str]]) -> dict[str, str]:
    return dict(sorted(dict(found).items())) if found else {}


_PLAIN: dict[str, tuple[Callable[[Any], Any], Callable[[int, Any], bytes]]] = {
    "text": (_last_text, text),
    "texts": (_texts, texts),
    "flag": (_flag, integer),
    "int32": (_whole(32), integer),
    "int64": (_whole(64), integer),
    "map": (_text_map, text_map),
}
"""Kind of a field → functions that read and write it."""


def _of_messages(
    kind: str, of: Message[Any]
) -> tuple[Callable[[Any], Any], Callable[[int, Any], bytes]]:
    def read_all(found: Sequence[bytes]) -> tuple[Any, ...]:
        return tuple(map(of.value, found))

    def write_all(number: int, values: Iterable[Any]) -> bytes:
        return b"".join([block(number, of.to_wire(each)) for each in values])

    def read(found: Sequence[bytes]) -> Any:
        return of.value(*found) if found or kind == "message" else None

    def write(number: int, value: Any) -> bytes:
        return b"" if value is None else block(number, of.to_wire(value))

    return (read_all, write_all) if kind == "messages" else (read, write)


# ---------------------------------------------------------------- unknown fields, field by field


@cache
def _kind_with_unknown(kind: type) -> type:
    return type(kind.__name__, (kind,), {"unknown": b""})


def with_unknown(value: Plain, unknown: bytes) -> Plain:
    """Return an equal `value` with the attribute `unknown`, if there are unknown fields.

    For small parts of messages that are tuples, texts or numbers. They have no place for unknown
    fields, which are rare: so normal values take no memory for them.
    """
    if not unknown:
        return value
    kind: Any = _kind_with_unknown(cast("Any", type(value)))
    plain = next(each for each in (str, int, tuple) if isinstance(value, each))
    made = cast("Any", plain).__new__(kind, value)
    made.unknown = unknown
    return cast("Plain", made)


_ENTRY: Message[tuple[str, str]] = Message(
    "map entry",
    lambda key, value, unknown: with_unknown((key, value), unknown),
    Field(1, "", "text"),
    Field(2, "", "text"),
    keeps_unknown=True,
)


def unknown_of(value: object) -> bytes:
    """Return the unknown fields of `value`, see `with_unknown`; empty if it has none."""
    found: bytes = getattr(value, "unknown", b"")
    return found


def next_field(data: bytes, at: int) -> tuple[int, bytes | int, int]:
    """Return tag and value of the field at `at`, and the offset of the next field.

    The tag is the field number times 8 plus the wire type. The value is the number of a varint, the
    bytes of a length-delimited field, else b"".
    """
    tag = data[at]
    if 8 <= tag < 128 and tag & 7 == _BLOCK and data[at + 1] < 128:  # most fields: short
        start = at + 2
        at = start + data[at + 1]
        if at > len(data):
            raise ValueError("the last field is cut off")
        return tag, data[start:at], at
    tag, at = _read_varint(data, at, _TAG_BYTES)
    if not 8 <= tag < 2**32:
        raise ValueError(f"{tag} is not a valid tag")
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
        raise ValueError(f"{kind} is not a valid wire type")
    if at > len(data):
        raise ValueError("the last field is cut off")
    return tag, value, at


def _skip_group(data: bytes, at: int, tag: int) -> int:
    """Return the offset after the group that began with `tag`.

    Groups are an old form of messages. The kubelet's APIs do not use them.
    """
    open_groups = [tag >> 3]
    while open_groups:
        tag, after = _read_varint(data, at, _TAG_BYTES)
        if tag & 7 == _GROUP:
            open_groups.append(tag >> 3)
        elif tag & 7 != _GROUP_END:
            after = next_field(data, at)[2]
        elif open_groups.pop() != tag >> 3:
            raise ValueError("the end of a group without its begin")
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
    raise ValueError(f"a varint of more than {most_bytes} bytes")
