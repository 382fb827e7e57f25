"""Checks that the values of a JSON or YAML text have the types that the code below expects. Pure.

A shape is a type (`str`, `int`, `bool`, `dict` for any object), a list of one shape, or a
mapping of keys to shapes. A key that ends in `!` is required. Other keys may be missing or null,
and keys that the shape does not name are left alone.
"""

from collections.abc import Mapping
from typing import Any

from kubedevices.errors import WrongShape

Shape = Any

_INT64 = range(-(2**63), 2**63)
_WORDS = {str: "text", int: "a whole number", bool: "true or false", dict: "an object"}


def fit(value: Any, shape: Shape, place: str = "it") -> Any:
    """Return `value` without the keys that are null; `place` is for messages.

    Changes `value` itself. Raises `WrongShape`, which names the place and never a value.
    """
    if isinstance(shape, Mapping):
        return _fit_object(value, shape, place)
    if isinstance(shape, list):
        if not isinstance(value, list):
            raise WrongShape(place, "a list")
        for number, each in enumerate(value):
            fit(each, shape[0], f"{place}[{number}]")
        return value
    is_right = isinstance(value, shape)
    if shape is int:
        is_right = is_right and not isinstance(value, bool) and value in _INT64
    if not is_right:
        raise WrongShape(place, _WORDS[shape])
    return value


def _fit_object(value: Any, shape: Mapping[str, Shape], place: str) -> Any:
    if not isinstance(value, dict):
        raise WrongShape(place, "an object")
    for name, inner in shape.items():
        key = name.removesuffix("!")
        if value.get(key) is None:
            if key != name:
                raise WrongShape(f"{place}.{key}", "given")
            value.pop(key, None)
        else:
            fit(value[key], inner, f"{place}.{key}")
    return value
