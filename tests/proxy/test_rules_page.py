"""The tables of docs/proxy-rules.md are made of the rules: run this file to update the page."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from kubedevices.config.keys import FieldRules, choices_of, key_names, schema_fields
from kubedevices.proxy.not_in_dra import NOT_IN_DRA
from kubedevices.proxy.proxy_config import ProxyRule

PAGE = Path(__file__).parents[2] / "docs/proxy-rules.md"
BEGIN, END = "<!-- keys: begin -->\n", "<!-- keys: end -->\n"
HEAD = ["| Key | Value | Default | Meaning |", "|---|---|---|---|"]
WORDS = {str: "text", int: "number", bool: "`true` or `false`"}


def row(path: str, kind: Any, field: Any, rules: FieldRules) -> str:
    """Return the row of a key."""
    why = [each.why for each in NOT_IN_DRA if path == key_of(each.fields)]
    meaning = rules.meaning + "".join(f". **Not in mode `dra`:** {each}" for each in why)
    return f"| `{path}` | {value(kind, rules)} | {default(field, rules)} | {meaning} |"


def key_of(fields: tuple[str, ...]) -> str:
    """Return the key of a field, as it is written in a file."""
    names, schema = [], ProxyRule
    for name in fields:
        names.append(key_names(schema)[name])
        schema = schema_of(schema_fields(schema)[names[-1]][1]) or schema
    return ".".join(names)


def value(kind: Any, rules: FieldRules) -> str:
    """Return what can be written for a key."""
    kind = without_none(kind)
    if get_origin(kind) is tuple:
        inner = value(get_args(kind)[0], rules)
        return "list" if inner == "keys" else f"list of {inner}s"
    if isinstance(origin := get_origin(kind), type) and issubclass(origin, Mapping):
        return "names and texts"
    if is_dataclass(kind):
        return "keys"
    if choices := choices_of(kind, rules):
        return " or ".join(f"`{each}`" for each in choices)
    return "duration" if rules.parse else WORDS[kind]


def default(field: Any, rules: FieldRules) -> str:
    """Return the value of a key that is not written."""
    if field.default is field.default_factory is MISSING:
        return "required"
    if field.default in (None, (), 0, MISSING) and field.default is not False:
        return ""
    text = f"{field.default:g}s" if rules.parse else str(field.default)
    return f"`{text.lower()}`"


def without_none(kind: Any) -> Any:
    """Return the type of a value that may be left out."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not types.NoneType)
    return kind


def schema_of(kind: Any) -> Any:
    """Return the schema of a key with keys, or of a list of them; None for other keys."""
    kind = without_none(kind)
    inner = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return inner if is_dataclass(inner) else None


def rows(schema: type, above: str, shown: dict[type, str]) -> Iterator[str]:
    """Yield the rows of all keys of a schema, each before the keys below it.

    `shown` has the schemas whose keys have rows already, and where.
    """
    for name, (field, kind, rules) in schema_fields(schema).items():
        yield row(above + name, kind, field, rules)
        path = f"{above}{name}{'[]' * (get_origin(kind) is tuple)}"
        below = schema_of(kind)
        if below in shown:
            yield f"| `{path}.…` | | | the same keys as below `{shown[below]}` |"
        elif below:
            shown[below] = path
            yield from rows(below, f"{path}.", shown)


def tables() -> str:
    """Return a table of keys without keys below them, and one for each other key."""
    plain: list[str] = []
    lines: list[str] = []
    shown: dict[type, str] = {}
    for name, (field, kind, rules) in schema_fields(ProxyRule).items():
        if schema := schema_of(kind):
            lines += [f"\n### `{name}`\n", f"{rules.meaning[0].upper()}{rules.meaning[1:]}.\n"]
            lines += [*HEAD, *rows(schema, f"{name}.", shown)]
        else:
            plain.append(row(name, kind, field, rules))
    return "\n".join(["", *HEAD, *plain, *lines, "", ""])


def page_with_tables() -> str:
    """Return the page as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + tables() + END + rest.partition(END)[2]


def test_the_page_has_every_key_of_a_rule() -> None:
    """Each with what can be written, its default and its meaning, as the rules declare them."""
    assert PAGE.read_text() == page_with_tables(), "run python -m tests.proxy.test_rules_page"


def test_every_key_says_what_it_means() -> None:
    """Also the keys that DRA does not know: each row of that list is in a table."""
    made = tables()
    assert "|  |\n" not in made
    assert made.count("**Not in mode `dra`:**") == len(NOT_IN_DRA)


if __name__ == "__main__":
    PAGE.write_text(page_with_tables())
