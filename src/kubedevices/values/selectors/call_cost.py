"""The most that a call of a function may cost, by the sizes of its arguments. Pure.

Rules and numbers: cel-go 0.27, `checker/cost.go`; k8s.io/apiserver 1.36, `pkg/cel/library/cost.go`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kubedevices.values.selectors.cel_types import CelType, Overload

MOST = 2**64 - 1

_TRAVERSAL, _REGEX = 0.1, 0.25
"""The cost of a character of a text, and of a regular expression."""

_ADDRESS = 16
"""Bytes of the longest IP address."""

_LONGEST_FORMAT, _LONGEST_FORMAT_REGEX = 64, 128
"""Characters of the name of a format, and of its regular expression, as Kubernetes assumes."""

_TEXTS = ("string", "bytes")


class Size(NamedTuple):
    """The fewest and most characters, bytes, items or entries of a value."""

    least: int
    most: int

    def __or__(self, other: "Size") -> "Size":
        return Size(min(self.least, other.least), max(self.most, other.most))

    def plus(self, other: "Size") -> "Size":
        """Return the sum."""
        return Size(capped(self.least + other.least), capped(self.most + other.most))

    def times(self, other: "Size") -> "Size":
        """Return the product."""
        return Size(capped(self.least * other.least), capped(self.most * other.most))


UNKNOWN = Size(0, MOST)


class Operand(NamedTuple):
    """A receiver or argument: its type, its size, and the size of its items if it is a list."""

    type: CelType
    size: Size
    items: Size
    constant: Any


Costs = tuple[int, Size | None]
"""The cost of a call without its arguments, and the size of its result if it is known."""


def capped(number: int) -> int:
    """Return a number, or the greatest number of 64 bits."""
    return min(number, MOST)


def scaled(number: int, factor: float) -> int:
    """Return a multiple, rounded up."""
    return capped(math.ceil(float(number) * factor))


def call_cost(name: str, overload: Overload | None, values: Sequence[Operand]) -> Costs:
    """Return the cost of a call, and the size of its result."""
    found = _FUNCTIONS.get(name)
    made = found(overload, values) if found and overload else None
    return made or (1, None)


def _both_texts(overload: Overload, values: Sequence[Operand]) -> Costs | None:
    """Compare texts."""
    if overload.args[0].name not in _TEXTS:
        return None
    return _differs(overload, values)


def _differs(_overload: Overload, values: Sequence[Operand]) -> Costs:
    first, second = values
    return scaled(min(first.size.most, second.size.most), _TRAVERSAL), None


def _equals(overload: Overload, values: Sequence[Operand]) -> Costs:
    first, second = values
    name = first.type.name
    if first.type == second.type:
        if name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"):
            return 1, None
        if name == "kubernetes.NamedFormat":
            return scaled(_LONGEST_FORMAT, _TRAVERSAL), None
        if name == "kubernetes.URL":
            most = 1 if second.size == UNKNOWN else second.size.most
            return scaled(most, _TRAVERSAL), None
    return _differs(overload, values)


def _search(_overload: Overload, values: Sequence[Operand]) -> Costs:
    """Go through a list or a text once."""
    held = values[0]
    if not held.type.params:
        return scaled(held.size.most, _TRAVERSAL), None
    each = 1
    if held.type.params[0].name in _TEXTS:
        each += scaled(held.items.most, _TRAVERSAL)
    return capped(held.size.most * each), None


def _read(_overload: Overload, values: Sequence[Operand]) -> Costs:
    return scaled(values[0].size.most, _TRAVERSAL), None


def _replace(_overload: Overload, values: Sequence[Operand]) -> Costs:
    held, old, new = (each.size for each in values[:3])
    cost = scaled(held.most, 2 * _TRAVERSAL)
    if old.least == 0:
        most = capped(held.most + 1) * new.most + held.most
    elif new.most <= old.least:
        most = held.most
    else:
        most = scaled(held.most, 1 / old.least) * new.most
    if old.most == 0:
        least = capped(held.least + 1) * new.least + held.least
    elif old.most <= new.least:
        least = held.least
    else:
        least = math.ceil(held.least / old.most) * new.least
    return cost, Size(capped(least), capped(most))


def _split(_overload: Overload, values: Sequence[Operand]) -> Costs:
    most = values[0].size.most
    if len(values) > 2 and isinstance(values[2].constant, int):
        most = values[2].constant % 2**64
    return scaled(values[0].size.most, 2 * _TRAVERSAL), Size(0, most)


def _join(_overload: Overload, values: Sequence[Operand]) -> Costs:
    held = values[0]
    size = held.size.times(held.items) if held.type.params else Size(0, 0)
    if len(values) > 1:
        gaps = Size(max(held.size.least - 1, 0), max(held.size.most - 1, 0))
        size = size.plus(values[1].size.times(gaps))
    return scaled(size.most, _TRAVERSAL), size


def _pattern(values: Sequence[Operand]) -> int:
    text = scaled(capped(values[0].size.most + 1), _TRAVERSAL)
    return capped(text * scaled(values[1].size.most, _REGEX))


def _contains(_overload: Overload, values: Sequence[Operand]) -> Costs:
    first, second = (scaled(each.size.most, _TRAVERSAL) for each in values)
    return capped(first * second), None


def _added(overload: Overload, values: Sequence[Operand]) -> Costs | None:
    kind, size = overload.args[0].name, values[0].size.plus(values[1].size)
    if kind == "list":
        return 1, size
    return (scaled(size.most, _TRAVERSAL), size) if kind in _TEXTS else None


def _contains_address(overload: Overload, values: Sequence[Operand]) -> Costs:
    cost = scaled(2 * _ADDRESS, _TRAVERSAL)
    if overload.args[1].name == "string":
        cost += scaled(values[1].size.most, _TRAVERSAL)
    return capped(cost), None


def _contains_network(overload: Overload, values: Sequence[Operand]) -> Costs:
    cost, _ = _contains_address(overload, values)
    return capped(cost + scaled(_ADDRESS, _TRAVERSAL) + 1), None


def _validate(_overload: Overload, values: Sequence[Operand]) -> Costs:
    read = scaled(values[1].size.most, _TRAVERSAL)
    return scaled(read, _LONGEST_FORMAT_REGEX * _REGEX), None


def _to_bytes(overload: Overload, values: Sequence[Operand]) -> Costs | None:
    size = values[0].size
    if overload.args[0].name != "string":
        return None
    return scaled(size.most, _TRAVERSAL), Size(size.least, capped(size.most * 4))


def _to_string(overload: Overload, values: Sequence[Operand]) -> Costs | None:
    size = values[0].size
    if overload.args[0].name != "bytes":
        return None
    return scaled(size.most, _TRAVERSAL), Size(size.least // 4, size.most)


def _quote(_overload: Overload, values: Sequence[Operand]) -> Costs:
    size = values[0].size
    most = capped(size.most * 2 + 2)
    return scaled(size.most, _TRAVERSAL), Size(size.least + 2, most)


def _number(operand: Operand, default: int) -> int:
    value = operand.constant
    return max(value, 0) if isinstance(value, int) else default


def _made_list(size: Size, factor: float = 1) -> Costs:
    return capped(scaled(size.most, factor) + 11), size


def _slice(_overload: Overload, values: Sequence[Operand]) -> Costs:
    length = (_number(values[2], values[0].size.most) - _number(values[1], 0)) % 2**64
    return _made_list(Size(length, length))


def _range(_overload: Overload, values: Sequence[Operand]) -> Costs:
    length = _number(values[0], MOST)
    return _made_list(Size(length, length))


def _with_each_other(overload: Overload, values: Sequence[Operand]) -> Costs:
    """Compare each item with each other, as for a sort."""
    keys = overload.args[-1].params[0].name
    factor = 2 + _TRAVERSAL if keys in _TEXTS else 2
    return _made_list(values[-1].size.times(values[-1].size), factor)


def _pairs(values: Sequence[Operand]) -> int:
    return values[0].size.times(values[1].size).most


_FUNCTIONS: dict[str, Callable[[Overload, Sequence[Operand]], Costs | None]] = {
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _both_texts),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _search),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity"), _read),
    **dict.fromkeys(("semver", "isSemver", "format"), _read),
    **dict.fromkeys(
        ("url", "lowerAscii", "upperAscii", "substring", "trim"),
        lambda _, v: (scaled(v[0].size.most, _TRAVERSAL), v[0].size),
    ),
    **dict.fromkeys(("find", "findAll"), lambda _, v: (_pattern(v), Size(0, v[0].size.most))),
    **dict.fromkeys(
        ("startsWith", "endsWith"), lambda _, v: (scaled(v[1].size.most, _TRAVERSAL), None)
    ),
    **dict.fromkeys(("_&&_", "_||_"), lambda *_: (0, None)),
    **dict.fromkeys(("sort", "@sortByAssociatedKeys", "distinct"), _with_each_other),
    "sets.contains": lambda _, v: (capped(_pairs(v) + 1), None),
    "sets.intersects": lambda _, v: (capped(_pairs(v) + 1), None),
    "sets.equivalent": lambda _, v: (capped(2 * _pairs(v) + 1), None),
    "slice": _slice,
    "reverse": lambda _, v: _made_list(v[0].size),
    "flatten": lambda _, v: _made_list(v[0].size, _number(v[1], MOST) if len(v) > 1 else 1),
    "lists.range": _range,
    "_==_": _equals,
    "_!=_": _differs,
    "_+_": _added,
    "@in": lambda overload, v: (v[1].size.most, None) if overload.args[1].name == "list" else None,
    "matches": lambda overload, v: (_pattern(v), None) if overload.is_member else None,
    "contains": _contains,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "ip": lambda overload, v: None if overload.is_member else _read(overload, v),
    "ip.isCanonical": lambda _, v: (scaled(v[0].size.most, 2 * _TRAVERSAL), None),
    "containsIP": _contains_address,
    "containsCIDR": _contains_network,
    "validate": _validate,
    "bytes": _to_bytes,
    "string": _to_string,
    "strings.quote": _quote,
}
