"""Messages of the device plugin API, from bytes to JSON and back.

The JSON is the canonical JSON of protobuf (https://protobuf.dev/programming-guides/json/). What the
API does not define is kept: the bytes of all unknown fields of a message, as base64 in the key
`unknown`. So `to_bytes(kind, to_json(kind, data))` says all that `data` says.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, cast

from kubedevices.errors import ProtocolError
from kubedevices.wire.protobuf import Fields, block, integer, next_field, text, text_map

Json: TypeAlias = dict[str, Any]
Kind: TypeAlias = "Literal['text', 'flag', 'int32', 'int64', 'map'] | Message"

UNKNOWN = "unknown"
_BLOCK = 2


class Field(NamedTuple):
    """A field of a message: its name in JSON, and of what kind it is."""

    name: str
    kind: Kind
    is_repeated: bool = False

    @property
    def is_block(self) -> bool:
        """Whether its values are bytes on the wire, and not numbers."""
        return self.kind in ("text", "map") or isinstance(self.kind, Message)


class Message(NamedTuple):
    """A message: its fields by number."""

    fields: Mapping[int, Field]


# ---------------------------------------------------------------- the messages

_TOPOLOGY = Message({1: Field("nodes", Message({1: Field("ID", "int64")}), is_repeated=True)})
DEVICE = Message(
    {1: Field("ID", "text"), 2: Field("health", "text"), 3: Field("topology", _TOPOLOGY)}
)
LIST = Message({1: Field("devices", DEVICE, is_repeated=True)})
OPTIONS = Message(
    {1: Field("preStartRequired", "flag"), 2: Field("getPreferredAllocationAvailable", "flag")}
)
_DEVICES_IDS = Message({1: Field("devicesIds", "text", is_repeated=True)})
ALLOCATE_REQUEST = Message({1: Field("containerRequests", _DEVICES_IDS, is_repeated=True)})
_MOUNT = Message(
    {1: Field("containerPath", "text"), 2: Field("hostPath", "text"), 3: Field("readOnly", "flag")}
)
_SPEC = Message(
    {
        1: Field("containerPath", "text"),
        2: Field("hostPath", "text"),
        3: Field("permissions", "text"),
    }
)
_CONTAINER_RESPONSE = Message(
    {
        1: Field("envs", "map"),
        2: Field("mounts", _MOUNT, is_repeated=True),
        3: Field("devices", _SPEC, is_repeated=True),
        4: Field("annotations", "map"),
        5: Field("cdiDevices", Message({1: Field("name", "text")}), is_repeated=True),
    }
)
ALLOCATE_RESPONSE = Message({1: Field("containerResponses", _CONTAINER_RESPONSE, is_repeated=True)})
_PREFERRED_REQUEST = Message(
    {
        1: Field("availableDeviceIDs", "text", is_repeated=True),
        2: Field("mustIncludeDeviceIDs", "text", is_repeated=True),
        3: Field("allocationSize", "int32"),
    }
)
PREFERRED_REQUEST = Message({1: Field("containerRequests", _PREFERRED_REQUEST, is_repeated=True)})
_DEVICE_IDS = Message({1: Field("deviceIDs", "text", is_repeated=True)})
PREFERRED_RESPONSE = Message({1: Field("containerResponses", _DEVICE_IDS, is_repeated=True)})
PRE_START_REQUEST = _DEVICES_IDS
PRE_START_RESPONSE = Message({})


# ---------------------------------------------------------------- bytes to JSON


def to_json(kind: Message, data: bytes) -> Json:
    """Return the message in `data`; raises `ProtocolError` for bytes that are no such message."""
    try:
        return _to_json(kind, data)
    except (ValueError, IndexError) as error:
        raise ProtocolError(f"{len(data)} bytes are no such message: {error}") from error


def _to_json(kind: Message, data: bytes) -> Json:
    known: dict[int, list[bytes]] = {}
    unknown = b""
    at = 0
    while at < len(data):
        tag, _, after = next_field(data, at)
        field = kind.fields.get(tag >> 3)
        if field is not None and tag & 7 == (_BLOCK if field.is_block else 0):
            known.setdefault(tag >> 3, []).append(data[at:after])
        else:
            unknown += data[at:after]
        at = after
    found: Json = {}
    for number, field in kind.fields.items():
        if number in known:
            value = _value(number, field, known[number])
            if value or isinstance(field.kind, Message):  # a message may be there and be empty
                found[field.name] = value
    if unknown:
        found[UNKNOWN] = b64encode(unknown).decode()
    return found


def _value(number: int, field: Field, parts: list[bytes]) -> Any:
    kind = field.kind
    if isinstance(kind, Message):
        contents = cast("list[bytes]", [next_field(part, 0)[1] for part in parts])
        if field.is_repeated:
            return [_to_json(kind, each) for each in contents]
        return _to_json(kind, b"".join(contents))
    fields = Fields(b"".join(parts))
    if kind == "text":
        return list(fields.texts(number)) if field.is_repeated else fields.text(number)
    if kind == "map":
        return fields.text_map(number)
    if kind == "flag":
        return fields.flag(number)
    if kind == "int32":
        return fields.int32(number)
    return str(fields.int64(number)) if fields.int64(number) else ""


# ---------------------------------------------------------------- JSON to bytes


def to_bytes(kind: Message, given: Any) -> bytes:
    """Return the message that `given` is; raises `ValueError` that names the key.

    Keys that no message has are left out: a later version may have more of them.
    """
    if not isinstance(given, dict):
        _refuse(given, "an object")
    parts: list[bytes] = []
    for number, field in kind.fields.items():
        if (value := given.get(field.name)) is not None:
            try:
                parts += _written(number, field, value)
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from error
    if UNKNOWN in given:
        try:
            parts.append(b64decode(_text(given[UNKNOWN]), validate=True))
            Fields(parts[-1])
        except (binascii.Error, ValueError, IndexError):
            raise ValueError(f"{UNKNOWN}: these are no fields of a message as base64") from None
    return b"".join(parts)


def _written(number: int, field: Field, value: Any) -> list[bytes]:
    if not field.is_repeated:
        return [_one(number, field.kind, value)]
    if not isinstance(value, list):
        _refuse(value, "a list")
    if field.kind == "text":
        return [block(number, _text(each).encode()) for each in value]
    return [_one(number, field.kind, each) for each in value]


def _one(number: int, kind: Kind, value: Any) -> bytes:
    if isinstance(kind, Message):
        return block(number, to_bytes(kind, value))
    return _SCALARS[kind](number, value)


def _refuse(value: Any, wanted: str) -> NoReturn:
    raise ValueError(f"{value!r:.40} is not {wanted}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _refuse(value, "text")
    value.encode()  # half a character raises UnicodeEncodeError, a ValueError
    return value


def _map(number: int, value: Any) -> bytes:
    if not isinstance(value, dict):
        _refuse(value, "an object")
    return text_map(number, {_text(key): _text(each) for key, each in value.items()})


def _flag(number: int, value: Any) -> bytes:
    if not isinstance(value, bool):
        _refuse(value, "true or false")
    return integer(number, value)


def _whole(bits: int) -> Callable[[int, Any], bytes]:
    def written(number: int, value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 20:
            _refuse(value, "a whole number")
        found = int(value)
        if not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
            raise ValueError(f"{found} has more than {bits} bits")
        return integer(number, found)

    return written


_SCALARS: Mapping[str, Callable[[int, Any], bytes]] = {
    "text": lambda number, value: text(number, _text(value)),
    "flag": _flag,
    "map": _map,
    "int32": _whole(32),
    "int64": _whole(64),
}
