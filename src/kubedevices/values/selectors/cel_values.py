"""The values of expressions: what Python does not have, equality, and order. Pure.

Rules of cel-go 0.27, `common/types`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kubedevices.errors import BadSelector


class Uint(int):
    """An unsigned integer of CEL."""


class Default(dict[str, Any]):
    """A map that has an empty map for each unknown key, as `device.attributes` has."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


class Optional:
    """An optional value; `items` has no or one value."""

    type_name = "optional_type"

    def __init__(self, *items: Any) -> None:
        self.items = items


class TypeValue:
    """A type as a value; types are equal if their names are."""

    type_name = "type"

    def __init__(self, name: str) -> None:
        self.value = name


class KubernetesValue:
    """A value of a type that only Kubernetes has, `value` decides about equality.

    The comparison with a value of another type is an error.
    """

    type_name = ""

    def __init__(self, value: Any) -> None:
        self.value = value


_NAMES = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    Default: "map",
    type(None): "null_type",
}


def fail(problem: str, kind: str = "evaluation") -> BadSelector:
    """Return the error of an evaluation."""
    return BadSelector(kind, problem)


def no_overload() -> BadSelector:
    """Return the error for values that a function does not take."""
    return fail("no such overload")


def makes(make: Callable[..., Any]) -> Callable[..., bool]:
    """Return the function that says whether another function makes a value of its arguments."""

    def answer(*args: Any) -> bool:
        try:
            make(*args)
        except BadSelector:
            return False
        return True

    return answer


def type_name(value: Any) -> str:
    """Return the name of a value's type in CEL."""
    return _NAMES.get(type(value)) or str(value.type_name)


def _family(value: Any) -> str:
    name = type_name(value)
    return "number" if name in ("int", "uint", "double") else name


def equal(first: Any, second: Any) -> bool:
    """Return whether values are equal; raises `BadSelector` as `KubernetesValue` says."""
    if first is None or second is None:
        return first is second
    if isinstance(first, Optional):
        pairs = (
            isinstance(second, Optional)
            and len(first.items) == len(second.items)
            and zip(first.items, second.items, strict=True)
        )
        return pairs is not False and all(equal(*each) for each in pairs)
    if isinstance(first, KubernetesValue) and type(first) is not type(second):
        raise no_overload()
    if _family(first) != _family(second):
        return False
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_not_different, first, second))
    if isinstance(first, Mapping):
        return len(first) == len(second) and all(
            key in second and _not_different(value, second[key]) for key, value in first.items()
        )
    return bool(getattr(first, "value", first) == getattr(second, "value", second))


def _not_different(first: Any, second: Any) -> bool:
    """Compare items of lists and maps: without a comparison no difference is seen."""
    try:
        return equal(first, second)
    except BadSelector:
        return True


def same(first: Any, second: Any) -> bool:
    """Return whether values are equal; values that cannot be compared are not."""
    try:
        return equal(first, second)
    except BadSelector:
        return False


def compare(first: Any, second: Any) -> int:
    """Return -1, 0 or 1; raises `BadSelector` for values that have no order."""
    family = _family(first)
    if family != _family(second) or not (
        family in ("bool", "number", "string", "bytes") or hasattr(first, "nanoseconds")
    ):
        raise no_overload()
    mine, other = getattr(first, "value", first), getattr(second, "value", second)
    if isinstance(mine, str):
        mine, other = mine.encode(), other.encode()
    return int(mine > other) - int(mine < other)
