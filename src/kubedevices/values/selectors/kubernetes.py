"""Quantities and versions, the types that Kubernetes adds to CEL.

Sources: k8s.io/apiserver, `pkg/cel/library` (quantity, semverlib, lists), Kubernetes 1.36.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from kubedevices.errors import BadSelector
from kubedevices.values.quantities import amount, rounded

_NUMBER = r"(0|[1-9][0-9]*)"
_LABEL = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_LABEL}(?:\.{_LABEL})*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)


class Quantity:
    """A quantity, with its exact value."""

    type_name = "kubernetes.Quantity"

    def __init__(self, text: str | Fraction) -> None:
        self.value = text if isinstance(text, Fraction) else _amount(text)

    def __repr__(self) -> str:
        return f"quantity({str(self.value)!r})"


class Semver:
    """A semantic version 2.0.0; build metadata do not take part in comparisons."""

    type_name = "kubernetes.Semver"

    def __init__(self, text: str) -> None:
        match = _SEMVER.fullmatch(text)
        if match is None:
            raise BadSelector("evaluation", f"{text!r} is not a semantic version")
        self.text, self.numbers = text, tuple(int(match[i]) for i in (1, 2, 3))
        if max(self.numbers) >= 2**64:
            raise BadSelector("evaluation", f"{text!r}: a number of the version is too large")
        before = match[4].split(".") if match[4] else []
        parts = [(0, int(each), "") if each.isdigit() else (1, 0, each) for each in before]
        self.value = (self.numbers, not before, parts)

    def __repr__(self) -> str:
        return f"semver({self.text!r})"


def _amount(text: str) -> Fraction:
    try:
        return rounded(amount(text))
    except ValueError as error:
        raise BadSelector("evaluation", str(error)) from error


def _normalized(text: str) -> str:
    """Return a version without `v` and leading zeros, and with three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for i, each in enumerate(parts):
        if len(each) > 1:
            rest = each.lstrip("0")
            parts[i] = rest if rest[:1].isdigit() else "0" + rest
    if len(parts) < 3 and re.search("[+-]", parts[-1]):
        raise BadSelector("evaluation", "a short version cannot have a pre-release or build part")
    return ".".join([*parts, *["0"] * (3 - len(parts))])


def _semver(text: str, normalize: bool = False) -> Semver:
    return Semver(_normalized(text) if normalize else text)


def _is(make: Callable[..., Any]) -> Callable[..., bool]:
    def answer(*args: Any) -> bool:
        try:
            make(*args)
        except BadSelector:
            return False
        return True

    return answer


def _pair(first: Any, second: Any) -> tuple[Any, Any]:
    if not isinstance(first, Quantity | Semver) or type(first) is not type(second):
        raise BadSelector("evaluation", "no such overload")
    return first.value, second.value


def _compare(first: Any, second: Any) -> int:
    mine, other = _pair(first, second)
    return int(mine > other) - int(mine < other)


def _added(first: Any, second: Any, sign: int) -> Quantity:
    if isinstance(first, Quantity) and isinstance(second, int) and not isinstance(second, bool):
        return Quantity(first.value + sign * second)
    mine, other = _pair(first, second)
    if not isinstance(first, Quantity):
        raise BadSelector("evaluation", "no such overload")
    return Quantity(mine + sign * other)


def _own(kind: type, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise BadSelector("evaluation", "no such overload")
        return answer(value)

    return checked


def _is_integer(value: Quantity) -> bool:
    return value.value.denominator == 1 and -(2**63) <= value.value < 2**63


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise BadSelector("evaluation", "cannot convert value to integer")
    return int(value.value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": Quantity,
    "isQuantity": _is(Quantity),
    "semver": _semver,
    "isSemver": _is(_semver),
    "isGreaterThan": lambda a, b: _compare(a, b) > 0,
    "isLessThan": lambda a, b: _compare(a, b) < 0,
    "compareTo": _compare,
    "add": lambda a, b: _added(a, b, 1),
    "sub": lambda a, b: _added(a, b, -1),
    "sign": _own(Quantity, lambda a: (a.value > 0) - (a.value < 0)),
    "isInteger": _own(Quantity, _is_integer),
    "asInteger": _own(Quantity, _as_integer),
    "asApproximateFloat": _own(Quantity, lambda a: float(a.value)),
    "major": _own(Semver, lambda a: a.numbers[0]),
    "minor": _own(Semver, lambda a: a.numbers[1]),
    "patch": _own(Semver, lambda a: a.numbers[2]),
}
"""The functions by name. A receiver is the first argument."""
