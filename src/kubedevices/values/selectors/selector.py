"""`Selector`: one expression, compiled once, for any number of devices."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from kubedevices.errors import BadSelector
from kubedevices.values.selectors.checked_expr import CelNode, read
from kubedevices.values.selectors.environment import call_standard, check
from kubedevices.values.selectors.evaluate import Default, Evaluation, type_name
from kubedevices.values.selectors.kubernetes import Quantity, Semver

LONGEST = 10 * 1024
"""Bytes of an expression, as the API server allows."""

_ANY = ("", "dyn")


class Part(NamedTuple):
    """A term of the outermost `&&`: its place from 0, its value, or the problem if it has none.

    `values` are the attributes and capacities that it names, by map, domain and name.
    """

    number: int
    holds: bool
    problem: str = ""
    values: tuple[tuple[tuple[str, ...], Any], ...] = ()


class Selector:
    """A compiled selector.

    The API server's estimate of the worst case is not made: an expression that the API server
    refuses as too expensive is refused here only if its evaluation exceeds the limit. A few
    functions (`url`, `ip`, `cidr`, `format`, `find`, `indexOf` of lists, times, `type`) are not
    evaluated: they are an error of the kind "unsupported". `has(device.driver)`, `device` alone,
    and an int literal compared with a double literal are refused, although a scheduler
    evaluates them.
    """

    def __init__(self, expression: str) -> None:
        """Compile an expression; raises `BadSelector`, and `UsageError` without the extra."""
        if len(expression.encode()) > LONGEST:
            raise BadSelector("length", f"Too long: may not be more than {LONGEST} bytes")
        self.expression, self._tree = expression, read(check(expression))
        _check_tree(self._tree)
        if self._tree.type not in ("bool", *_ANY):
            problem = f"must evaluate to bool or the unknown type, not {self._tree.type}"
            raise BadSelector("compilation", problem)

    @classmethod
    @functools.lru_cache(maxsize=256)
    def compiled(cls, expression: str) -> "Selector":
        """Return the selector of an expression, which is compiled once."""
        return cls(expression)

    def selects(self, driver: str, device: Mapping[str, Any]) -> bool:
        """Return whether a device of a ResourceSlice is selected; raises `BadSelector`.

        An error means that the scheduler gives up the whole claim.
        """
        return _truth(self._tree, _variables(driver, device))

    def parts(self, driver: str, device: Mapping[str, Any]) -> tuple[Part, ...]:
        """Return each term of the outermost `&&`, with the attributes and capacities it names."""
        variables, found = _variables(driver, device), []
        for number, node in enumerate(_terms(self._tree)):
            values = tuple(dict.fromkeys(_named(node)))
            shown = tuple((path, _shown(path, variables)) for path in values)
            try:
                found.append(Part(number, _truth(node, variables), values=shown))
            except BadSelector as error:
                found.append(Part(number, False, error.problem, shown))
        return tuple(found)


def _truth(tree: CelNode, variables: dict[str, Any]) -> bool:
    found = Evaluation(variables).value(tree)
    if not isinstance(found, bool):
        problem = f"CEL result of type {type_name(found)} could not be converted to bool"
        raise BadSelector("result", problem)
    return found


def _variables(driver: str, device: Mapping[str, Any]) -> dict[str, Any]:
    attributes, capacity = Default(), Default()
    for name, value in (device.get("attributes") or {}).items():
        domain, _, short = name.rpartition("/")
        kind, content = next(iter(value.items()))
        found = Semver(content) if kind == "version" else content
        attributes.setdefault(domain or driver, {})[short] = found
    for name, value in (device.get("capacity") or {}).items():
        domain, _, short = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[short] = Quantity(str(value["value"]))
    return {
        "device.driver": driver,
        "device.allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
        "device.attributes": attributes,
        "device.capacity": capacity,
    }


def _check_tree(node: CelNode) -> None:
    """Refuse what the API server refuses after the type check."""
    if node.kind == "list":
        _check_same(node.parts)
    if node.kind == "map":
        _check_same(node.parts[::2])
        _check_same(node.parts[1::2])
    if node.kind == "call" and node.name == "matches" and node.parts[-1].kind == "const":
        try:
            call_standard("matches", True, ["", node.parts[-1].value])
        except BadSelector as error:
            raise BadSelector("compilation", error.problem) from error
    for each in (*((node.target,) if node.target else ()), *node.parts):
        _check_tree(each)


def _check_same(nodes: tuple[CelNode, ...]) -> None:
    kinds = {each.type for each in nodes} - {*_ANY}
    if len(kinds) > 1 and not any("()" in each or "(," in each for each in kinds):
        first, second, *_ = sorted(kinds)
        raise BadSelector("compilation", f"expected type '{first}' but found '{second}'")


def _terms(node: CelNode) -> list[CelNode]:
    if node.kind == "call" and node.name == "_&&_":
        return [term for each in node.parts for term in _terms(each)]
    return [node]


def _named(node: CelNode) -> list[tuple[str, ...]]:
    """Return the (map, domain, name) of each attribute and capacity in a tree."""
    if node.kind == "ident" and node.name in ("device.driver", "device.allowMultipleAllocations"):
        return [(node.name,)]
    inner, name = (node.target, node.name) if node.kind == "select" else (None, "")
    if node.kind == "call" and node.name in ("_[_]", "_?._") and node.parts[1].kind == "const":
        inner, name = node.parts[0], str(node.parts[1].value)
    if inner and inner.kind == "call" and inner.name in ("_[_]", "_[?_]"):
        held, domain = inner.parts
        if held.name in ("device.attributes", "device.capacity") and domain.kind == "const":
            return [(held.name, str(domain.value), name)]
    below = (*((node.target,) if node.target else ()), *node.parts)
    return [path for each in below for path in _named(each)]


def _shown(path: tuple[str, ...], variables: Mapping[str, Any]) -> Any:
    found = variables[path[0]]
    return found if len(path) == 1 else found.get(path[1], {}).get(path[2])
