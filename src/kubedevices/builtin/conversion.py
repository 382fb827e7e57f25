"""What the conversions of other plugins' files share: mistakes, notes, and looks at values."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from kubedevices.config.yaml_source import KeyPath, SourceProblems, find, guess_key
from kubedevices.errors import ConfigProblem

WILDCARD = re.compile(r"[*?\[]")

DIRECTORIES = frozenset({"dri", "input", "mapper", "net", "snd", "vfio"})
"""Names in /dev that are directories of device files: both plugins give them as a whole."""


@dataclass
class Conversion:
    """The state of one conversion."""

    root: yaml.Node
    report: SourceProblems
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What cannot be converted, one line for each mistake in an entry."""
    problems: list[ConfigProblem] = field(default_factory=list)
    """The same with their places, if nothing else can be converted either."""

    @contextmanager
    def entry(self, found: list[dict[str, Any]]) -> Iterator[None]:
        """Take back what one entry adds to `found` if it has a mistake, and go on without it."""
        before, known = self.report.mistakes, len(found)
        yield
        if problems := self.report.take_mistakes(before):
            del found[known:]
            self.left_out += [f"line {each.line}: {_words(each)}" for each in problems]
            self.problems += problems

    def mistake(self, path: KeyPath, text: str, hint: str = "") -> None:
        """Refuse what stands at `path`."""
        self.report.mistake(find(self.root, path), path, text, hint)

    def note(self, path: KeyPath, text: str) -> None:
        """Tell that what stands at `path` means something a bit different afterwards."""
        self.notes.append(f"{text} (line {self.report.place(path).line})")

    def data(self) -> Any:
        """Return the file as plain data; anchors are merged in the nodes too, so look there first.

        Raises `ConfigError` for a value that is not what its tag says.
        """
        try:
            return yaml.SafeLoader("").construct_document(self.root)
        except (yaml.YAMLError, ValueError) as error:
            self.mistake((), f"not valid YAML: {' '.join(str(error).split())}")
            self.report.raise_mistakes()
            raise

    def unknown_key(self, node: yaml.Node, path: KeyPath, known: Iterable[str]) -> None:
        """Refuse a key that would be dropped: it may be one that counts, misspelt."""
        self.report.mistake(node, path, "unknown key", guess_key(str(path[-1]), known)[1])

    def count(self, at: KeyPath, entry: Mapping[str, Any], key: str) -> int:
        """Return the number that `key` gives, by default 1."""
        count = entry.get(key, 1)
        if type(count) is int and count >= 1:
            return count
        self.mistake((*at, key), f"{count!r} is not a number of devices")
        return 1


def _words(problem: ConfigProblem) -> str:
    hint = f" ({problem.suggestion})" if problem.suggestion else ""
    return f"{problem.key}: {problem.problem}{hint}"


def is_map(value: object) -> bool:
    """Whether `value` has keys."""
    return isinstance(value, Mapping)
