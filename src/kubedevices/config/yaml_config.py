"""Checks a YAML file against a schema (`keys`) and creates its instances.

One run finds all mistakes. Each has file, line, column, key and, if possible, a suggestion. Not for
Kubernetes manifests, which may have keys that we do not know.
"""

import dataclasses
import enum
import re
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

from kubedevices.config.documents.yaml_text import construct
from kubedevices.config.keys import (
    SCALARS,
    Complain,
    FieldRules,
    KeyPath,
    choice_problem,
    choices_of,
    number_problem,
    schema_fields,
)
from kubedevices.config.yaml_source import (
    SourceProblems,
    entries,
    find,
    guess_key,
    json_problem,
    read_yaml,
)
from kubedevices.errors import NotYaml, UsageError

T = TypeVar("T")

_BROKEN = object()
_STR, _INT, _FLOAT, _BOOL, _NULL = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")
)
_TAG_OF = {str: _STR, int: _INT, float: _FLOAT, bool: _BOOL}
_PLAIN = re.compile("[-+]?(0|[1-9][0-9]*)")
"""Decimal whole numbers. YAML 1.1 has other forms: `010` is octal, `1:30` is to the base of 60."""

_NAMES = {
    _STR: "text",
    _INT: "a number",
    _FLOAT: "a decimal number",
    _BOOL: "true or false",
    _NULL: "nothing",
}


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
            return self._object(node, kind, path, rules)
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
            if isinstance(node, yaml.ScalarNode) and (kind in _TAG_OF or origin is Literal):
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

    def _object(self, node: yaml.Node, schema: Any, path: KeyPath, rules: FieldRules) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, path, "keys and values", getattr(schema, "HINT", ""))
        known = {k: each for k, each in schema_fields(schema).items() if k not in rules.without}
        before = self._report.mistakes
        values: dict[str, Any] = {}
        seen: set[str] = set()
        is_broken = False
        for name, key_node, value_node in entries(node, path, self._report):
            here = (*path, name)
            if name not in known:
                seen.add(self._unknown(key_node, here, known))
                continue
            found = known[name]
            if _is_null(value_node) and not found.is_required:
                continue
            seen.add(name)
            value = self.value(value_node, found.kind, here, found.rules)
            is_broken = is_broken or value is _BROKEN
            if value is not _BROKEN:
                values[found.field.name] = value
        if problem := number_problem(schema, [*seen]):
            self._report.mistake(node, path, problem, getattr(schema, "HINT", ""))
        required = {name: each for name, each in known.items() if each.is_required}
        for name in sorted(required.keys() - seen):
            hint = required[name].rules.hint
            self._report.mistake(node, (*path, name), "this key is missing", hint)
        if validate := getattr(schema, "validate", None):
            validate(values, self._complain(node, path))
        if is_broken or not {each.field.name for each in required.values()} <= values.keys():
            return _BROKEN
        try:
            made = schema(**values)
            return made.value() if rules.written else made
        except UsageError as error:
            # A `Declared` checks once more what was checked here, and maybe more than its keys say.
            if self._report.mistakes == before:
                text = str(error).removeprefix(f"{schema.__name__}: ")
                self._report.mistake(node, path, text)
            return _BROKEN

    def _complain(self, node: yaml.Node, path: KeyPath) -> Complain:
        def complain(below: KeyPath, text: str, suggestion: str = "") -> None:
            self._report.mistake(find(node, below), (*path, *below), text, suggestion)

        return complain

    def _unknown(self, node: yaml.Node, path: KeyPath, known: Iterable[str]) -> str:
        """Report an unknown key; return the key that was probably meant, or an empty string."""
        meant, hint = guess_key(str(path[-1]), known)
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
        choices = choices_of(kind, rules)
        wanted = str if rules.parse or choices else kind
        if not isinstance(node, yaml.ScalarNode):
            return self._wrong(node, path, SCALARS[wanted], rules.hint)
        if _is_null(node):
            self._report.mistake(node, path, "this key has no value", rules.hint)
            return _BROKEN
        if not self._has_type(node, wanted):
            return self._wrong(node, path, SCALARS[wanted], rules.hint)
        if node.tag == _INT and not self._lenient and not _PLAIN.fullmatch(node.value):
            meant = f"YAML reads {node.value} as {construct(node)}"
            self._report.mistake(node, path, meant, "write a number without leading zeros")
            return _BROKEN
        if choices:
            if problem := choice_problem(node.value, choices):
                self._report.mistake(node, path, problem, rules.hint)
                return _BROKEN
            return kind(node.value) if isinstance(kind, enum.EnumType) else node.value
        return self._judge(node, node.value, path, rules, wanted)

    def _judge(
        self, node: yaml.ScalarNode, text: str, path: KeyPath, rules: FieldRules, kind: type = str
    ) -> Any:
        """Convert `text` and check the value."""
        try:
            value = text if kind is str else construct(node)
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


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL
