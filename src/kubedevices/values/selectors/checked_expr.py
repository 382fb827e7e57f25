"""The tree of a checked expression, from the bytes of the official runtime.

The bytes are a `google.protobuf.Any` with a `cel.expr.CheckedExpr` (cel-spec, `checked.proto` and
`syntax.proto`).
"""

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Message = dict[int, list[Any]]
"""The values of a message by field number: int, or bytes."""

_CONSTANTS = {2: "bool", 3: "int", 4: "uint", 5: "double", 6: "string", 7: "bytes"}


class Uint(int):
    """An unsigned integer of CEL."""


@dataclass(frozen=True)
class CelNode:
    """An expression: `kind` is const, ident, select, call, list, map, struct or fold.

    `parts` are the children in the order of the message, `name` the identifier, field or function.
    """

    kind: str
    name: str = ""
    value: Any = None
    target: "CelNode | None" = None
    parts: tuple["CelNode", ...] = ()
    type: str = "dyn"
    is_test: bool = False
    names: tuple[str, ...] = ()
    has_optional: bool = False


def read(data: bytes) -> CelNode:
    """Return the tree of a serialized expression."""
    checked = _fields(_fields(data)[2][0])
    types = {_id(each): _type(_fields(_fields(each)[2][0])) for each in checked[3]}
    names = {
        _id(each): _text(_fields(_fields(each)[2][0]), 1)
        for each in checked[2]
        if 2 in _fields(each)
    }
    return _node(checked[4][0], types, names)


def _node(data: bytes, types: dict[int, str], names: dict[int, str]) -> CelNode:
    fields = _fields(data)
    own = fields[2][0] if fields[2] else 0
    kind = types.get(own, "dyn")

    def child(message: Message, number: int) -> CelNode:
        return _node(message[number][0], types, names)

    if names.get(own) and not fields[6]:
        return CelNode("ident", names[own], type=kind)
    if fields[3]:
        return CelNode("const", value=_constant(_fields(fields[3][0])), type=kind)
    if fields[4]:
        return CelNode("ident", _text(_fields(fields[4][0]), 1), type=kind)
    if fields[5]:
        found = _fields(fields[5][0])
        is_test = bool(found[3])
        return CelNode(
            "select", _text(found, 2), target=child(found, 1), is_test=is_test, type=kind
        )
    if fields[6]:
        found = _fields(fields[6][0])
        target = child(found, 1) if found[1] else None
        parts = tuple(_node(each, types, names) for each in found[3])
        return CelNode("call", _text(found, 2), target=target, parts=parts, type=kind)
    if fields[7]:
        found = _fields(fields[7][0])
        parts = tuple(_node(each, types, names) for each in found[1])
        return CelNode("list", parts=parts, has_optional=bool(found[2]), type=kind)
    if fields[8]:
        found = _fields(fields[8][0])
        entries = [_fields(each) for each in found[2]]
        if found[1] or any(each[5] for each in entries):
            return CelNode("struct", _text(found, 1))
        parts = tuple(child(each, number) for each in entries for number in (3, 4))
        return CelNode("map", parts=parts, type=kind)
    found = _fields(fields[9][0])
    parts = tuple(child(found, number) for number in (2, 4, 5, 6, 7))
    return CelNode("fold", names=tuple(_text(found, n) for n in (1, 8, 3)), parts=parts, type=kind)


def _constant(found: Message) -> Any:
    for number, kind in _CONSTANTS.items():
        if found[number]:
            value = found[number][0]
            if kind == "bool":
                return bool(value)
            if kind == "int":
                return value - 2**64 if value >= 2**63 else value
            if kind == "uint":
                return Uint(value)
            if kind == "double":
                return struct.unpack("<d", value)[0]
            return value.decode() if kind == "string" else value
    return None


def _type(found: Message) -> str:
    """Return a type as text; empty for any and dyn, which fit to each other type."""
    if found[3]:
        return ("", "bool", "int", "uint", "double", "string", "bytes")[found[3][0]]
    if found[6]:
        return f"list({_type(_fields(_fields(found[6][0])[1][0]))})"
    if found[7]:
        inner = _fields(found[7][0])
        return f"map({_type(_fields(inner[1][0]))},{_type(_fields(inner[2][0]))})"
    if found[14]:
        return _text(_fields(found[14][0]), 1)
    return {1: "", 2: "timestamp", 3: "duration"}.get(found[5][0], "") if found[5] else ""


def _id(entry: bytes) -> int:
    found = _fields(entry)[1]
    return int(found[0]) if found else 0


def _text(found: Message, number: int) -> str:
    return found[number][0].decode() if found[number] else ""


def _fields(data: bytes) -> Message:
    found: Message = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        value: int | bytes
        if wire == 0:
            value, at = _varint(data, at)
        else:
            size, at = (8, at) if wire == 1 else (4, at) if wire == 5 else _varint(data, at)
            value, at = data[at : at + size], at + size
        found[tag >> 3].append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
