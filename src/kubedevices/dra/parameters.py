"""Converts the configuration of a claim to the plugin author's dataclass. Pure.

The keys are the names of the fields in camelCase, as everywhere in Kubernetes. An unknown key and a
value of a wrong type are errors. One exception reports all errors.
"""

import dataclasses
import enum
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kubedevices.config.keys import SCALARS, camel_case
from kubedevices.errors import UsageError
from kubedevices.errors.words import did_you_mean

_LISTS = (list, tuple)
_BROKEN = object()


class ParametersInvalid(ValueError):
    """The configuration is wrong; the text lists every error."""


def check_schema(schema: object) -> None:
    """Raise `UsageError` unless `schema` is a dataclass whose fields JSON can express."""
    if not (isinstance(schema, type) and dataclasses.is_dataclass(schema)):
        raise UsageError(f"ClaimPreparer.parameters must be a dataclass, not {schema!r}")
    for name, kind in _fields(schema).items():
        _check_kind(kind, f"{schema.__name__}.{name}")


def decode(schema: type, given: Mapping[str, Any]) -> Any:
    """Return `given` as an instance of `schema`; raises `ParametersInvalid`.

    The keys `kind` and `apiVersion` are allowed even if the class has no such fields: `kind` must
    be the name of the class, `apiVersion` may be any value.
    """
    known = {camel_case(name) for name in _fields(schema)}
    plain = {key: value for key, value in given.items() if key != "apiVersion" or key in known}
    problems: list[str] = []
    if "kind" not in known and (kind := plain.pop("kind", schema.__name__)) != schema.__name__:
        problems.append(f"kind: must be {schema.__name__}, not {kind!r}")
    value = _object(schema, plain, "", problems)
    if problems:
        raise ParametersInvalid("; ".join(problems))
    return value


@cache
def _fields(schema: type) -> Mapping[str, Any]:
    """Return the fields that the constructor accepts, with their types."""
    kinds = get_type_hints(schema)
    return {each.name: kinds[each.name] for each in dataclasses.fields(schema) if each.init}


def _check_kind(kind: Any, name: str) -> None:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for part in parts:
            _check_kind(part, name)
    elif origin in _LISTS:
        _check_kind(parts[0], name)
    elif origin in (dict, Mapping):
        _check_kind(parts[1], name)
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        check_schema(kind)
    elif not (
        kind in (*SCALARS, NoneType, Any)
        or origin is Literal
        or (isinstance(kind, type) and issubclass(kind, enum.Enum))
    ):
        raise UsageError(
            f"{name}: a claim cannot contain a {kind!r} (use str, int, float, bool, Literal, Enum, "
            "list[…], dict[str, …], another dataclass, or one of several of these)"
        )


def _value(kind: Any, given: Any, path: str, problems: list[str]) -> Any:
    """Return `given` as `kind`; on an error add a text to `problems` and return `_BROKEN`."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _first_of(parts, given, path, problems)
    if origin in _LISTS and isinstance(given, list):
        items = [_value(parts[0], each, f"{path}[{i}]", problems) for i, each in enumerate(given)]
        return tuple(items) if origin is tuple else items
    if origin in (dict, Mapping) and isinstance(given, dict):
        return {
            name: _value(parts[1], each, f"{path}.{name}", problems) for name, each in given.items()
        }
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(given, dict):
        return _object(kind, given, path, problems)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if given in (allowed := [each.value for each in kind]):
            return kind(given)
        return _wrong(f"one of {', '.join(map(repr, allowed))}", given, path, problems)
    if origin is Literal:
        # Compare the type too: in Python True equals 1.
        if any(given == each and type(given) is type(each) for each in parts):
            return given
        return _wrong(f"one of {', '.join(map(repr, parts))}", given, path, problems)
    if kind is Any or (kind is NoneType and given is None):
        return given
    if kind is float and type(given) is int:
        return float(given)
    if kind in SCALARS and type(given) is kind:
        return given
    wanted = SCALARS.get(kind) or ("a list" if origin in _LISTS else "keys and values")
    return _wrong("null" if kind is NoneType else wanted, given, path, problems)


def _first_of(kinds: tuple[Any, ...], given: Any, path: str, problems: list[str]) -> Any:
    tried: list[list[str]] = []
    for kind in kinds:
        found: list[str] = []
        value = _value(kind, given, path, found)
        if not found:
            return value
        tried.append(found)
    # Report the errors of the alternative whose first error is deepest: most of the value fits this
    # alternative, so the user most likely meant it.
    nearest: list[str] = max(tried, key=lambda found: found[0].count("."))
    problems += nearest
    return _BROKEN


def _object(schema: type, given: Mapping[str, Any], path: str, problems: list[str]) -> Any:
    fields, values = _fields(schema), {}
    names = {camel_case(name): name for name in fields}
    before = len(problems)
    above = f"{path}." if path else ""
    for key, value in given.items():
        if key not in names:
            problems.append(f"{above}{key}: unknown{did_you_mean(key, names)}")
        else:
            values[names[key]] = _value(fields[names[key]], value, above + key, problems)
    for each in dataclasses.fields(schema):
        is_optional = each.default is not each.default_factory  # both are MISSING
        if each.name in fields and each.name not in values and not is_optional:
            problems.append(f"{above}{camel_case(each.name)}: is missing")
    if len(problems) > before:
        return _BROKEN
    try:
        return schema(**values)  # the author's __post_init__ may raise
    except (ValueError, TypeError) as error:
        problems.append(f"{path}: {error}".removeprefix(": "))
        return _BROKEN


def _wrong(wanted: str, given: Any, path: str, problems: list[str]) -> Any:
    problems.append(f"{path}: must be {wanted}, not {given!r}")
    return _BROKEN
