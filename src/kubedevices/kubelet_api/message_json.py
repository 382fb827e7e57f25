"""The messages of `convert`, from bytes to JSON and back.

The JSON is protobuf's canonical JSON (https://protobuf.dev/programming-guides/json/). The bytes of
all unknown fields of a message are in the key `unknown`, as base64. So `to_bytes(kind,
to_json(kind, data))` has the same content as `data`.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from kubedevices.errors import ProtocolError
from kubedevices.kubelet_api.protobuf import Field, Message, block

Json: TypeAlias = dict[str, Any]

UNKNOWN = "unknown"


# ---------------------------------------------------------------- bytes to JSON


def to_json(kind: Message[Any], data: bytes) -> Json:
    """Return the message in `data` as JSON; raises `ProtocolError` if it cannot be decoded."""
    try:
        return _to_json(kind, data)
    except (ValueError, IndexError) as error:
        raise ProtocolError(f"{len(data)} bytes are not a {kind.name} message: {error}") from error


def _to_json(kind: Message[Any], *parts: bytes) -> Json:
    known, unknown = kind.split(*parts)
    found: Json = {}
    for field in kind.by_number:
        if field.tag in known:
            value = _value(field, known[field.tag])
            if value or field.of is not None:  # an empty message differs from an absent one
                found[field.json] = value
    if unknown:
        found[UNKNOWN] = b64encode(unknown).decode()
    return found


def _value(field: Field, contents: list[Any]) -> Any:
    if field.of is not None:
        if field.is_repeated:
            return [_to_json(field.of, each) for each in contents]
        return _to_json(field.of, *contents)
    value = field.read(contents)
    if field.kind == "texts":
        return list(value)
    return str(value) if field.kind == "int64" and value else value


# ---------------------------------------------------------------- JSON to bytes


def to_bytes(kind: Message[Any], given: Any) -> bytes:
    """Return the JSON object `given` as a message; raises `ValueError` that names the key.

    Keys that the message does not have are ignored: a later version may define them.
    """
    given = _object(given)
    parts: list[bytes] = []
    for field in kind.by_number:
        if (value := given.get(field.json)) is not None:
            try:
                parts.append(_written(field, value))
            except ValueError as error:
                raise ValueError(f"{field.json}: {error}") from error
    if UNKNOWN in given:
        try:
            parts.append(b64decode(_text(given[UNKNOWN]), validate=True))
            kind.split(parts[-1])
        except (binascii.Error, ValueError, IndexError):
            raise ValueError(f"{UNKNOWN}: not the base64 of valid protobuf fields") from None
    return b"".join(parts)


def _written(field: Field, value: Any) -> bytes:
    if field.of is None:
        return field.write(field.number, _CHECKED[field.kind](value))
    messages = _list(value) if field.is_repeated else [value]
    return b"".join([block(field.number, to_bytes(field.of, each)) for each in messages])


def _refuse(value: Any, wanted: str) -> NoReturn:
    raise ValueError(f"{value!r:.40} is not {wanted}")


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else _refuse(value, "an object")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else _refuse(value, "a list")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _refuse(value, "text")
    value.encode()  # half a surrogate pair raises UnicodeEncodeError, a ValueError
    return value


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(value, "true or false")


def _whole(bits: int) -> Callable[[Any], int]:
    def checked(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 20:
            _refuse(value, "a whole number")
        found = int(value)
        if not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
            raise ValueError(f"{found} has more than {bits} bits")
        return found

    return checked


_CHECKED: Mapping[str, Callable[[Any], Any]] = {
    "text": _text,
    "texts": lambda value: [_text(each) for each in _list(value)],
    "map": lambda value: {_text(key): _text(each) for key, each in _object(value).items()},
    "flag": _flag,
    "int32": _whole(32),
    "int64": _whole(64),
}
