"""The JSON schema that editors get."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubedevices.config.json_schema import make_schema
from kubedevices.expose.config import ExposeConfig
from tests.expose.test_expose_config import FULL, RESOURCE

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = make_schema(ExposeConfig, "kubedevices expose")

_TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Judge as a validator of JSON schemas does, for the words that ours uses."""
    unknown = schema.keys() - {
        "$schema", "title", "description", "type", "properties", "additionalProperties",
        "required", "oneOf", "anyOf", "items", "minItems", "enum",
    }  # fmt: skip
    assert not unknown
    if "type" in schema:
        kind = _TYPES[schema["type"]]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "anyOf" in schema and not any(accepts(each, value) for each in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(accepts(each, value) for each in schema["oneOf"]) != 1:
        return False
    if isinstance(value, list):
        items = schema.get("items", {})
        return len(value) >= schema.get("minItems", 0) and all(accepts(items, v) for v in value)
    if isinstance(value, dict):
        return _accepts_object(schema, value)
    return True


def _accepts_object(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, each in value.items():
        if name in properties:
            if not accepts(properties[name], each):
                return False
        elif rest is False or (isinstance(rest, dict) and not accepts(rest, each)):
            return False
    return set(schema.get("required", ())) <= value.keys()


@pytest.mark.parametrize("text", [FULL, RESOURCE])
def test_the_schema_accepts_every_valid_key(text: str) -> None:
    """Every key of the form."""
    document = yaml.safe_load(text)
    for resource in document["resources"]:
        resource["env"] = {str(name): value for name, value in resource.get("env", {}).items()}
    assert accepts(SCHEMA, document)


@pytest.mark.parametrize(
    "line",
    [
        "  mtach: []",
        "  id: stabel",
        "  topology: any",
        "  topology: [a]",
        "  allocation: pack",
        "  health: {}",
        "  health: {file: /x, command: [a]}",
        "  health: {command: []}",
        "  replicas: two",
        "- name: y",
        "- {name: y, match: []}",
        "- {name: y, match: [{}]}",
        "- {name: y, match: [{usb: {}}]}",
        "- {name: y, match: [{path: /y, pci: {class: '03'}}]}",
        "scanInterval: 5",
        "resource: []",
    ],
)
def test_the_schema_refuses_wrong_shapes(line: str) -> None:
    """So that an editor marks it while it is written."""
    assert not accepts(SCHEMA, yaml.safe_load(RESOURCE + line))


def test_every_key_is_explained() -> None:
    """An editor shows it beside the cursor."""

    def missing(schema: Any, path: str = "") -> list[str]:
        found = []
        for name, each in schema.get("properties", {}).items():
            found += [] if each.get("description") else [f"{path}.{name}"]
            inner = [each, each.get("items", {}), *each.get("anyOf", ())]
            found += [text for part in inner for text in missing(part, f"{path}.{name}")]
        return found

    assert missing(SCHEMA) == []


def test_the_shipped_schema_is_the_one_of_the_code() -> None:
    """`kubedevices expose --schema > examples/expose.schema.json` repairs it."""
    assert json.loads((EXAMPLES / "expose.schema.json").read_text()) == SCHEMA
