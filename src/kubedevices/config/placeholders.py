"""Texts with placeholders such as `{id}`. Pure."""

import re
from collections.abc import Mapping

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
