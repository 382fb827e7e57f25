"""Texts with placeholders such as `{id}`: their values never leave their place. Pure.

A stranger may choose a value, for example a plugin the ID of a device. In a path, a value is one
component or a part of one. In a command, a value does not become an option, and does not become
code of a shell.
"""

import re
from collections.abc import Iterable, Mapping

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names in braces; raises ValueError for a single brace, which must be doubled."""
    names = []
    for brace in _BRACES.finditer(text):
        if brace[1] is not None:
            names.append(brace[1])
        elif len(brace[0]) == 1:
            raise ValueError(f"a single {brace[0]!r}: write it twice for a brace in the text")
    return tuple(names)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace every `{name}` in `text`; `{{` and `}}` become single braces."""
    return _BRACES.sub(lambda brace: brace[0][0] if brace[1] is None else values[brace[1]], text)


WHOLE_PATHS = frozenset({"path", "container_path"})
"""Placeholders whose values are absolute paths that we found on the host ourselves."""

_IN_A_LONGER_TEXT = re.compile(r"[\w.:@+,=%~-]*")


class PlaceholderProblem(ValueError):
    """A value that does not stay in its place; the text says which value, and why."""


def fill_path(template: str, values: Mapping[str, str]) -> str:
    """Fill a path; raises `PlaceholderProblem` if a value would lead somewhere else."""
    parts = []
    for number, part in enumerate(template.split("/")):
        filled = fill(part, values)
        names = placeholders(part)
        if names and not (number == 0 and names[0] in WHOLE_PATHS):
            _check_values(names, values)
            if "/" in filled or filled in (".", ".."):
                raise PlaceholderProblem(f"{filled!r} is not the name of one file")
        parts.append(filled)
    if "\0" in (path := "/".join(parts)):
        raise PlaceholderProblem(f"{path!r} is not a path: it has a NUL character")
    return path


def fixed_directory(template: str) -> str:
    """Return the directory below which `fill_path` stays; empty if a value begins the path.

    For sysfs it is `/sys`: its classes consist of links to devices.
    """
    if not placeholders(template) or not template.startswith("/"):
        return ""
    if template.startswith("/sys/"):
        return "/sys"
    return template[: template.index("{")].rpartition("/")[0] or "/"


def fill_argument(template: str, values: Mapping[str, str]) -> str:
    """Fill an argument of a command; raises `PlaceholderProblem`.

    A value that is the whole argument may be any text without a leading `-`. A value inside a
    longer text has only letters, digits and some other characters: the text may be a path, or code.
    """
    names = placeholders(template)
    if not names:
        return fill(template, values)
    _check_values(names, values)
    if template.startswith("{") and not template.startswith("{{"):
        first = values[names[0]]
        if first.startswith("-"):
            raise PlaceholderProblem(f"{first!r} would be an option of the command")
    is_whole = template == f"{{{names[0]}}}"
    for name in names:
        value = values[name]
        is_harmless = name in WHOLE_PATHS or _IN_A_LONGER_TEXT.fullmatch(value)
        if not is_whole and (not is_harmless or value in (".", "..")):
            raise PlaceholderProblem(
                f"{value!r} inside a longer argument: make {{{name}}} an argument of its own"
            )
    return fill(template, values)


def _check_values(names: Iterable[str], values: Mapping[str, str]) -> None:
    for name in names:
        if not values[name]:
            raise PlaceholderProblem(f"this device has no {{{name}}}")
        if "\0" in values[name]:
            raise PlaceholderProblem(f"{values[name]!r} has a NUL character")
