"""Makes the JSON schema of a YAML file from the dataclasses that check the file. For editors.

The schema accepts every file that the checks accept. The checks find more mistakes than the schema.
"""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from kubedevices.config.yaml_config import FieldRules, is_required, schema_fields

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
DIALECT = "http://json-schema.org/draft-07/schema#"


def make_schema(schema: type, title: str) -> dict[str, Any]:
    """Return the JSON schema for the dataclass `schema`."""
    return {"$schema": DIALECT, "title": title, **_object(schema)}


def _object(schema: type) -> dict[str, Any]:
    fields = schema_fields(schema)
    found: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: _described(_value(kind, rules), rules)
            for name, (_, kind, rules) in fields.items()
        },
    }
    if required := [name for name, (field, _, _) in fields.items() if is_required(field)]:
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
        return _object(kind)
    enum = {"enum": [*rules.choices]} if rules.choices and kind is str else {}
    return {"type": _TYPES[kind], **enum}
