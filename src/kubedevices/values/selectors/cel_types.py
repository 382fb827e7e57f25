"""The types of expressions, and whether one fits to another. Pure.

The rules are those of cel-go's checker, `checker/types.go`: types are unified, and a type variable
stands for the first type that it meets.
"""

from collections.abc import Iterable
from typing import NamedTuple


class CelType(NamedTuple):
    """A type with its parameters. The name of a type variable begins with `$`."""

    name: str
    params: tuple["CelType", ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.params))
        return f"{self.name}({inner})" if inner else self.name

    @property
    def is_variable(self) -> bool:
        """Whether it stands for another type."""
        return self.name.startswith("$")

    @property
    def is_any(self) -> bool:
        """Whether it fits to each type: `dyn` and `any`."""
        return self.name in ("dyn", "any")


class Overload(NamedTuple):
    """A signature of a function; the receiver of a member is the first argument."""

    is_member: bool
    args: tuple[CelType, ...]
    result: CelType


DYN, ANY, BOOL, INT, STRING = map(CelType, ("dyn", "any", "bool", "int", "string"))
DURATION, TIMESTAMP = "google.protobuf.Duration", "google.protobuf.Timestamp"
DEVICE = "kubernetes.DRADevice"

_NULLABLE = {"null_type", "any", "optional_type", "net.IP", "net.CIDR", DURATION, TIMESTAMP}


def listed(item: CelType) -> CelType:
    """Return the type of a list."""
    return CelType("list", (item,))


def mapped(key: CelType, value: CelType) -> CelType:
    """Return the type of a map."""
    return CelType("map", (key, value))


def optional(inner: CelType) -> CelType:
    """Return the type of an optional value."""
    return CelType("optional_type", (inner,))


def unwrapped(found: CelType) -> tuple[CelType, bool]:
    """Return the type inside an optional type, and whether it was one."""
    return (found.params[0], True) if found.name == "optional_type" else (found, False)


class Unifier:
    """What the type variables stand for."""

    def __init__(self) -> None:
        self._known: dict[str, CelType] = {}
        self._made = 0

    def fresh(self) -> CelType:
        """Return a new type variable."""
        self._made += 1
        return CelType(f"${self._made}")

    def instance(self, overload: Overload) -> Overload:
        """Return an overload with type variables of its own."""
        made: dict[str, CelType] = {}

        def renamed(each: CelType) -> CelType:
            if each.is_variable:
                return made.setdefault(each.name, self.fresh())
            return CelType(each.name, tuple(map(renamed, each.params)))

        args = tuple(map(renamed, overload.args))
        return Overload(overload.is_member, args, renamed(overload.result))

    def known(self, found: CelType, *, is_last: bool = False) -> CelType:
        """Return a type with what its variables stand for; `is_last`: a free variable is dyn."""
        if found.name in self._known:
            return self.known(self._known[found.name], is_last=is_last)
        if found.is_variable:
            return DYN if is_last else found
        return CelType(
            found.name, tuple(self.known(each, is_last=is_last) for each in found.params)
        )

    def fits(self, given: Iterable[CelType], wanted: Iterable[CelType]) -> bool:
        """Return whether all types fit; only then variables take them."""
        given, wanted, before = tuple(given), tuple(wanted), dict(self._known)
        if len(given) == len(wanted) and all(map(self._fits, given, wanted)):
            return True
        self._known = before
        return False

    def _fits(self, first: CelType, second: CelType) -> bool:
        if second.is_variable:
            is_valid, is_bound = self._bind(first, second)
            if is_valid or is_bound:
                return is_valid
        if first.is_variable:
            return self._bind(second, first)[0]
        names = {first.name, second.name}
        if first.is_any or second.is_any or "error" in names:
            return True
        if "null_type" in names:
            return all(_is_nullable(each) for each in (first, second))
        if first.name == "type":
            return second.name == "type"
        return (
            first.name == second.name
            and len(first.params) == len(second.params)
            and all(map(self._fits, first.params, second.params))
        )

    def _bind(self, found: CelType, variable: CelType) -> tuple[bool, bool]:
        """Return whether a variable can stand for a type, and whether it already stood for one."""
        if found == variable:
            return True, True
        known = self._known.get(variable.name)
        if known is None:
            if self._occurs(variable, found):
                return False, False
            self._known[variable.name] = found
            return True, False
        if found == known:
            return True, True
        if not self._fits(found, known):
            return False, True
        general = most_general(found, known)
        if not self._occurs(variable, general):
            self._known[variable.name] = general
        return True, True

    def _occurs(self, variable: CelType, within: CelType) -> bool:
        if variable == within:
            return True
        if within.is_variable:
            known = self._known.get(within.name)
            return known is not None and self._occurs(variable, known)
        return any(self._occurs(variable, each) for each in within.params)


def most_general(first: CelType, second: CelType) -> CelType:
    """Return the more general one of two types that fit."""
    return first if _is_general(first, second) else second


def _is_general(first: CelType, second: CelType) -> bool:
    if first.is_any or first.is_variable:
        return True
    if second.is_any or second.is_variable or first.name != second.name:
        return False
    return first.name == "type" or (
        len(first.params) == len(second.params)
        and all(map(_is_general, first.params, second.params))
    )


def _is_nullable(found: CelType) -> bool:
    return found.name in _NULLABLE or found.name.startswith("kubernetes.")
