"""The operators `+ - * / %`, and the conversions between types. Pure.

Rules of cel-go 0.27, `common/types`: a result that does not fit into 64 bits is an error.
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kubedevices.values.selectors.cel_types import DURATION, TIMESTAMP
from kubedevices.values.selectors.cel_values import (
    Optional,
    TypeValue,
    Uint,
    fail,
    no_overload,
    type_name,
)
from kubedevices.values.selectors.network import Cidr, Ip
from kubedevices.values.selectors.times import Duration, Timestamp, duration, timestamp

_DOUBLE = re.compile(
    r"[+-]?(inf(inity)?|nan|(\d+(_\d+)*\.?\d*|\.\d+)(e[+-]?\d+)?"
    r"|0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?\d+)",
    re.IGNORECASE | re.ASCII,
)
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def integer(value: int) -> int:
    """Return a value that fits into a signed integer."""
    if not -(2**63) <= value < 2**63:
        raise fail("integer overflow")
    return int(value)


def unsigned(value: int) -> Uint:
    """Return a value that fits into an unsigned integer."""
    if not 0 <= value < 2**64:
        raise fail("unsigned integer overflow")
    return Uint(value)


def _divided(first: int, second: int) -> int:
    if second == 0:
        raise fail("division by zero")
    quotient = abs(first) // abs(second)
    return quotient if (first < 0) == (second < 0) else -quotient


def _remainder(first: int, second: int) -> int:
    if second == 0:
        raise fail("modulus by zero")
    if second == -1 and first == -(2**63):
        raise fail("integer overflow")
    return first - second * _divided(first, second)


def _float_divided(first: float, second: float) -> float:
    if second:
        return first / second
    if first == 0 or math.isnan(first):
        return math.nan
    return math.copysign(math.inf, first) * math.copysign(1, second)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "_+_": lambda a, b: a + b,
    "_-_": lambda a, b: a - b,
    "_*_": lambda a, b: a * b,
    "_/_": _divided,
    "_%_": _remainder,
}


def binary(operator: str, first: Any, second: Any) -> Any:
    """Return the result of an operator; raises `BadSelector`."""
    pair = type_name(first), type_name(second)
    if pair == ("int", "int"):
        return integer(_OPERATORS[operator](first, second))
    if pair == ("uint", "uint"):
        return unsigned(_OPERATORS[operator](int(first), int(second)))
    if pair == ("double", "double") and operator != "_%_":
        if operator == "_/_":
            return _float_divided(first, second)
        return _OPERATORS[operator](first, second)
    if operator == "_+_" and pair[0] == pair[1] and pair[0] in ("string", "bytes", "list"):
        return first + second
    if DURATION in pair or TIMESTAMP in pair:
        return _of_times(operator, pair, first, second)
    raise no_overload()


def _of_times(operator: str, pair: tuple[str, str], first: Any, second: Any) -> Any:
    sign = {"_+_": 1, "_-_": -1}.get(operator)
    if sign is None:
        raise no_overload()
    if pair == (DURATION, DURATION):
        return Duration(first.nanoseconds + sign * second.nanoseconds)
    if pair == (TIMESTAMP, DURATION) or (pair == (DURATION, TIMESTAMP) and sign == 1):
        offset = getattr(first, "offset", 0) or getattr(second, "offset", 0)
        return Timestamp(first.nanoseconds + sign * second.nanoseconds, offset)
    if pair == (TIMESTAMP, TIMESTAMP) and sign == -1:
        return Duration(first.nanoseconds - second.nanoseconds)
    raise no_overload()


def negative(value: Any) -> Any:
    """Return the value of the unary `-`."""
    if type_name(value) == "double":
        return -value
    if type_name(value) == "int":
        return integer(-value)
    if isinstance(value, Duration):
        return Duration(-value.nanoseconds)
    raise no_overload()


def _cannot(value: Any, wanted: str) -> Exception:
    return fail(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def _int(value: Any) -> int:
    name = type_name(value)
    if name in ("int", "uint"):
        return integer(value)
    if name == "double":
        if not abs(value) < 2**63:
            raise fail("integer overflow")
        return int(value)
    if isinstance(value, Timestamp):
        return value.nanoseconds // 10**9
    if isinstance(value, Duration):
        return value.nanoseconds
    if name == "string" and re.fullmatch(r"[+-]?[0-9]+", value):
        return integer(int(value))
    raise _cannot(value, "int")


def _uint(value: Any) -> Uint:
    name = type_name(value)
    if name in ("int", "uint"):
        return unsigned(value)
    if name == "double":
        if not 0 <= value < 2**64:
            raise fail("unsigned integer overflow")
        return Uint(int(value))
    if name == "string" and re.fullmatch(r"[0-9]+", value):
        return unsigned(int(value))
    raise _cannot(value, "uint")


def _double(value: Any) -> float:
    name = type_name(value)
    if name in ("int", "uint", "double"):
        return float(value)
    if name == "string" and _DOUBLE.fullmatch(value):
        found = float.fromhex(value) if "x" in value.lower() else float(value)
        if math.isfinite(found) or "n" in value.lower():
            return found
    raise _cannot(value, "double")


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _BOOLS:
        return _BOOLS[value]
    raise _cannot(value, "bool")


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise _cannot(value, "bytes")


def text(value: Any) -> str:
    """Return a value as `string(value)` does."""
    name = type_name(value)
    if name == "double":
        return _double_text(value)
    if name == "bool":
        return str(value).lower()
    if name in ("int", "uint", "string"):
        return str(value)
    if isinstance(value, Ip | Cidr):
        return str(value.value)
    if isinstance(value, Duration | Timestamp):
        return value.text
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise fail("invalid UTF-8 in bytes, cannot convert to string") from None
    raise _cannot(value, "string")


def _double_text(value: float) -> str:
    """Return a number as Go's `%g` does."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    before = len(digits) + exponent - 1
    if value == 0:
        return "-0" if sign else "0"
    if -4 <= before < 6:
        return format(Decimal(repr(value)).normalize(), "f")
    mantissa = str(digits[0]) + ("." + "".join(map(str, digits[1:])) if digits[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if before < 0 else '+'}{abs(before):02}"


def _not_zero(value: Any) -> Optional:
    """Return an optional value, none for the zero of a type."""
    zero = value.nanoseconds == 0 if isinstance(value, Duration) else not value
    return Optional() if zero else Optional(value)


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bool": _bool,
    "bytes": _bytes,
    "double": _double,
    "duration": duration,
    "dyn": lambda value: value,
    "int": _int,
    "optional.ofNonZeroValue": _not_zero,
    "string": text,
    "timestamp": timestamp,
    "type": lambda value: TypeValue(type_name(value)),
    "uint": _uint,
}
"""The conversions by name."""
