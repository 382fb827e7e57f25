"""The tree of an expression, from the bytes of the official runtime's parser. Pure.

The bytes are a `google.protobuf.Any` with a `cel.expr.ParsedExpr` (cel-spec, `syntax.proto`).
Macros are already expanded: `has` is a select with `is_test`, and `all`, `map`, `cel.bind` and the
others are a `fold`.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kubedevices.values.selectors.cel_types import DYN, CelType, Overload
from kubedevices.values.selectors.cel_values import Uint

Message = dict[int, list[Any]]
"""The values of a message by field number: int, or bytes."""

_CONSTANTS = {1: "null", 2: "bool", 3: "int", 4: "uint", 5: "double", 6: "string", 7: "bytes"}


@dataclass(eq=False, slots=True)
class CelNode:
    """An expression: `kind` is const, ident, select, call, list, map, struct or fold.

    `parts` are the children in the order of the message; those of a fold are its range, the start
    of its result, its condition, step and result. `name` is the identifier, field or function,
    `names` are the variables of a fold: item or key, second variable, result. `optional` has the
    numbers of items or entries after a `?`. The checker sets `type` and `overloads`.
    """

    kind: str
    name: str = ""
    value: Any = None
    target: "CelNode | None" = None
    parts: tuple["CelNode", ...] = ()
    is_test: bool = False
    names: tuple[str, ...] = ()
    optional: frozenset[int] = frozenset()
    type: CelType = DYN
    overloads: list[Overload] = field(default_factory=list)
    taken: set[tuple[Any, ...]] = field(default_factory=set)
    """Types of values that an evaluation found to fit to an overload."""

    def below(self) -> tuple["CelNode", ...]:
        """Return the target and the parts."""
        return (*((self.target,) if self.target else ()), *self.parts)

    def nodes(self) -> Iterator["CelNode"]:
        """Yield all nodes, the children first."""
        for each in self.below():
            yield from each.nodes()
        yield self

    def qualified_name(self) -> str:
        """Return the name of an identifier with fields, such as `a.b.c`; "" for all others."""
        if self.kind == "ident":
            return self.name
        if self.kind == "select" and not self.is_test and self.target:
            before = self.target.qualified_name()
            return f"{before}.{self.name}" if before else ""
        return ""


def read(data: bytes) -> CelNode:
    """Return the tree of a serialized expression."""
    return _node(_fields(_fields(data)[2][0])[2][0])


def _node(data: bytes) -> CelNode:
    fields = _fields(data)
    if fields[3]:
        return CelNode("const", value=_constant(_fields(fields[3][0])))
    if fields[4]:
        return CelNode("ident", _text(_fields(fields[4][0]), 1))
    if fields[5]:
        found = _fields(fields[5][0])
        target = _node(found[1][0])
        return CelNode("select", _text(found, 2), target=target, is_test=bool(found[3]))
    if fields[6]:
        found = _fields(fields[6][0])
        receiver, parts = _node(found[1][0]) if found[1] else None, _nodes(found[3])
        made = CelNode("call", _text(found, 2), target=receiver, parts=parts)
        return _exists_one(made) if made.name == "exists_one" and len(parts) == 3 else made
    if fields[7]:
        found = _fields(fields[7][0])
        return CelNode("list", parts=_nodes(found[1]), optional=_numbers(found[2]))
    if fields[8]:
        return _map(_fields(fields[8][0]))
    found = _fields(fields[9][0])
    parts = _nodes([found[number][0] for number in (2, 4, 5, 6, 7)])
    return CelNode("fold", names=tuple(_text(found, n) for n in (1, 8, 3)), parts=parts)


def _exists_one(call: CelNode) -> CelNode:
    """Expand `exists_one` with two variables, which the parser knows only as `existsOne`."""
    key, value, condition = call.parts
    if call.target is None or {key.kind, value.kind} != {"ident"}:
        return call

    def total() -> CelNode:
        return CelNode("ident", "@result")

    def one() -> CelNode:
        return CelNode("const", value=1)

    more = CelNode("call", "_+_", parts=(total(), one()))
    step = CelNode("call", "_?_:_", parts=(condition, more, total()))
    result = CelNode("call", "_==_", parts=(total(), one()))
    always, start = CelNode("const", value=True), CelNode("const", value=0)
    parts = (call.target, start, always, step, result)
    return CelNode("fold", names=(key.name, value.name, "@result"), parts=parts)


def _nodes(found: list[bytes]) -> tuple[CelNode, ...]:
    return tuple(map(_node, found))


def _map(found: Message) -> CelNode:
    if found[1]:
        return CelNode("struct", _text(found, 1))
    entries = [_fields(each) for each in found[2]]
    parts = _nodes([each[number][0] for each in entries for number in (3, 4)])
    optional = frozenset(i for i, each in enumerate(entries) if each[5])
    return CelNode("map", parts=parts, optional=optional)


def _numbers(found: list[Any]) -> frozenset[int]:
    """Return the integers of a repeated field, packed or not."""
    numbers = []
    for each in found:
        at = 0
        while isinstance(each, bytes) and at < len(each):
            number, at = _varint(each, at)
            numbers.append(number)
        if isinstance(each, int):
            numbers.append(each)
    return frozenset(numbers)


def _constant(found: Message) -> Any:
    number, value = next((n, found[n][0]) for n in _CONSTANTS if found[n])
    kind = _CONSTANTS[number]
    if kind == "null":
        return None
    if kind == "bool":
        return bool(value)
    if kind == "int":
        return value - 2**64 if value >= 2**63 else value
    if kind == "uint":
        return Uint(value)
    if kind == "double":
        return struct.unpack("<d", value)[0]
    return value.decode() if kind == "string" else value


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
