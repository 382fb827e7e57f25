"""Declares the keys of a file as fields of a frozen dataclass, called a schema: once for all doors.

A field name becomes a camelCase key. The annotation is the accepted type: text, numbers, booleans,
`Literal`, enums, tuples, mappings, other schemas, unions of these, or `Any` for a value that other
code checks. `FieldRules` has further checks. A schema may also have

HINT                        what to write if the value has the wrong shape
ONE_OF                      keys of which exactly one must be given
ANY_OF                      keys of which at least one must be given

validate(values, complain)  checks that concern several keys

`yaml_config` reads a file by a schema. A schema that inherits from `Declared` also refuses wrong
values of Python code. This module does not import PyYAML, so that plugins need not load it.
"""

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

from kubedevices.errors import UsageError
from kubedevices.errors.words import closest

KeyPath = tuple[str | int, ...]

ValueCheck = Callable[[Any], str]
"""Gets a value of the right type; returns what is wrong with the value, or an empty string."""

Complain = Callable[[KeyPath, str, str], None]
"""Records a mistake at a key path below the object: path, problem, suggestion."""

SCALARS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, kw_only=True)
class FieldRules:
    """The rules of a field beyond its type; `check` gets every single value below the field."""

    name: str = ""
    check: ValueCheck | None = None
    check_key: ValueCheck | None = None
    parse: Callable[[str], Any] | None = None
    """Makes the value of the text in a file, such as seconds of `5m`."""

    written: Any = None
    """The type in a file, if not the annotation. Its schema has a method `value`, which converts.
    """

    without: tuple[str, ...] = ()
    """Keys of the schema of the value that a file does not have at this place."""

    unique: str = ""
    not_empty: bool = False
    hint: str = ""
    meaning: str = ""
    """The description of the key, in a JSON schema and on pages."""

    choices: tuple[str, ...] = ()
    """Every allowed text; a `Literal` or an enum has them in the annotation."""


def key(
    meaning: str = "",
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = None,
    **rules: Any,
) -> Any:
    """Declare a field of a schema; without a default the key is required. See `FieldRules`."""
    metadata = {"rules": FieldRules(meaning=meaning, **rules)}
    if default_factory:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def varied_key(schema: type, field: str, /, *, default: Any = ..., **changes: Any) -> Any:
    """Declare a field as `field` of another schema is declared, with other rules."""
    found = next(each for each in dataclasses.fields(schema) if each.name == field)
    rules = dataclasses.replace(found.metadata["rules"], **changes)
    default = found.default if default is ... else default
    return dataclasses.field(default=default, metadata={"rules": rules})


class SchemaKey(NamedTuple):
    """A key: its field, the type of its value in a file, and its rules."""

    field: "dataclasses.Field[Any]"
    kind: Any
    rules: FieldRules

    @property
    def is_required(self) -> bool:
        """Whether a file must have the key."""
        return self.field.default is self.field.default_factory is dataclasses.MISSING


@cache
def schema_fields(schema: type) -> Mapping[str, SchemaKey]:
    """Return the keys of a schema by their names in a file."""
    found = {}
    for field in dataclasses.fields(schema):
        rules = field.metadata["rules"]
        kind = rules.written or _annotations(schema)[field.name]
        found[rules.name or camel_case(field.name)] = SchemaKey(field, kind, rules)
    return found


def key_names(schema: type) -> Mapping[str, str]:
    """Return field name to key, as it is written in a file."""
    return {each.field.name: name for name, each in schema_fields(schema).items()}


def choices_of(kind: Any, rules: FieldRules) -> tuple[str, ...]:
    """Return every text that a value of this type may be; empty if there is no such list."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(str(each) for each in kind)
    return rules.choices if kind is str else ()


def choice_problem(text: str, choices: Sequence[str]) -> str:
    """Return why `text` is none of `choices`, or an empty string."""
    if text in choices:
        return ""
    words = [each for each in choices if each]
    meant = closest(text, words)
    return f"{text!r} is not known, " + (
        f"did you mean {meant!r}?" if meant else f"must be {' or '.join(words)}"
    )


def number_problem(schema: type, given: Sequence[str]) -> str:
    """Return what `ONE_OF` or `ANY_OF` say against the keys that are given."""
    only_one, choices = _words(schema, "ONE_OF"), _words(schema, "ANY_OF")
    found = [name for name in only_one or choices if name in given]
    if (only_one or choices) and not found:
        return f"one of {', '.join(only_one or choices)} is needed"
    return f"use only one of {' and '.join(found)}" if only_one and len(found) > 1 else ""


class Declared:
    """A schema of which there is no wrong instance: Python code gets a `UsageError`.

    A value that equals the default counts as not given. An error names the class, and the field
    if it is about one.
    """

    def __post_init__(self) -> None:
        """Check every field as its key declares."""
        schema: type = type(self)
        given, keys = self.given, schema_fields(schema)
        for name, value in given.items():
            rules = keys[name].rules
            if problem := value_problem(value, _annotations(schema)[keys[name].field.name], rules):
                self._refuse(problem, keys[name].field.name)
        if problem := number_problem(schema, [*given]):
            self._refuse(problem)
        if validate := getattr(schema, "validate", None):
            complain = lambda path, text, _: self._refuse(text, format_key(path))  # noqa: E731
            validate({keys[name].field.name: value for name, value in given.items()}, complain)

    @property
    def given(self) -> dict[str, Any]:
        """The values that differ from their defaults, by key."""
        schema: type = type(self)
        return {
            name: value
            for name, each in schema_fields(schema).items()
            if not _is_default(each.field, value := getattr(self, each.field.name))
        }

    @classmethod
    def _refuse(cls, problem: str, field: str = "") -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(f"{cls.__name__}{'.' * bool(field)}{field}: {problem}")


def value_problem(value: Any, kind: Any, rules: FieldRules) -> str:
    """Return what is wrong with a value of Python code, or an empty string."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or (value is None and types.NoneType in arguments):
        return ""
    if origin in (Union, types.UnionType):
        members = [each for each in arguments if each is not types.NoneType]
        problems = [value_problem(value, each, rules) for each in members]
        return "" if "" in problems else problems[0]
    if origin is tuple:
        if not isinstance(value, Sequence) or isinstance(value, str):
            return f"must be a list, not {value!r}"
        if rules.not_empty and not value:
            return "this list is empty"
        return next(filter(None, (value_problem(each, arguments[0], rules) for each in value)), "")
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return f"must be keys and values, not {value!r}"
        names = FieldRules(check=rules.check_key)
        problems = [value_problem(each, arguments[0], names) for each in value]
        problems += [value_problem(each, arguments[1], rules) for each in value.values()]
        return next(filter(None, problems), "")
    kind = str if origin is Literal else kind
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (kind is not bool and isinstance(value, bool)):
        return f"must be {SCALARS.get(kind) or f'a {kind.__name__}'}, not {value!r}"
    if isinstance(value, str) and (choices := arguments or rules.choices):
        return choice_problem(value, choices)
    if isinstance(value, Declared) and (wrong := [*value.given.keys() & set(rules.without)]):
        return f"{wrong[0]} is not possible here"
    return rules.check(value) if rules.check else ""


def format_key(path: KeyPath) -> str:
    """Return `resources[0].match` for `("resources", 0, "match")`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if step.isprintable() else repr(step))
    return text


def _is_default(field: "dataclasses.Field[Any]", value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return field.default is not dataclasses.MISSING and bool(value == field.default)


@cache
def _annotations(schema: type) -> Mapping[str, Any]:
    return get_type_hints(schema)


def _words(schema: type, attribute: str) -> tuple[str, ...]:
    return getattr(schema, attribute, ())


def camel_case(name: str) -> str:
    """Return the key of a field: `allocateDelay` for `allocate_delay`."""
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
