"""The value of a checked expression for one device, with the errors and the cost of cel-go.

The cost counts names, selections, calls, and lengths of strings and lists as cel-go does; presence
tests and folded constants may differ by a few units of the 1,000,000 that a scheduler allows.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from kubedevices.errors import BadSelector
from kubedevices.values.selectors.checked_expr import CelNode, Uint
from kubedevices.values.selectors.environment import call_standard
from kubedevices.values.selectors.kubernetes import FUNCTIONS, Quantity, Semver

COST_LIMIT = 1_000_000
_ORDER = {"_<_": (-1,), "_<=_": (-1, 0), "_>_": (1,), "_>=_": (0, 1)}
_LISTS = ("sum", "min", "max", "isSorted")
_OPTIONALS = ("hasValue", "value", "or", "orValue", "optional.of", "optional.none")
_TYPES = ("timestamp", "duration", "type")


class Default(dict[str, Any]):
    """A map that has an empty map for each unknown key, as `device.attributes` has."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


class Optional:
    """An optional value; `items` has no or one value."""

    type_name = "optional_type"

    def __init__(self, *items: Any) -> None:
        self.items = items


def fail(problem: str, kind: str = "evaluation") -> BadSelector:
    """Return the error of an evaluation."""
    return BadSelector(kind, problem)


class Evaluation:
    """One evaluation: the variables by name, and the cost so far."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables, self.cost = variables, 0

    def value(self, node: CelNode) -> Any:
        """Return the value of a node; raises `BadSelector`."""
        return getattr(self, f"_{node.kind}")(node)

    def _spend(self, cost: float) -> None:
        self.cost += math.ceil(cost)
        if self.cost > COST_LIMIT:
            raise fail("operation cancelled: actual cost limit exceeded", "cost")

    def _const(self, node: CelNode) -> Any:
        return node.value

    def _ident(self, node: CelNode) -> Any:
        self._spend(1 + node.name.count("."))
        if node.name not in self.variables:
            raise fail(f"{node.name} is not evaluated here", "unsupported")
        found = self.variables[node.name]
        if isinstance(found, BadSelector):
            raise found
        return found

    def _select(self, node: CelNode) -> Any:
        assert node.target is not None
        target = self.value(node.target)
        if isinstance(target, Optional):
            found = Optional(*(each[node.name] for each in target.items if node.name in each))
            return bool(found.items) if node.is_test else found
        if not isinstance(target, Mapping):
            raise fail("no such overload")
        if node.is_test:
            return node.name in target
        self._spend(1)
        return _get(target, node.name)

    def _list(self, node: CelNode) -> Any:
        if node.has_optional:
            raise fail("an optional item of a list is not evaluated here", "unsupported")
        if any(each.kind != "const" for each in node.parts):
            self._spend(10)
        return [self.value(each) for each in node.parts]

    def _map(self, node: CelNode) -> Any:
        self._spend(30)
        values = [self.value(each) for each in node.parts]
        return dict(zip(values[::2], values[1::2], strict=True))

    def _struct(self, node: CelNode) -> Any:
        raise fail(f"{node.name or 'an optional entry'} is not evaluated here", "unsupported")

    def _fold(self, node: CelNode) -> Any:
        over, start, condition, step, result = node.parts
        name, second, total = node.names
        items = self.value(over)
        if not isinstance(items, list | Mapping):
            raise fail(f"got '{type_name(items)}', expected iterable type")
        before, self.variables = self.variables, dict(self.variables)
        try:
            self.variables[total] = self._kept(start)
            pairs = items.items() if isinstance(items, Mapping) else enumerate(items)
            for key, item in pairs:
                first = key if second or isinstance(items, Mapping) else item
                self.variables |= {name: first} | ({second: item} if second else {})
                if self._kept(condition) is False:
                    break
                self.variables[total] = self._kept(step)
            return self.value(result)
        finally:
            self.variables = before

    def _kept(self, node: CelNode) -> Any:
        """Return a value, or the error as a value: a later step may not need it."""
        try:
            return self.value(node)
        except BadSelector as error:
            if error.kind in ("cost", "unsupported"):
                raise
            return error

    def _call(self, node: CelNode) -> Any:
        special = _SPECIAL.get(node.name)
        if special is not None:
            return getattr(self, special)(node)
        if node.name in _TYPES and node.target is None:
            raise fail(f"{node.name}() is not evaluated here", "unsupported")
        nodes = [*([node.target] if node.target else []), *node.parts]
        values = [self.value(each) for each in nodes]
        self._spend(_cost(node.name, values))
        if node.name in FUNCTIONS:
            return FUNCTIONS[node.name](*values)
        if node.name in _LISTS:
            return _list_function(node.name, values[0], node.type)
        if node.name == "dyn":
            return values[0]
        if any(map(_is_own, values)):
            raise fail("no such overload")
        return call_standard(node.name, node.target is not None, values)

    # ------------------------------------------------------------ operators

    def _logic(self, node: CelNode) -> bool:
        """`&&` and `||`: one deciding side is enough, whatever the other side is."""
        decides, problem = node.name == "_||_", None
        for each in node.parts:
            found = self._kept(each)
            if isinstance(found, bool) and found == decides:
                return decides
            if not isinstance(found, bool):
                problem = problem or (
                    found if isinstance(found, BadSelector) else fail("no such overload")
                )
        if problem is not None:
            raise problem
        return not decides

    def _not(self, node: CelNode) -> bool:
        self._spend(1)
        found = self.value(node.parts[0])
        if not isinstance(found, bool):
            raise fail("no such overload")
        return bool(found is False)

    def _not_false(self, node: CelNode) -> bool:
        self._spend(1)
        return self._kept(node.parts[0]) is not False

    def _conditional(self, node: CelNode) -> Any:
        found = self.value(node.parts[0])
        if not isinstance(found, bool):
            raise fail("no such overload")
        return self.value(node.parts[1 if found else 2])

    def _index(self, node: CelNode) -> Any:
        target, key = (self.value(each) for each in node.parts)
        self._spend(1)
        if isinstance(target, Optional):
            return Optional(*(each[key] for each in target.items if key in each))
        if isinstance(target, Mapping):
            return _get(target, key)
        if (
            not isinstance(target, list)
            or isinstance(key, bool)
            or not isinstance(key, int | float)
        ):
            raise fail("no such overload")
        if not 0 <= key < len(target) or key != int(key):
            raise fail(f"index out of bounds: {key}")
        return target[int(key)]

    def _optional_index(self, node: CelNode) -> Optional:
        target, key = (self.value(each) for each in node.parts)
        self._spend(1)
        held = target.items if isinstance(target, Optional) else (target,)
        if any(not isinstance(each, Mapping) for each in held):
            raise fail("no such overload")
        return Optional(*(each[key] for each in held if key in each or isinstance(each, Default)))

    def _equal(self, node: CelNode) -> bool:
        first, second = (self.value(each) for each in node.parts)
        self._spend(0.1 * min(_size(first), _size(second)))
        if node.name == "_==_":
            return equal(first, second)
        try:
            return not equal(first, second)
        except BadSelector:
            return True

    def _in(self, node: CelNode) -> bool:
        item, held = (self.value(each) for each in node.parts)
        self._spend(_size(held) if isinstance(held, list) else 1)
        if not isinstance(held, list | Mapping):
            raise fail("no such overload")
        return any(_same(item, each) for each in held)

    def _ordered(self, node: CelNode) -> bool:
        first, second = (self.value(each) for each in node.parts)
        is_text = isinstance(first, str | bytes)
        self._spend(0.1 * min(_size(first), _size(second)) if is_text else 1)
        return _compare(first, second) in _ORDER[node.name]

    def _optional(self, node: CelNode) -> Any:
        self._spend(1)
        if node.name == "optional.none":
            return Optional()
        if node.name == "optional.of":
            return Optional(self.value(node.parts[0]))
        assert node.target is not None
        held = self.value(node.target)
        if not isinstance(held, Optional):
            raise fail("no such overload")
        if node.name == "hasValue":
            return bool(held.items)
        if held.items:
            return held if node.name == "or" else held.items[0]
        if node.name == "value":
            raise fail("optional.none() dereference")
        return self.value(node.parts[0])


_SPECIAL: dict[str, str] = {
    "_&&_": "_logic",
    "_||_": "_logic",
    "!_": "_not",
    "@not_strictly_false": "_not_false",
    "_?_:_": "_conditional",
    "_[_]": "_index",
    "_[?_]": "_optional_index",
    "_?._": "_optional_index",
    "_==_": "_equal",
    "_!=_": "_equal",
    "@in": "_in",
    **dict.fromkeys(_ORDER, "_ordered"),
    **dict.fromkeys(_OPTIONALS, "_optional"),
}


def equal(first: Any, second: Any) -> bool:
    """Return whether values are equal; a quantity or version and another type are an error."""
    if first is None or second is None:
        return first is second
    if _is_own(first):
        if type(first) is not type(second):
            raise fail("no such overload")
        return bool(first.value == second.value)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    return _family(first) == _family(second) and bool(first == second)


def _same(first: Any, second: Any) -> bool:
    try:
        return equal(first, second)
    except BadSelector:
        return False


def _compare(first: Any, second: Any) -> int:
    family = _family(first)
    if family not in ("bool", "number", "string", "bytes") or family != _family(second):
        raise fail("no such overload")
    return int(first > second) - int(first < second)


def _get(held: Mapping[Any, Any], key: Any) -> Any:
    if key in held or isinstance(held, Default):
        return held[key]
    raise fail(f"no such key: {key}")


def _list_function(name: str, items: Any, kind: str) -> Any:
    if not isinstance(items, list):
        raise fail("no such overload")
    if name == "isSorted":
        return all(_compare(*pair) <= 0 for pair in itertools.pairwise(items))
    if name == "sum":
        total: Any = {"double": 0.0, "uint": Uint(0)}.get(kind, 0)
        for each in items:
            total = call_standard("_+_", False, [total, each])
        return total
    if not items:
        raise fail(f"{name} called on empty list")
    best = items[0]
    for each in items[1:]:
        if _compare(each, best) == (1 if name == "max" else -1):
            best = each
    return best


def _family(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type_name(value)


def type_name(value: Any) -> str:
    """Return the name of a value's type in CEL."""
    if hasattr(value, "type_name"):
        return str(value.type_name)
    kinds = {bool: "bool", Uint: "uint", int: "int", float: "double", str: "string", bytes: "bytes"}
    if isinstance(value, Mapping):
        return "map"
    return "list" if isinstance(value, list) else kinds.get(type(value), "null_type")


def _is_own(value: Any) -> bool:
    return isinstance(value, Quantity | Semver | Optional)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | Mapping) else 1


def _cost(name: str, values: list[Any]) -> float:
    size = _size(values[0]) if values else 1
    if name == "matches":
        return math.ceil(0.1 * (1 + size)) * math.ceil(0.25 * _size(values[1]))
    if name == "contains":
        return math.ceil(0.1 * size) * math.ceil(0.1 * _size(values[1]))
    if name in ("replace", "split"):
        return 0.2 * size
    if name in ("quantity", "isQuantity", "semver", "isSemver", "startsWith", "endsWith"):
        return 0.1 * size
    if name in ("lowerAscii", "upperAscii", "substring", "trim"):
        return 0.1 * size
    return size if name in _LISTS else 1
