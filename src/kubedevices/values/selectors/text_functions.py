"""The functions of texts. The official runtime answers most of them.

Sources: cel-go 0.27, `ext/strings.go` and `ext/formatting.go`; k8s.io/apiserver 1.36,
`pkg/cel/library/regex.go`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kubedevices.values.selectors.arithmetic import text
from kubedevices.values.selectors.cel_types import CelType
from kubedevices.values.selectors.cel_values import fail, type_name
from kubedevices.values.selectors.runtime import call_runtime

_CLAUSE = re.compile(r"%(%|(?:\.[0-9]+)?(.?))", re.DOTALL)
_GROUP = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[(?:\^?\]?)(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]"  # no group: skipped
    r"|\((?!\?)|\(\?P?<\w+>",
    re.DOTALL,
)
_TAKES = {
    "s": ("string", "bytes", "bool", "int", "uint", "double", "null_type", "list", "map", "type",
          "google.protobuf.Timestamp", "google.protobuf.Duration"),
    "d": ("int", "uint"),
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": ("int", "uint", "bool"),
    "o": ("int", "uint"),
    "x": ("int", "uint", "string", "bytes"),
    "X": ("int", "uint", "string", "bytes"),
}  # fmt: skip
"""The types that a clause of `format` takes."""

_MEMBERS = (
    *("charAt", "lowerAscii", "upperAscii", "replace", "split", "join", "substring", "trim"),
)


def _member(name: str) -> Callable[..., Any]:
    def answer(*values: Any) -> Any:
        names = ", ".join(f"a{i}" for i in range(1, len(values)))
        return call_runtime(f"a0.{name}({names})", values)

    return answer


def matches(held: str, pattern: str) -> bool:
    """Return whether a regular expression of RE2 matches a part of a text."""
    return bool(call_runtime("a0.matches(a1)", (held, pattern)))


def _without_groups(pattern: str) -> str:
    """Return a regular expression of which all groups capture nothing."""
    return _GROUP.sub(lambda found: "(?:" if found[0][0] == "(" else found[0], pattern)


def _found(held: str, pattern: str, limit: int = -1) -> list[str]:
    matches("", pattern)  # a bad pattern is an error also where nothing is searched
    if limit == 0:
        return []
    if matches("", rf"\A(?:{pattern})\z"):
        raise fail("a pattern that matches the empty text is not evaluated here", "unsupported")
    values = (held, _without_groups(pattern))
    found: list[str] = call_runtime("regex.extractAll(a0, a1)", values)
    return found[:limit] if limit > 0 else found


def _find(held: str, pattern: str) -> str:
    matches("", pattern)
    found = call_runtime("regex.extract(a0, a1).orValue('')", (held, _without_groups(pattern)))
    return str(found)


def _clauses(template: str) -> Iterator[tuple[str, str]]:
    """Yield the text before a clause, and its letter."""
    at = 0
    for found in _CLAUSE.finditer(template):
        before, at = template[at : found.start()], found.end()
        yield (before + "%", "") if found[1] == "%" else (before, found[2] or "?")
    yield template[at:], ""


def format_problem(template: str, kinds: Sequence[CelType]) -> str:
    """Return what a server says of a `format` call with constants; "" if it accepts the call."""
    used = 0
    for _, letter in _clauses(template):
        if not letter:
            continue
        if letter not in _TAKES:
            return f'could not parse formatting clause: unrecognized formatting clause "{letter}"'
        if used == len(kinds):
            return f"index {used} out of range"
        kind = kinds[used].name
        if kind not in (*_TAKES[letter], "dyn", "any"):
            return f"error during formatting: %{letter} cannot be used on {kind}"
        used += 1
    if used < len(kinds):
        return f"too many arguments supplied to string.format (expected {used}, got {len(kinds)})"
    return ""


def _format(template: str, values: list[Any]) -> str:
    made, rest = "", list(values)
    for before, letter in _clauses(template):
        made += before
        if letter:
            if letter not in _TAKES:
                raise fail(f'unrecognized formatting clause "{letter}"')
            if not rest:
                raise fail("index out of range")
            made += _formatted(letter, rest.pop(0))
    return made


def _formatted(letter: str, value: Any) -> str:
    kind = type_name(value)
    if kind not in _TAKES[letter]:
        raise fail(f"error during formatting: %{letter} cannot be used on {kind}")
    if letter in "fe" or kind in ("list", "map", "type"):
        raise fail(f"%{letter} of {kind} is not evaluated here", "unsupported")
    if letter == "s":
        return "null" if value is None else text(value)
    if kind in ("string", "bytes"):
        data = value.encode() if isinstance(value, str) else value
        return data.hex().upper() if letter == "X" else data.hex()
    return format(int(value), letter)


def _index_of(held: str, part: str, start: int = 0) -> int:
    _check_place(part, start)
    return held.find(part, start) if part else start


def _last_index_of(held: str, part: str, start: int | None = None) -> int:
    if start is None:
        return held.rfind(part)
    _check_place(part, start)
    if not part:
        return start
    return held.rfind(part, 0, start + len(part)) if start < len(held) else -1


def _check_place(part: str, start: int) -> None:
    if start < 0 and part:
        raise fail(f"index out of range: {start}")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _member(name) for name in _MEMBERS},
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "contains": lambda held, part: part in held,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "matches": matches,
    "find": _find,
    "findAll": _found,
    "format": _format,
    "strings.quote": lambda held: call_runtime("strings.quote(a0)", (held,)),
}
"""The functions by name. A receiver is the first argument."""
