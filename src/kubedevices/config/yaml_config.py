"""Checks a YAML file against dataclasses and creates instances of them.

One run finds all mistakes. Each has file, line, column, key and, if possible, a suggestion. Not for
Kubernetes manifests, which may have keys that we do not know.

A schema is a frozen dataclass whose fields are declared by `key()`. A field name becomes a
camelCase key. Its annotation is the accepted type: text, numbers, booleans, tuples, mappings, other
schemas, unions of these, or `Any` for a value that other code checks. `FieldRules` has further
checks. A schema may also have

HINT                        what to write if the value has the wrong shape
ONE_OF                      keys of which exactly one must be given
ANY_OF                      keys of which at least one must be given
validate(values, complain)  checks that concern several keys
"""

import dataclasses
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from kubedevices.config.documents.yaml_text import construct
from kubedevices.config.yaml_source import (
    KeyPath,
    SourceProblems,
    entries,
    find,
    guess_key,
    json_problem,
    read_yaml,
)
from kubedevices.errors import NotYaml

T = TypeVar("T")

ValueCheck = Callable[[Any], str]
"""Gets a value of the right type; returns what is wrong with the value, or an empty string."""

Complain = Callable[[KeyPath, str, str], None]
"""Records a mistake at a key path below the object: path, problem, suggestion."""

_BROKEN = object()
_STR, _INT, _FLOAT, _BOOL, _NULL = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")
)
_TAG_OF = {str: _STR, int: _INT, float: _FLOAT, bool: _BOOL}
_PLAIN = re.compile("[-+]?(0|[1-9][0-9]*)")
"""Decimal whole numbers. YAML 1.1 has other forms: `010` is octal, `1:30` is to the base of 60."""

_WANTED = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_NAMES = {
    _STR: "text",
    _INT: "a number",
    _FLOAT: "a decimal number",
    _BOOL: "true or false",
    _NULL: "nothing",
}


@dataclass(frozen=True, kw_only=True)
class FieldRules:
    """The rules of a field beyond its type; `check` gets every single value below the field."""

    name: str = ""
    check: ValueCheck | None = None
    check_key: ValueCheck | None = None
    parse: Callable[[str], Any] | None = None
    unique: str = ""
    not_empty: bool = False
    hint: str = ""
    meaning: str = ""
    """The description of the key in a JSON schema."""
    choices: tuple[str, ...] = ()
    """Every allowed text, for the JSON schema only; `check` must refuse other texts."""


def key(*, default: Any = dataclasses.MISSING, default_factory: Any = None, **rules: Any) -> Any:
    """Declare a field of a schema; without a default the key is required. See `FieldRules`."""
    metadata = {"rules": FieldRules(**rules)}
    if default_factory:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def load_config(file: Path, schema: type[T], *, lenient: bool = False) -> tuple[T, SourceProblems]:
    """Read `file` as `schema`; return the value, and the warnings.

    `lenient` accepts unknown keys with a warning, and any single value as text, like Go's decoders.
    Raises `CannotRead` and `ConfigError`.
    """
    return load_node(read_yaml(file), schema, str(file), lenient=lenient)


def load_node(
    node: yaml.Node, schema: type[T], name: str, *, lenient: bool = False
) -> tuple[T, SourceProblems]:
    """Check a parsed node like `load_config`; `name` is the file name in messages."""
    report = SourceProblems(name, node)
    value = _Walker(report, lenient=lenient).value(node, schema, (), FieldRules())
    report.raise_mistakes()
    return value, report


def key_names(schema: type) -> Mapping[str, str]:
    """Return field name to key, as it is written in a file."""
    return {field.name: name for name, (field, _, _) in schema_fields(schema).items()}


@cache
def schema_fields(schema: type) -> dict[str, tuple[dataclasses.Field[Any], Any, FieldRules]]:
    """Return key, as it is written in a file, to field, type and rules."""
    annotations = get_type_hints(schema)
    found = {}
    for field in dataclasses.fields(schema):
        rules = field.metadata["rules"]
        found[rules.name or _camel_case(field.name)] = (field, annotations[field.name], rules)
    return found


def _camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


class _Walker:
    """Checks the nodes of one file; every method returns a value, or `_BROKEN` for a mistake."""

    def __init__(self, report: SourceProblems, *, lenient: bool) -> None:
        self._report, self._lenient = report, lenient

    def value(self, node: yaml.Node, kind: Any, path: KeyPath, rules: FieldRules) -> Any:
        if kind is Any:
            return self._anything(node, path)
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            kind = self._choose(node, get_args(kind))
            origin = get_origin(kind)
        if origin is tuple:
            return self._sequence(node, get_args(kind)[0], path, rules)
        if dataclasses.is_dataclass(kind) and not rules.parse:
            return self._object(node, kind, path)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(node, get_args(kind), path, rules)
        return self._scalar(node, kind, path, rules)

    def _choose(self, node: yaml.Node, kinds: tuple[Any, ...]) -> Any:
        """Return the member of a union with the shape of `node`, or the first if none has it."""
        for kind in kinds:
            origin = get_origin(kind)
            if isinstance(node, yaml.SequenceNode) and origin is tuple:
                return kind
            if isinstance(node, yaml.MappingNode) and (
                dataclasses.is_dataclass(kind) or (origin and origin is not tuple)
            ):
                return kind
            if isinstance(node, yaml.ScalarNode) and kind in _TAG_OF:
                return kind
        return kinds[0]

    def _anything(self, node: yaml.Node, path: KeyPath) -> Any:
        try:
            found = construct(node)
            problem = json_problem(found)
        except NotYaml as error:
            problem = error.problem
        if problem:
            self._report.mistake(node, path, problem, "")
            return _BROKEN
        return found

    def _object(self, node: yaml.Node, schema: Any, path: KeyPath) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, path, "keys and values", getattr(schema, "HINT", ""))
        known = schema_fields(schema)
        values: dict[str, Any] = {}
        seen: set[str] = set()
        is_broken = False
        for name, key_node, value_node in entries(node, path, self._report):
            here = (*path, name)
            if name not in known:
                seen.add(self._unknown(key_node, here, schema))
                continue
            field, kind, rules = known[name]
            if _is_null(value_node) and not is_required(field):
                continue
            seen.add(name)
            value = self.value(value_node, kind, here, rules)
            is_broken = is_broken or value is _BROKEN
            if value is not _BROKEN:
                values[field.name] = value
        self._check_choice(node, path, schema, seen)
        required = {name for name, (field, _, _) in known.items() if is_required(field)}
        for name in sorted(required - seen):
            self._report.mistake(node, (*path, name), "this key is missing", known[name][2].hint)
        if validate := getattr(schema, "validate", None):
            validate(values, self._complain(node, path))
        if is_broken or not {known[name][0].name for name in required} <= values.keys():
            return _BROKEN
        return schema(**values)

    def _check_choice(self, node: yaml.Node, path: KeyPath, schema: Any, seen: set[str]) -> None:
        """Check `ONE_OF` and `ANY_OF` of a schema."""
        only_one: tuple[str, ...] = getattr(schema, "ONE_OF", ())
        choices = only_one or getattr(schema, "ANY_OF", ())
        given = [name for name in choices if name in seen]
        hint = getattr(schema, "HINT", "")
        if choices and not given:
            self._report.mistake(node, path, f"one of {', '.join(choices)} is needed", hint)
        elif only_one and len(given) > 1:
            self._report.mistake(node, path, f"use only one of {' and '.join(given)}", "")

    def _complain(self, node: yaml.Node, path: KeyPath) -> Complain:
        def complain(below: KeyPath, text: str, suggestion: str = "") -> None:
            self._report.mistake(find(node, below), (*path, *below), text, suggestion)

        return complain

    def _unknown(self, node: yaml.Node, path: KeyPath, schema: Any) -> str:
        """Report an unknown key; return the key that was probably meant, or an empty string."""
        meant, hint = guess_key(str(path[-1]), schema_fields(schema))
        if self._lenient:
            self._report.warning(node, path, "unknown key, ignored", hint)
            return ""
        self._report.mistake(node, path, "unknown key", hint)
        return meant

    def _sequence(self, node: yaml.Node, kind: Any, path: KeyPath, rules: FieldRules) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            return self._wrong(node, path, "a list", rules.hint)
        if rules.not_empty and not node.value:
            self._report.mistake(node, path, "this list is empty", rules.hint)
            return _BROKEN
        if rules.unique:
            self._check_unique(node, path, rules.unique)
        items = [self.value(item, kind, (*path, i), rules) for i, item in enumerate(node.value)]
        return _BROKEN if _BROKEN in items else tuple(items)

    def _check_unique(self, node: yaml.SequenceNode, path: KeyPath, name: str) -> None:
        seen: dict[str, tuple[int, int]] = {}
        for i, item in enumerate(node.value):
            found = find(item, (name,))
            if found is item or not isinstance(found, yaml.ScalarNode):
                continue
            if "{" in found.value:  # a template: its names are not known here
                continue
            first, line = seen.setdefault(found.value, (i, found.start_mark.line + 1))
            if first != i:
                text = f"{found.value!r} is there already"
                self._report.mistake(found, (*path, i, name), text, f"first: line {line}")

    def _mapping(
        self, node: yaml.Node, kinds: tuple[Any, Any], path: KeyPath, rules: FieldRules
    ) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, path, "keys and values", rules.hint)
        found: dict[Any, Any] = {}
        broken = False
        for name, key_node, value_node in entries(node, path, self._report):
            here = (*path, name)
            key_rules = FieldRules(check=rules.check_key)
            if kinds[0] is str:
                # A key is text even if it looks like a number: `8080: x` has the key "8080".
                converted = self._judge(key_node, name, here, key_rules)
            else:
                converted = self._scalar(key_node, kinds[0], here, key_rules)
            value = self.value(value_node, kinds[1], here, rules)
            broken = broken or converted is _BROKEN or value is _BROKEN
            found[converted] = value
        return _BROKEN if broken else MappingProxyType(found)

    def _scalar(self, node: yaml.Node, kind: Any, path: KeyPath, rules: FieldRules) -> Any:
        wanted = str if rules.parse else kind
        if not isinstance(node, yaml.ScalarNode):
            return self._wrong(node, path, _WANTED[wanted], rules.hint)
        if _is_null(node):
            self._report.mistake(node, path, "this key has no value", rules.hint)
            return _BROKEN
        if not self._has_type(node, wanted):
            return self._wrong(node, path, _WANTED[wanted], rules.hint)
        if node.tag == _INT and not self._lenient and not _PLAIN.fullmatch(node.value):
            meant = f"YAML reads {node.value} as {_convert(node, int)}"
            self._report.mistake(node, path, meant, "write a number without leading zeros")
            return _BROKEN
        return self._judge(node, node.value, path, rules, wanted)

    def _judge(
        self, node: yaml.ScalarNode, text: str, path: KeyPath, rules: FieldRules, kind: type = str
    ) -> Any:
        """Convert `text` and check the value."""
        try:
            value = text if kind is str else _convert(node, kind)
            value = rules.parse(value) if rules.parse else value
            problem = rules.check(value) if rules.check else ""
        except ValueError as error:
            problem = str(error)
        if problem:
            self._report.mistake(node, path, problem, rules.hint)
            return _BROKEN
        return value

    def _has_type(self, node: yaml.ScalarNode, wanted: type) -> bool:
        if wanted is str and self._lenient:
            return True
        return node.tag == _TAG_OF[wanted] or (wanted is float and node.tag == _INT)

    def _wrong(self, node: yaml.Node, path: KeyPath, wanted: str, hint: str) -> Any:
        if isinstance(node, yaml.ScalarNode):
            got = _NAMES.get(node.tag, f"a {node.tag.rpartition(':')[2].lstrip('!')}")
            if wanted == "text" and not hint:
                hint = f'write "{node.value}" in quotes'
            elif wanted in {"a whole number", "a number"} and re.fullmatch("[0-9]+", node.value):
                hint = "remove the quotes" if node.style else f"write {int(node.value)}"
        else:
            got = "a list" if isinstance(node, yaml.SequenceNode) else "keys and values"
        self._report.mistake(node, path, f"must be {wanted}, not {got}", hint)
        return _BROKEN


def is_required(field: "dataclasses.Field[Any]") -> bool:
    """Whether a key is required."""
    return field.default is field.default_factory is dataclasses.MISSING


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def _convert(node: yaml.ScalarNode, wanted: type) -> Any:
    return construct(node)
