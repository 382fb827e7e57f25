"""The functions of lists, sets, maps and optional values. Pure.

Sources: cel-go 0.27, `ext/lists.go`, `ext/sets.go` and `cel/library.go`; k8s.io/apiserver 1.36,
`pkg/cel/library/lists.go`.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from kubedevices.values.selectors.arithmetic import binary
from kubedevices.values.selectors.cel_types import DURATION
from kubedevices.values.selectors.cel_values import (
    Optional,
    Uint,
    compare,
    fail,
    no_overload,
    same,
)
from kubedevices.values.selectors.times import Duration

_LONGEST_RANGE = 10_000_000


def _best(name: str, sign: int) -> Callable[[list[Any]], Any]:
    def answer(items: list[Any]) -> Any:
        if not items:
            raise fail(f"{name} called on empty list")
        best = items[0]
        for each in items[1:]:
            if compare(each, best) == sign:
                best = each
        return best

    return answer


def _sorted(items: list[Any], keys: list[Any]) -> list[Any]:
    by_key = functools.cmp_to_key(compare)
    order = sorted(range(len(items)), key=lambda place: by_key(keys[place]))
    return [items[place] for place in order]


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for each in items:
        if not any(same(each, other) for other in found):
            found.append(each)
    return found


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise fail("level must be non-negative")
    found: list[Any] = []
    for each in items:
        found += _flatten(each, depth - 1) if depth and isinstance(each, list) else [each]
    return found


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise fail(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _range(length: int) -> list[int]:
    if length > _LONGEST_RANGE:
        raise fail("a list of this length is not evaluated here", "unsupported")
    return list(range(length))


def index_of(items: list[Any], item: Any) -> int:
    """Return the place of the first equal item, or -1."""
    return next((i for i, each in enumerate(items) if same(each, item)), -1)


def last_index_of(items: list[Any], item: Any) -> int:
    """Return the place of the last equal item, or -1."""
    return next((i for i in reversed(range(len(items))) if same(items[i], item)), -1)


def _contains(items: list[Any], others: list[Any]) -> bool:
    return all(index_of(items, each) >= 0 for each in others)


def _unwrap(items: list[Any]) -> list[Any]:
    if not all(isinstance(each, Optional) for each in items):
        raise no_overload()
    return [item for each in items for item in each.items]


def _inserted(held: Mapping[Any, Any], *entry: Any) -> dict[Any, Any]:
    added = entry[0] if len(entry) == 1 else dict([entry])
    for key in added:
        if key in held:
            raise fail(f"insert failed: key {key!r} already exists")
    return {**held, **added}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isSorted": lambda items: all(compare(*pair) <= 0 for pair in itertools.pairwise(items)),
    "min": _best("min", -1),
    "max": _best("max", 1),
    "sort": lambda items: _sorted(items, items),
    "@sortByAssociatedKeys": _sorted,
    "distinct": _distinct,
    "flatten": _flatten,
    "reverse": lambda items: items[::-1],
    "slice": _slice,
    "first": lambda items: Optional(*items[:1]),
    "last": lambda items: Optional(*items[-1:]),
    "sets.contains": _contains,
    "sets.intersects": lambda a, b: any(index_of(a, each) >= 0 for each in b),
    "sets.equivalent": lambda a, b: _contains(a, b) and _contains(b, a),
    "optional.unwrap": _unwrap,
    "unwrapOpt": _unwrap,
    "lists.range": _range,
    "size": len,
    "cel.@mapInsert": _inserted,
}
"""The functions by name. A receiver is the first argument. For `sum` see `total`."""


_ZEROS = {"double": 0.0, "int": 0, "uint": Uint(0), DURATION: Duration(0)}


def total(items: list[Any], kind: str) -> Any:
    """Return the sum of a list with items of the type `kind`."""
    if kind not in _ZEROS:
        raise fail("the sum of items of unknown type is not evaluated here", "unsupported")
    return functools.reduce(lambda before, each: binary("_+_", before, each), items, _ZEROS[kind])
