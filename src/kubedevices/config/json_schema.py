"""Makes the JSON schema of a YAML file from the dataclasses that check the file. For editors.

The schema accepts every file that the checks accept. The checks find more mistakes than the schema.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from kubedevices.config.keys import FieldRules, choices_of, schema_fields

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
DIALECT = "http://json-schema.org/draft-07/schema#"


def make_schema(schema: type, title: str) -> dict[str, Any]:
    """Return the JSON schema for the dataclass `schema`."""
    return {"$schema": DIALECT, "title": title, **_object(schema)}


def _object(schema: type, without: tuple[str, ...] = ()) -> dict[str, Any]:
    fields = {name: each for name, each in schema_fields(schema).items() if name not in without}
    found: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: _described(_value(each.kind, each.rules), each.rules)
            for name, each in fields.items()
        },
    }
    if required := [name for name, each in fields.items() if each.is_required]:
        found["required"] = required
    for attribute, word in (("ONE_OF", "oneOf"), ("ANY_OF", "anyOf")):
        if choices := getattr(schema, attribute, ()):
            found[word] = [{"required": [name]} for name in choices]
    return found


def _described(value: dict[str, Any], rules: FieldRules) -> dict[str, Any]:
    return {"description": rules.meaning, **value} if rules.meaning else value


def _value(kind: Any, rules: FieldRules) -> dict[str, Any]:
    if kind is Any:
        return {}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        members = [_value(each, rules) for each in arguments if each is not types.NoneType]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if origin is tuple:
        items = _value(arguments[0], rules)
        return {"type": "array", "items": items, **({"minItems": 1} if rules.not_empty else {})}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(arguments[1], rules)}
    if rules.parse:
        return {"type": "string"}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _object(kind, rules.without)
    if choices := choices_of(kind, rules):
        return {"type": "string", "enum": [*choices]}
    return {"type": _TYPES[kind]}
