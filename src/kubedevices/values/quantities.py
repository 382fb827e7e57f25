"""Quantities of Kubernetes: their values, and the form in which an API server stores them. Pure.

The canonical form of `1024Mi` is `1Gi`.

Source of the rules: k8s.io/apimachinery, `pkg/api/resource`, `Quantity.CanonicalizeBytes`.
"""

import re
from fractions import Fraction

_QUANTITY = re.compile(
    r"(?P<number>[+-]?\d*(?:\.\d*)?)(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,4})?",
    re.ASCII,
)
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def amount(text: str) -> Fraction:
    """Return the value of a quantity; raises `ValueError`. Without digits, it is 0."""
    match = _QUANTITY.fullmatch(text)
    has_digits = match is not None and any(map(str.isdigit, match["number"]))
    if match is None or not text or (not has_digits and match["suffix"] in ("Pi", "Ei")):
        raise ValueError(f"{text!r} is not a quantity")
    suffix, number = match["suffix"] or "", Fraction(match["number"] if has_digits else 0)
    if suffix in _BINARY[1:]:
        return Fraction(number * 1024 ** _BINARY.index(suffix))
    if suffix in _DECIMAL:
        return Fraction(number * Fraction(1000) ** (_DECIMAL.index(suffix) - 3))
    return Fraction(number * Fraction(10) ** int(suffix[1:]))


def canonical(text: str) -> str | None:
    """Return the canonical form of a quantity, None if `text` is no quantity."""
    try:
        value = amount(text)
    except ValueError:
        return None
    suffix = text.lstrip("+-.0123456789")
    if suffix in _BINARY[1:] and abs(value) >= 1024 and value.denominator == 1:
        return _scaled(value, 1024, _BINARY)
    # Below 1024 a quantity with a binary suffix becomes decimal.
    if suffix and suffix not in (*_DECIMAL, *_BINARY):
        return _with_exponent(value)
    return _scaled(Fraction(_nano_units(value)), 1000, _DECIMAL)


def shown(value: Fraction | int) -> str:
    """Return a value for people, in binary units if nothing is lost by that."""
    for power in (4, 3, 2):
        if value and value % 1024**power == 0:
            return f"{value // 1024**power}{_BINARY[power]}"
    return _scaled(Fraction(_nano_units(Fraction(value))), 1000, _DECIMAL)


def rounded(value: Fraction) -> Fraction:
    """Return a value as a quantity holds it: a multiple of 1e-9, rounded away from zero."""
    nano = _nano_units(abs(value))
    return Fraction(nano if value >= 0 else -nano, 10**9)


def _nano_units(value: Fraction) -> int:
    """Return a value in units of 1e-9, rounded up."""
    nano = value * 10**9
    return -(-nano.numerator // nano.denominator)


def _scaled(value: Fraction, base: int, suffixes: tuple[str, ...]) -> str:
    whole, step = int(value), 0
    while whole and step < len(suffixes) - 1 and whole % base == 0:
        whole, step = whole // base, step + 1
    return f"{whole}{suffixes[step]}" if whole else "0"


def _with_exponent(value: Fraction) -> str:
    exponent = 0
    while value and value.denominator != 1:
        value, exponent = value * 1000, exponent - 3
    while value and value % 1000 == 0:
        value, exponent = value / 1000, exponent + 3
    return f"{int(value)}e{exponent}" if exponent else str(int(value))
