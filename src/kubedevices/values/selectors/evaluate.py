"""The value of a checked expression for one device, with the errors of cel-go. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubedevices.errors import BadSelector
from kubedevices.values.selectors import (
    kubernetes,
    list_functions,
    name_formats,
    network,
    text_functions,
    times,
)
from kubedevices.values.selectors.arithmetic import CONVERSIONS, binary, negative
from kubedevices.values.selectors.cel_types import Overload
from kubedevices.values.selectors.cel_values import (
    Default,
    Optional,
    TypeValue,
    compare,
    equal,
    fail,
    no_overload,
    same,
    type_name,
)
from kubedevices.values.selectors.syntax import CelNode

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **kubernetes.FUNCTIONS,
    **list_functions.FUNCTIONS,
    **name_formats.FUNCTIONS,
    **network.FUNCTIONS,
    **text_functions.FUNCTIONS,
    **times.FUNCTIONS,
}
"""The functions that need the values of their arguments, which fit to a declared overload."""

OPERATORS: dict[str, Callable[..., Any]] = {
    **CONVERSIONS,
    "-_": negative,
    **{name: lambda a, b, name=name: binary(name, a, b) for name in ("_+_", "_-_", "_*_")},
    **{name: lambda a, b, name=name: binary(name, a, b) for name in ("_/_", "_%_")},
    "_<_": lambda a, b: compare(a, b) < 0,
    "_<=_": lambda a, b: compare(a, b) <= 0,
    "_>_": lambda a, b: compare(a, b) > 0,
    "_>=_": lambda a, b: compare(a, b) >= 0,
}
"""Operators and conversions, which say themselves which values they do not take."""


class Evaluation:
    """One evaluation, with the variables by name."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables

    def value(self, node: CelNode) -> Any:
        """Return the value of a node; raises `BadSelector`."""
        found = getattr(self, f"_{node.kind}")(node)
        if isinstance(found, BadSelector):  # an error that was kept as a value
            raise found
        return found

    def _const(self, node: CelNode) -> Any:
        return node.value

    def _ident(self, node: CelNode) -> Any:
        if node.name not in self.variables:
            return TypeValue(node.name)
        return self.variables[node.name]

    def _select(self, node: CelNode) -> Any:
        assert node.target is not None
        target = self.value(node.target)
        if isinstance(target, Optional):
            found = Optional(*(each[node.name] for each in target.items if node.name in each))
            return bool(found.items) if node.is_test else found
        if not isinstance(target, Mapping):
            raise no_overload()
        if node.is_test:
            return node.name in target or isinstance(target, Default)
        return _get(target, node.name)

    def _list(self, node: CelNode) -> Any:
        found: list[Any] = []
        for i, each in enumerate(node.parts):
            value = self.value(each)
            found += _items(value) if i in node.optional else [value]
        return found

    def _map(self, node: CelNode) -> Any:
        found: dict[Any, Any] = {}
        for i, (one, other) in enumerate(zip(node.parts[::2], node.parts[1::2], strict=True)):
            key, value = self.value(one), self.value(other)
            if type_name(key) not in ("bool", "int", "uint", "double", "string", "null_type"):
                raise fail(f"a key of type {type_name(key)} is not evaluated here", "unsupported")
            if key in found and any(type(key) is not type(each) for each in found):
                raise fail("keys of several types are not evaluated here", "unsupported")
            for each in _items(value) if i in node.optional else [value]:
                found[key] = each
        return found

    def _fold(self, node: CelNode) -> Any:
        over, start, condition, step, result = node.parts
        first, second, total = node.names
        items = self.value(over)
        if not isinstance(items, list | Mapping):
            raise fail(f"got '{type_name(items)}', expected iterable type")
        before, self.variables = self.variables, dict(self.variables)
        try:
            self.variables[total] = self._kept(start)
            pairs = items.items() if isinstance(items, Mapping) else enumerate(items)
            for key, item in pairs:
                name = key if second or isinstance(items, Mapping) else item
                self.variables |= {first: name} | ({second: item} if second else {})
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
            if error.kind == "unsupported":
                raise
            return error

    def _call(self, node: CelNode) -> Any:
        special = _SPECIAL.get(node.name)
        if special is not None:
            return getattr(self, special)(node)
        values = [self.value(each) for each in node.below()]
        if node.name in OPERATORS:
            return OPERATORS[node.name](*values)
        kinds = tuple(map(type, values))
        if kinds not in node.taken:
            if not any(_takes(each, values) for each in node.overloads):
                raise no_overload()
            node.taken.add(kinds)
        if node.name == "sum":
            return list_functions.total(values[0], node.type.name)
        if node.name in _BY_ITEMS and isinstance(values[0], list):
            return _BY_ITEMS[node.name](*values)
        return FUNCTIONS[node.name](*values)

    # ------------------------------------------------------------ operators

    def _logic(self, node: CelNode) -> bool:
        """`&&` and `||`: one deciding side is enough, whatever the other side is."""
        decides, problem = node.name == "_||_", None
        for each in node.parts:
            found = self._kept(each)
            if isinstance(found, bool) and found == decides:
                return decides
            if not isinstance(found, bool):
                problem = problem or (found if isinstance(found, BadSelector) else no_overload())
        if problem is not None:
            raise problem
        return not decides

    def _not(self, node: CelNode) -> bool:
        return not self._truth(node.parts[0])

    def _truth(self, node: CelNode) -> bool:
        found = self.value(node)
        if not isinstance(found, bool):
            raise no_overload()
        return found

    def _not_false(self, node: CelNode) -> bool:
        return self._kept(node.parts[0]) is not False

    def _conditional(self, node: CelNode) -> Any:
        return self.value(node.parts[1 if self._truth(node.parts[0]) else 2])

    def _index(self, node: CelNode) -> Any:
        target, key = (self.value(each) for each in node.parts)
        if isinstance(target, Optional):
            return Optional(*(found for each in target.items for found in _find(each, key)))
        if isinstance(target, Mapping):
            return _get(target, key)
        return _at(target, key)

    def _optional_index(self, node: CelNode) -> Optional:
        target, key = (self.value(each) for each in node.parts)
        held = target.items if isinstance(target, Optional) else (target,)
        return Optional(*(found for each in held for found in _find(each, key)))

    def _equal(self, node: CelNode) -> bool:
        first, second = (self.value(each) for each in node.parts)
        if node.name == "_==_":
            return equal(first, second)
        return not same(first, second)

    def _in(self, node: CelNode) -> bool:
        item, held = node.parts
        if held.kind == "list" and not held.parts:
            return False
        value, items = self.value(item), self.value(held)
        if not isinstance(items, list | Mapping):
            raise no_overload()
        return any(same(value, each) for each in items)

    def _optional(self, node: CelNode) -> Any:
        if node.name == "optional.none":
            return Optional()
        if node.name == "optional.of":
            return Optional(self.value(node.parts[0]))
        assert node.target is not None
        held = self.value(node.target)
        if not isinstance(held, Optional):
            raise no_overload()
        if node.name == "hasValue":
            return bool(held.items)
        if held.items:
            return held if node.name == "or" else held.items[0]
        if node.name == "value":
            raise fail("optional.none() dereference")
        return self.value(node.parts[0])


_BY_ITEMS: dict[str, Callable[..., Any]] = {
    "indexOf": list_functions.index_of,
    "lastIndexOf": list_functions.last_index_of,
}
"""Functions of a list that have the name of a function of a text."""

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
    **dict.fromkeys(
        ("hasValue", "value", "or", "orValue", "optional.of", "optional.none"), "_optional"
    ),
}


def _takes(overload: Overload, values: Sequence[Any]) -> bool:
    """Whether values of types that the checker did not know fit to an overload."""
    if len(values) != len(overload.args):
        return False
    for wanted, value in zip(overload.args, values, strict=True):
        if wanted.name != type_name(value) and not (wanted.is_any or wanted.is_variable):
            return False
    return True


def _items(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Optional):
        raise no_overload()
    return value.items


def _get(held: Mapping[Any, Any], key: Any) -> Any:
    if not isinstance(held, Mapping):
        raise no_overload()
    found = _find(held, key)
    if not found:
        raise fail(f"no such key: {key}")
    return found[0]


def _find(held: Any, key: Any) -> tuple[Any, ...]:
    """Return the entry or item, or nothing."""
    if isinstance(held, Mapping):
        if isinstance(held, Default):
            return (held[key],) if isinstance(key, str) else ({},)
        if isinstance(key, str):  # equal to no key of another type
            return (held[key],) if key in held else ()
        return next(((value,) for each, value in held.items() if same(each, key)), ())
    if not isinstance(held, list):
        return ()
    try:
        return (_at(held, key),)
    except BadSelector as error:
        if error.problem.startswith("index out of bounds"):
            return ()
        raise


def _at(items: Any, place: Any) -> Any:
    if not isinstance(items, list) or type_name(place) not in ("int", "uint", "double"):
        raise no_overload()
    if not 0 <= place < len(items) or place != int(place):
        raise fail(f"index out of bounds: {place}")
    return items[int(place)]
