"""Bodies of requests in the protobuf of Kubernetes, as the JSON of the same object. Pure.

Clients of client-go 0.35 and later write the kinds of Kubernetes in protobuf, and take answers in
JSON. The form of a body is documented as application/vnd.kubernetes.protobuf in
https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding: four bytes, then a
`runtime.Unknown` with the kind and the bytes of the object.
"""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from kubedevices.kubelet_api.protobuf import next_field
from kubedevices.testing.api_server.protobuf_table import MESSAGES

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"


class _Field(NamedTuple):
    name: str
    type: str
    is_list: bool
    is_map: bool
    keeps_empty: bool


@cache
def _messages() -> dict[str, dict[int, _Field]]:
    """Return message → number → field; see `protobuf_table`."""
    found: dict[str, dict[int, _Field]] = {}
    fields: dict[int, _Field] = {}
    for line in MESSAGES.strip().splitlines():
        if not line.startswith(" "):
            fields = found.setdefault(line, {})
            continue
        for text in line.strip(" ,").split(", "):
            number, name, kind = text.split()
            plain = kind.rstrip("?!")
            fields[int(number)] = _Field(
                name, plain.strip("[]{}"), plain[0] == "[", plain[0] == "{", plain != kind
            )
    return found


def read_protobuf(body: bytes) -> dict[str, Any] | None:
    """Return the object in a body; None if it is no such body, or of a kind not in the table."""
    try:
        if not body.startswith(_MAGIC):
            return None
        envelope = dict(_fields(body[len(_MAGIC) :]))
        about = dict(_fields(envelope[1]))
        kind = about[2].decode()
        if kind not in _messages():
            return None
        content = _object(kind, envelope.get(2, b""))
        return {"apiVersion": about[1].decode(), "kind": kind, **content}
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        return None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, value, at = next_field(data, at)
        yield tag >> 3, value


def _object(message: str, data: bytes) -> dict[str, Any]:
    known = _messages()[message]
    found: dict[str, Any] = {}
    for number, content in _fields(data):
        if (field := known.get(number)) is None:
            continue
        if field.name == ".":
            found |= _value(field.type, content)
        elif field.is_map:
            entry = dict(_fields(content))
            key = entry.get(1, b"").decode()
            found.setdefault(field.name, {})[key] = _value(field.type, entry.get(2, b""))
        elif field.is_list:
            found.setdefault(field.name, []).append(_value(field.type, content))
        else:
            value = _value(field.type, content)
            if value is not None and (value or field.keeps_empty):
                found[field.name] = value
    return found


def _value(kind: str, content: Any) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind](content)
    return _object(kind, content)


def _whole(bits: int) -> int:
    return bits - 2**64 if bits >> 63 else bits


def _quantity(content: bytes) -> str:
    return str(dict(_fields(content)).get(1, b"").decode())


def _extension(content: bytes) -> Any:
    raw = dict(_fields(content)).get(1, b"")
    return json.loads(raw) if raw else None


def _time(content: bytes, unit: str) -> str | None:
    """Return a time of the API; None for Go's zero time, which is an empty message."""
    parts = dict(_fields(content))
    if not parts:
        return None
    moment = datetime.fromtimestamp(_whole(parts.get(1, 0)), UTC)
    moment = moment.replace(microsecond=parts.get(2, 0) // 1000)
    return moment.isoformat(timespec=unit).replace("+00:00", "Z")


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "text": bytes.decode,
    "int": _whole,
    "flag": bool,
    "base64": lambda content: base64.b64encode(content).decode(),
    "Quantity": _quantity,
    "RawExtension": _extension,
    "Time": lambda content: _time(content, "seconds"),
    "MicroTime": lambda content: _time(content, "microseconds"),
}
