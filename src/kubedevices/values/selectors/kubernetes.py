"""Quantities and versions, the types that Kubernetes adds to CEL.

Sources: k8s.io/apiserver, `pkg/cel/library` (quantity, semverlib, lists), Kubernetes 1.36.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from kubedevices.values.quantities import amount, rounded
from kubedevices.values.selectors.cel_values import KubernetesValue, fail, makes

_NUMBER = r"(0|[1-9][0-9]*)"
_LABEL = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_LABEL}(?:\.{_LABEL})*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
"""A semantic version 2.0.0: three numbers, labels, build metadata."""


_PLAIN = re.compile(r"[+-]?([0-9]+)([kMGTPE]?|[eE]\+?[0-9]{1,3}|([KMGTPE]i))")


class Quantity(KubernetesValue):
    """A quantity; `value` is exact.

    `is_plain`: a server holds the value as an integer of 64 bits and a power of ten.
    """

    type_name = "kubernetes.Quantity"

    def __init__(self, value: Fraction, *, is_plain: bool) -> None:
        super().__init__(value)
        self.is_plain = is_plain

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Return the quantity of a text; raises `BadSelector`."""
        try:
            value = rounded(amount(text))
        except ValueError as error:
            raise fail(str(error)) from error
        match = _PLAIN.fullmatch(text)
        if match is None:
            return cls(value, is_plain=False)
        if match[3] is None:
            return cls(value, is_plain=len(match[1]) <= 18)
        digits = ("KMGTPE".index(match[3][0]) + 1) * 3
        most = Fraction(2**63 - 1)
        return cls(min(value, most), is_plain=len(match[1]) + digits <= 14)

    def __repr__(self) -> str:
        return f"quantity({str(self.value)!r})"

    def is_integer(self) -> bool:
        """Return whether a server can give the value as an integer."""
        is_whole = self.value.denominator == 1 and -(2**63) <= self.value < 2**63
        if is_whole and not self.is_plain:
            raise fail(f"isInteger of {self.value} in this form is not evaluated", "unsupported")
        return bool(is_whole)

    def as_float(self) -> float:
        """Return the nearest number."""
        try:
            return float(self.value)
        except OverflowError:
            return math.inf if self.value > 0 else -math.inf


class Semver(KubernetesValue):
    """A semantic version 2.0.0; build metadata do not take part in comparisons."""

    type_name = "kubernetes.Semver"

    def __init__(self, text: str) -> None:
        match = SEMVER.fullmatch(text)
        if match is None:
            raise fail(f"{text!r} is not a semantic version")
        self.text, self.numbers = text, tuple(int(match[i]) for i in (1, 2, 3))
        if max(self.numbers) >= 2**64:
            raise fail(f"{text!r}: a number of the version is too large")
        before = match[4].split(".") if match[4] else []
        parts = [(0, int(each), "") if each.isdigit() else (1, 0, each) for each in before]
        super().__init__((self.numbers, not before, parts))

    def __repr__(self) -> str:
        return f"semver({self.text!r})"


def _normalized(text: str) -> str:
    """Return a version without `v` and leading zeros, and with three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for i, each in enumerate(parts):
        if len(each) > 1:
            rest = each.lstrip("0")
            parts[i] = rest if rest[:1].isdigit() else "0" + rest
    if len(parts) < 3 and re.search("[+-]", parts[-1]):
        raise fail("a short version cannot have a pre-release or build part")
    return ".".join([*parts, *["0"] * (3 - len(parts))])


def _semver(text: str, normalize: bool = False) -> Semver:
    return Semver(_normalized(text) if normalize else text)


def _compare(first: Any, second: Any) -> int:
    return int(first.value > second.value) - int(first.value < second.value)


def _added(first: Quantity, second: Quantity | int, sign: int) -> Quantity:
    if isinstance(second, int):
        second = Quantity(Fraction(second), is_plain=True)
    is_plain = first.is_plain and second.is_plain
    return Quantity(first.value + sign * second.value, is_plain=is_plain)


def _as_integer(value: Quantity) -> int:
    if not value.is_integer():
        raise fail("cannot convert value to integer")
    return int(value.value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": Quantity.parse,
    "isQuantity": makes(Quantity.parse),
    "semver": _semver,
    "isSemver": makes(_semver),
    "isGreaterThan": lambda a, b: _compare(a, b) > 0,
    "isLessThan": lambda a, b: _compare(a, b) < 0,
    "compareTo": _compare,
    "add": lambda a, b: _added(a, b, 1),
    "sub": lambda a, b: _added(a, b, -1),
    "sign": lambda a: (a.value > 0) - (a.value < 0),
    "isInteger": Quantity.is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": Quantity.as_float,
    "major": lambda a: a.numbers[0],
    "minor": lambda a: a.numbers[1],
    "patch": lambda a: a.numbers[2],
}
"""The functions by name. A receiver is the first argument."""
