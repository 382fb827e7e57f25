"""Reads Kubernetes quantities ("2", "1500m", "1Ki", "1e3") as whole units. For pod manifests.

A number of devices is a whole number. A fraction is refused here, as by the API server ("must be an
integer").
"""

import re

from kubedevices.errors import UsageError

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST = 2**63 - 1
_LONGEST = 100


class BadQuantity(UsageError):
    """A value that is not a number of devices."""

    def __init__(self, value: object, rule: str) -> None:
        self.value, self.rule = value, rule
        super().__init__(f"{_shown(value)} {rule}")


def whole_units(value: object) -> int:
    """Return the quantity `value`, "2" or "2000m", in whole units; raises `BadQuantity`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadQuantity(value, "is not a quantity such as 2")
    text = _shown(value) if isinstance(value, int) else str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise BadQuantity(value, "is not a quantity such as 2")
    whole, _, decimals = match["number"].partition(".")
    dividend, divisor = _ratio(match["suffix"] or "")
    dividend, divisor = dividend * int(whole + decimals), divisor * 10 ** len(decimals)
    if match["sign"] == "-" and dividend:
        raise BadQuantity(value, "must not be negative")
    if dividend > _LARGEST * divisor:
        raise BadQuantity(value, f"is too large, at most {_LARGEST} fit")
    amount, rest = divmod(dividend, divisor)
    if rest:
        raise BadQuantity(value, "is a fraction, but only whole devices can be allocated")
    return int(amount)


def _shown(value: object) -> str:
    """Return `value` as a short text. Python refuses to print very large numbers."""
    if isinstance(value, int) and abs(value) >> _LONGEST:
        return f"a number of {value.bit_length()} bits"
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"


def _ratio(suffix: str) -> tuple[int, int]:
    """Return the factor and the divisor of a suffix. Not a Fraction, which is slow to import."""
    if suffix in _BINARY:
        return 2 ** _BINARY[suffix], 1
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:] or 0)
    return 10 ** max(exponent, 0), 10 ** max(-exponent, 0)
