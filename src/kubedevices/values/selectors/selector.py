"""`Selector`: one expression, compiled once, for any number of devices."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from kubedevices.errors import BadSelector
from kubedevices.values.quantities import canonical
from kubedevices.values.selectors.cel_values import Default, no_overload, type_name
from kubedevices.values.selectors.checker import check
from kubedevices.values.selectors.cost import LIMIT, estimate
from kubedevices.values.selectors.declarations import CONVERSIONS
from kubedevices.values.selectors.evaluate import OPERATORS, Evaluation
from kubedevices.values.selectors.kubernetes import Quantity, Semver
from kubedevices.values.selectors.runtime import parse
from kubedevices.values.selectors.syntax import CelNode, read
from kubedevices.values.selectors.text_functions import format_problem, matches

LONGEST = 10 * 1024
"""Bytes of an expression, as the API server allows."""

_TRIED = CONVERSIONS | {"matches", "find", "findAll", "format"}
"""Functions of which a server tries constant arguments."""


class Part(NamedTuple):
    """A term of the outermost `&&`: its place from 0, its value, or the problem if it has none.

    `values` are the attributes and capacities that it names, by map, domain and name.
    """

    number: int
    holds: bool
    problem: str = ""
    values: tuple[tuple[tuple[str, ...], Any], ...] = ()


class Selector:
    """A compiled selector, as an API server 1.36 accepts it and a scheduler 1.36 evaluates it.

    What is not evaluated is an error of the kind "unsupported": messages such as
    `google.protobuf.Int64Value{}`, `%f` and `%e` of `format`, the texts that `validate` returns,
    patterns of `findAll` that match the empty text.
    """

    def __init__(self, expression: str) -> None:
        """Compile an expression; raises `BadSelector`, and `UsageError` without the extra."""
        if len(expression.encode()) > LONGEST:
            raise BadSelector("length", f"Too long: may not be more than {LONGEST} bytes")
        self.expression, self._tree = expression, read(parse(expression))
        check(self._tree)
        most = estimate(self._tree)
        _check_constants(self._tree)
        if most > LIMIT:
            raise BadSelector("cost", "too complex, exceeds cost limit")

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
        found = _version(content) if kind == "version" else content
        attributes.setdefault(domain or driver, {})[short] = found
    for name, value in (device.get("capacity") or {}).items():
        domain, _, short = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[short] = _capacity(str(value["value"]))
    return {
        "device": {
            "driver": driver,
            "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
            "attributes": attributes,
            "capacity": capacity,
        }
    }


# Thousands of devices have equal versions and capacities.
@functools.lru_cache(maxsize=256)
def _version(text: str) -> Semver:
    return Semver(text)


@functools.lru_cache(maxsize=256)
def _capacity(text: str) -> Quantity:
    return Quantity.parse(canonical(text) or text)


def _check_constants(tree: CelNode) -> None:
    """Refuse constants that a server tries at compile time and that fail."""
    for node in tree.nodes():
        if node.kind != "call" or node.name not in _TRIED:
            continue
        try:
            if node.name == "format":
                _check_format(node)
            elif node.name in CONVERSIONS:
                if [each.kind for each in node.parts] == ["const"]:
                    made = OPERATORS[node.name](node.parts[0].value)
                    node.kind, node.value = "const", made
            else:
                _check_pattern(node)
        except BadSelector as error:
            if error.kind == "unsupported":
                raise
            raise BadSelector("compilation", error.problem) from error


def _check_pattern(node: CelNode) -> None:
    # The server takes the text of the function `matches` for a pattern, too.
    for each in node.below() if node.name == "matches" and not node.target else node.parts[:1]:
        if each.kind == "const":
            if not isinstance(each.value, str):
                raise no_overload()
            matches("", each.value)


def _check_format(node: CelNode) -> None:
    assert node.target is not None
    if node.target.kind == "const" and node.parts[0].kind == "list":
        kinds = [each.type for each in node.parts[0].parts]
        if problem := format_problem(node.target.value, kinds):
            raise BadSelector("compilation", problem)


def _terms(node: CelNode) -> list[CelNode]:
    if node.kind == "call" and node.name == "_&&_":
        return [term for each in node.parts for term in _terms(each)]
    return [node]


def _named(node: CelNode) -> list[tuple[str, ...]]:
    """Return the path of each part of `device` in a tree: (field,), or (map, domain, name)."""
    match _path(node):
        case ["device", ("driver" | "allowMultipleAllocations") as name]:
            return [(f"device.{name}",)]
        case ["device", ("attributes" | "capacity") as held, domain, name]:
            return [(f"device.{held}", domain, name)]
    return [path for each in node.below() for path in _named(each)]


def _path(node: CelNode) -> list[str]:
    """Return the names in an expression such as `a.b["c"].?d`."""
    if node.kind == "ident":
        return [node.name]
    if node.kind == "select" and node.target:
        return [*_path(node.target), node.name]
    if node.kind == "call" and node.name in ("_[_]", "_[?_]", "_?._"):
        held, name = node.parts
        return [*_path(held), name.value] if isinstance(name.value, str) else []
    return []


def _shown(path: tuple[str, ...], variables: Mapping[str, Any]) -> Any:
    found = variables["device"][path[0].removeprefix("device.")]
    return found if len(path) == 1 else found.get(path[1], {}).get(path[2])
