"""The state of a conversion of another plugin's file: its mistakes and notes.

`foreign_generic` and `foreign_smarter` share it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kubedevices.config.keys import KeyPath
from kubedevices.config.yaml_source import SourceProblems, construct_value, find, guess_key
from kubedevices.errors import ConfigProblem

DIRECTORIES = frozenset({"dri", "input", "mapper", "net", "snd", "vfio"})
"""Directories of device files in /dev: both plugins give such a directory as one device."""


@dataclass
class Conversion:
    """The state of one conversion."""

    root: yaml.Node
    report: SourceProblems
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """One line for each mistake in an entry that cannot be converted."""
    problems: list[ConfigProblem] = field(default_factory=list)
    """The same mistakes with their places, for an error if no entry can be converted."""

    @contextmanager
    def entry(self, found: list[dict[str, Any]]) -> Iterator[None]:
        """Convert one entry: if it has a mistake, remove from `found` what it added."""
        before, known = self.report.mistakes, len(found)
        yield
        if problems := self.report.take_mistakes(before):
            del found[known:]
            self.left_out += [f"line {each.line}: {_as_text(each)}" for each in problems]
            self.problems += problems

    def mistake(self, path: KeyPath, text: str, hint: str = "") -> None:
        """Report a mistake at `path`."""
        self.report.mistake(find(self.root, path), path, text, hint)

    def note(self, path: KeyPath, text: str) -> None:
        """Note that the value at `path` has a slightly different meaning in expose."""
        self.notes.append(f"{text} (line {self.report.place(path).line})")

    def data(self) -> Any:
        """Return the file as plain data. Raises `ConfigError` for a value that breaks its tag.

        This also merges anchors in the nodes, so read the nodes before.
        """
        return construct_value(self.root, Path(self.report.file))

    def unknown_key(self, node: yaml.Node, path: KeyPath, known: Iterable[str]) -> None:
        """Report an unknown key as a mistake: it may be a misspelt key that matters."""
        self.report.mistake(node, path, "unknown key", guess_key(str(path[-1]), known)[1])

    def count(self, at: KeyPath, entry: Mapping[str, Any], key: str) -> int:
        """Return the number at `key`, by default 1."""
        count = entry.get(key, 1)
        if type(count) is int and count >= 1:
            return count
        self.mistake((*at, key), f"{count!r} is not a number of devices")
        return 1


def _as_text(problem: ConfigProblem) -> str:
    hint = f" ({problem.suggestion})" if problem.suggestion else ""
    return f"{problem.key}: {problem.problem}{hint}"


def is_map(value: object) -> bool:
    """Whether `value` is a mapping."""
    return isinstance(value, Mapping)
