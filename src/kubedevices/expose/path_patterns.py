"""Globs that remember the text that each wildcard matched. Pure.

`/dev/snd/pcmC*D0p` matches `/dev/snd/pcmC1D0p` with `1`, which fills `{n}` in
`/dev/snd/controlC{n}`. Wildcards are `*`, `?` and `[...]`, within one directory level; wildcards
without text between them count as one, so that `card[0-9]*` remembers `12` as a whole.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from kubedevices.config.checks import file_path

WILDCARD = re.compile(r"[*?\[]")
"""A character with which a wildcard begins."""


@dataclass(frozen=True)
class PathPattern:
    """An absolute path with wildcards; raises ValueError if `text` is not one."""

    text: str

    def __post_init__(self) -> None:
        """Refuse patterns that match nothing, or that match other paths than their author meant."""
        if problem := file_path(self.text):
            raise ValueError(problem)
        if "**" in self.text:
            raise ValueError("'**' is not supported, name every directory level")
        if re.search("[{}]", self.text):
            raise ValueError("'{' and '}' have no meaning here: write an entry per alternative")
        _ = self.steps, self._regex

    @cached_property
    def steps(self) -> tuple["str | re.Pattern[str]", ...]:
        """The path below `/`, one step per directory level: a name, or an expression for names."""
        steps: list[str | re.Pattern[str]] = []
        for name in self.text.split("/")[1:]:
            pattern, wildcards = _translate(name)
            steps.append(re.compile(pattern, re.DOTALL) if wildcards else name)
        return tuple(steps)

    @cached_property
    def wildcards(self) -> int:
        """How many wildcard texts a match has."""
        return self._regex.groups

    def match(self, path: str) -> tuple[str, ...] | None:
        """Return the text of each wildcard in `path`, or None if `path` does not match."""
        found = self._regex.fullmatch(path)
        return found.groups() if found else None

    @cached_property
    def _regex(self) -> "re.Pattern[str]":
        return re.compile(_translate(self.text)[0], re.DOTALL)


def _translate(glob: str) -> tuple[str, int]:
    """Return `glob` as a regular expression with a group per run of wildcards, and the number."""
    parts: list[str] = []
    groups = 0
    in_group = False
    for literal, wildcard in _tokens(glob):
        if bool(wildcard) is not in_group:
            parts.append("(" if wildcard else ")")
            groups += bool(wildcard)
            in_group = not in_group
        parts.append(wildcard or re.escape(literal))
    if in_group:
        parts.append(")")
    return "".join(parts), groups


def _tokens(glob: str) -> Iterable[tuple[str, str]]:
    """Yield (character, "") and ("", regular expression of a wildcard)."""
    position = 0
    while position < len(glob):
        char = glob[position]
        if char == "[":
            end = glob.find("]", position + (3 if glob[position + 1 : position + 2] == "!" else 2))
            if end < 0:
                raise ValueError(f"the '[' in {glob!r} is never closed")
            yield "", _character_class(glob[position + 1 : end])
            position = end
        elif char in "*?":
            yield "", "[^/]*" if char == "*" else "[^/]"
        else:
            yield char, ""
        position += 1


def _character_class(content: str) -> str:
    negated = content.startswith("!")
    escaped = re.sub(r"([\\\[\]^&~|])|-(?=-)", r"\\\g<0>", content[negated:])
    regex = f"[{'^/' if negated else ''}{escaped}]"
    try:
        re.compile(regex)
    except re.error:
        raise ValueError(f"'[{content}]' is not a range of characters") from None
    return regex
