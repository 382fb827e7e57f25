"""The types in an expression, and what an API server refuses when a selector is written. Pure.

Rules of cel-go 0.27, `checker/checker.go` and `cel/validator.go`, with the settings of Kubernetes.
"""

import math

from kubedevices.errors import BadSelector
from kubedevices.values.selectors.cel_types import (
    ANY,
    BOOL,
    DEVICE,
    DYN,
    INT,
    CelType,
    Unifier,
    listed,
    mapped,
    most_general,
    optional,
    unwrapped,
)
from kubedevices.values.selectors.cel_values import type_name
from kubedevices.values.selectors.declarations import (
    DEVICE_FIELDS,
    TYPE_NAMES,
    VARIABLES,
    functions,
)
from kubedevices.values.selectors.syntax import CelNode


def refused(problem: str) -> BadSelector:
    """Return the error of an expression that cannot be compiled."""
    return BadSelector("compilation", problem)


def check(tree: CelNode) -> None:
    """Set types and overloads in a tree; raises `BadSelector`."""
    checker = _Checker()
    checker.check(tree)
    for each in tree.nodes():
        each.type = checker.types.known(each.type, is_last=True)
    _check_literals(tree)
    if tree.type not in (BOOL, ANY):
        raise refused(f"must evaluate to bool or the unknown type, not {tree.type}")


def _check_literals(node: CelNode) -> None:
    """Refuse literals of lists and maps with several types, except in arguments of `format`."""
    if node.kind == "call" and node.name == "format":
        return
    if node.kind == "list":
        _check_same(
            [_inner(each) if i in node.optional else each.type for i, each in enumerate(node.parts)]
        )
    if node.kind == "map":
        _check_same([each.type for each in node.parts[::2]])
        values = enumerate(node.parts[1::2])
        _check_same([_inner(each) if i in node.optional else each.type for i, each in values])
    for each in node.below():
        _check_literals(each)


def _inner(node: CelNode) -> CelType:
    return unwrapped(node.type)[0]


def _check_same(kinds: list[CelType]) -> None:
    for each in kinds[1:]:
        if each != kinds[0]:
            raise refused(f"expected type '{kinds[0]}' but found '{each}'")


class _Checker:
    def __init__(self) -> None:
        self.types, self._scopes = Unifier(), [dict(VARIABLES)]

    def check(self, node: CelNode) -> CelType:
        """Set and return the type of a node."""
        node.type = self.types.known(getattr(self, f"_{node.kind}")(node))
        return node.type

    def _const(self, node: CelNode) -> CelType:
        if node.value == math.inf:
            raise refused("invalid double literal")
        return CelType(type_name(node.value))

    def _ident(self, node: CelNode) -> CelType:
        scopes = self._scopes
        if node.name.startswith("."):  # a name outside of all folds
            node.name, scopes = node.name[1:], scopes[:1]
        for scope in reversed(scopes):
            if node.name in scope:
                return scope[node.name]
        if node.name in TYPE_NAMES or node.name.startswith("kubernetes."):
            return CelType("type", (CelType(node.name),))
        raise refused(f"undeclared reference to '{node.name}' (in container '')")

    def _select(self, node: CelNode) -> CelType:
        assert node.target is not None
        if not node.name.replace("_", "a").isalnum() or not node.name.isascii():
            raise refused("unsupported syntax: '`'")
        if (name := node.qualified_name()) in TYPE_NAMES:
            node.kind, node.name, node.target = "ident", name, None
            return CelType("type", (CelType(name),))
        found = self._field(node.target, node.name, is_optional=False)
        return BOOL if node.is_test else found

    def _field(self, target: CelNode, name: str, *, is_optional: bool) -> CelType:
        held, was_optional = unwrapped(self.check(target))
        if held.name == "map":
            found = held.params[1]
        elif held.name == DEVICE:
            if name not in DEVICE_FIELDS:
                raise refused(f"undefined field '{name}'")
            found = DEVICE_FIELDS[name]
        elif held.is_variable:
            self.types.fits([DYN], [held])
            found = DYN
        elif held.is_any:
            found = DYN
        else:
            raise refused(f"type '{held}' does not support field selection")
        return optional(found) if was_optional or is_optional else found

    def _call(self, node: CelNode) -> CelType:
        if node.name == "_?._":
            return self._field(node.parts[0], str(node.parts[1].value), is_optional=True)
        args = [self.check(each) for each in node.parts]
        if node.target is not None:
            whole = f"{node.target.qualified_name()}.{node.name}"
            if whole in functions():
                node.name, node.target = whole, None
            else:
                args = [self.check(node.target), *args]
        if node.name not in functions():
            raise refused(f"undeclared reference to '{node.name}' (in container '')")
        return self._resolved(node, args)

    def _resolved(self, node: CelNode, args: list[CelType]) -> CelType:
        result: CelType | None = None
        for overload in functions()[node.name]:
            if overload.is_member != (node.target is not None):
                continue
            made = self.types.instance(overload)
            if not self.types.fits(args, made.args):
                continue
            node.overloads.append(overload)
            found = self.types.known(made.result)
            if result is None:
                result = found
            elif not result.is_any and found != result:
                result = DYN
        if result is None:
            shown = ", ".join(str(self.types.known(each, is_last=True)) for each in args)
            raise refused(f"found no matching overload for '{node.name}' applied to '({shown})'")
        return result

    def _list(self, node: CelNode) -> CelType:
        found: CelType | None = None
        for i, each in enumerate(node.parts):
            item = self._item(each, is_optional=i in node.optional)
            found = item if found is None else self._joined(found, item)
        return listed(found or self.types.fresh())

    def _map(self, node: CelNode) -> CelType:
        key: CelType | None = None
        value: CelType | None = None
        for i, (one, other) in enumerate(zip(node.parts[::2], node.parts[1::2], strict=True)):
            here = self.check(one)
            key = here if key is None else self._joined(key, here)
            item = self._item(other, is_optional=i in node.optional)
            value = item if value is None else self._joined(value, item)
        return mapped(key or self.types.fresh(), value or self.types.fresh())

    def _item(self, node: CelNode, *, is_optional: bool) -> CelType:
        found = self.check(node)
        if not is_optional:
            return found
        inner, was_optional = unwrapped(found)
        if not was_optional and not inner.is_any:
            raise refused(f"expected type '{optional(inner)}' but found '{inner}'")
        return inner

    def _joined(self, before: CelType, now: CelType) -> CelType:
        return most_general(before, now) if self.types.fits([before], [now]) else DYN

    def _struct(self, node: CelNode) -> CelType:
        raise BadSelector("unsupported", f"the message {node.name} is not evaluated here")

    def _fold(self, node: CelNode) -> CelType:
        over, start, condition, step, result = node.parts
        ranged, total = self.check(over), self.check(start)
        first, second = self._items(ranged, is_pair=bool(node.names[1]))
        self._scopes += [{node.names[2]: total}, {node.names[0]: first, node.names[1]: second}]
        self._assert(self.check(condition), BOOL)
        self._assert(self.check(step), total)
        self._scopes.pop()
        found = self.check(result)
        self._scopes.pop()
        return found

    def _items(self, ranged: CelType, *, is_pair: bool) -> tuple[CelType, CelType]:
        """Return the types of the variables of a fold."""
        if ranged.name == "list":
            return (INT, ranged.params[0]) if is_pair else (ranged.params[0], DYN)
        if ranged.name == "map":
            return ranged.params[0], ranged.params[1]
        if ranged.name == "dyn" or ranged.is_variable:
            self.types.fits([DYN], [ranged])
            return DYN, DYN
        raise refused(
            f"expression of type '{ranged}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)"
        )

    def _assert(self, found: CelType, wanted: CelType) -> None:
        if not self.types.fits([wanted], [found]):
            raise refused(f"expected type '{wanted}' but found '{found}'")
