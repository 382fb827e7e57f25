"""The canonical form of quantities, in which an API server stores them: `1024Mi` is `1Gi`. Pure.

Source of the rules: k8s.io/apimachinery, `pkg/api/resource`, `Quantity.CanonicalizeBytes`.
"""

import re
from fractions import Fraction

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?",
    re.ASCII,
)
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def amount(text: str) -> Fraction:
    """Return the value of a quantity; raises `ValueError`."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    suffix, number = match["suffix"] or "", Fraction(match["number"])
    if suffix in _BINARY[1:]:
        return Fraction(number * 1024 ** _BINARY.index(suffix))
    if suffix in _DECIMAL:
        return Fraction(number * Fraction(1000) ** (_DECIMAL.index(suffix) - 3))
    return Fraction(number * Fraction(10) ** int(suffix[1:]))


def canonical(text: str) -> str | None:
    """Return the canonical form of a quantity, None if `text` is no quantity."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    suffix = match["suffix"] or ""
    number = Fraction(match["number"])
    if suffix in _BINARY[1:]:
        value = number * 1024 ** _BINARY.index(suffix)
        if abs(value) >= 1024 and value.denominator == 1:
            return _scaled(value, 1024, _BINARY)
        suffix = ""  # below 1024 a quantity with a binary suffix becomes decimal
    elif suffix in _DECIMAL:
        value = number * Fraction(1000) ** (_DECIMAL.index(suffix) - 3)
    else:
        value = number * Fraction(10) ** int(suffix[1:])
        return _with_exponent(value)
    nano = value * 10**9
    rounded = -(-nano.numerator // nano.denominator)  # round up to a multiple of 1e-9
    return _scaled(Fraction(rounded), 1000, _DECIMAL)


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
