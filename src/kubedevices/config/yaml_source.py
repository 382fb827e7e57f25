"""Parses a YAML file into nodes with line and column, and collects the mistakes in the file.

The rules for the content of a file are in `yaml_config`. This module imports PyYAML, so import it
only if there is a file to read.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from kubedevices.config.documents.yaml_text import USER, compose, compose_all, construct
from kubedevices.config.keys import KeyPath, format_key
from kubedevices.errors import CannotRead, ConfigError, ConfigProblem, NotYaml
from kubedevices.errors.words import closest

_MERGE = "tag:yaml.org,2002:merge"


class SourceProblems:
    """The mistakes and warnings about one file."""

    def __init__(self, file: str, root: yaml.Node) -> None:
        self.file, self._root = file, root
        self._mistakes: list[ConfigProblem] = []
        self._warnings: list[ConfigProblem] = []

    def mistake(self, node: yaml.Node, path: KeyPath, text: str, suggestion: str = "") -> None:
        """Record a mistake at the place of `node`."""
        self._mistakes.append(self._problem(node, path, text, suggestion))

    def warning(self, node: yaml.Node, path: KeyPath, text: str, suggestion: str = "") -> None:
        """Record a warning: something suspicious that does no harm."""
        self._warnings.append(self._problem(node, path, text, suggestion))

    def take_mistakes(self, since: int = 0) -> tuple[ConfigProblem, ...]:
        """Remove and return the mistakes after the first `since`: the caller handles them."""
        taken = tuple(sorted(self._mistakes[since:], key=_place))
        del self._mistakes[since:]
        return taken

    @property
    def mistakes(self) -> int:
        """How many mistakes there are."""
        return len(self._mistakes)

    @property
    def warnings(self) -> tuple[ConfigProblem, ...]:
        """Every warning, in the order of the file."""
        return tuple(sorted(self._warnings, key=_place))

    def place(self, path: KeyPath) -> ConfigProblem:
        """Return the place of the value at `path`, as a problem without a text."""
        return self._problem(find(self._root, path), path, "", "")

    def raise_mistakes(self) -> None:
        """Raise `ConfigError` with every mistake, in the order of the file, if there is one."""
        if self._mistakes:
            raise ConfigError(sorted(self._mistakes, key=_place))

    def _problem(self, node: yaml.Node, path: KeyPath, text: str, suggestion: str) -> ConfigProblem:
        mark = node.start_mark
        return ConfigProblem(
            self.file, mark.line + 1, mark.column + 1, format_key(path), text, suggestion
        )


def _place(problem: ConfigProblem) -> tuple[int, int]:
    return problem.line, problem.column


def guess_key(name: str, known: Iterable[str]) -> tuple[str, str]:
    """Return the known key that was probably meant, or an empty string; and a hint."""
    known = list(known)
    meant = closest(name, known)
    return meant, f"did you mean {meant!r}?" if meant else f"known: {', '.join(known)}"


def read_yaml(file: Path) -> yaml.Node:
    """Read and parse `file`; raises `CannotRead`, or `ConfigError` for what is not YAML."""
    return parse_yaml(read_content(file), file)


def read_content(file: Path) -> bytes:
    """Return the content of a file that the user named; raises `CannotRead`.

    The file may be /dev/stdin or a pipe. The last byte of a file that is too large is enough for
    `parse_yaml` to refuse the file.
    """
    try:
        with file.open("rb") as stream:
            return stream.read(USER.size + 1)
    except OSError as error:
        raise CannotRead(str(file), error.strerror or str(error)) from error


def parse_yaml(content: bytes, file: Path) -> yaml.Node:
    """Parse `content`; `file` is for messages. Raises `ConfigError`."""
    text = _decoded(content, file)
    with _refusing(file):
        node: yaml.Node | None = compose(text, USER)
    if node is None:
        _refuse(file, 1, 1, "the file is empty", None)
    return node


def parse_documents(content: bytes, file: Path) -> Iterator[yaml.Node]:
    """Yield the root of each document in `content`, as `parse_yaml` does."""
    text = _decoded(content, file)
    with _refusing(file):
        yield from compose_all(text, USER)


def construct_value(node: yaml.Node, file: Path) -> Any:
    """Return the value of a node. Raises `ConfigError` for a value that breaks its tag.

    This also merges anchors in the nodes, so read the nodes before.
    """
    with _refusing(file):
        return construct(node)


def _decoded(content: bytes, file: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = error.start - (before.rfind(b"\n") + 1)
        _refuse(file, before.count(b"\n") + 1, column + 1, "this is not UTF-8 text", error)


@contextlib.contextmanager
def _refusing(file: Path) -> Iterator[None]:
    try:
        yield
    except NotYaml as error:
        problem = error.problem if error.is_beyond_limits else f"not valid YAML: {error.problem}"
        _refuse(file, error.line, error.column, problem, error)


def _refuse(file: Path, line: int, column: int, text: str, cause: Exception | None) -> NoReturn:
    raise ConfigError([ConfigProblem(str(file), line, column, "", text)]) from cause


def entries(
    node: yaml.MappingNode, path: KeyPath, report: SourceProblems
) -> Iterator[tuple[str, yaml.ScalarNode, yaml.Node]]:
    """Yield key, key node and value node of a mapping; anchors merged by `<<` come first.

    A key that is not text is a mistake and is left out. A key that is there twice is a mistake.
    """
    seen: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            report.mistake(key, path, "a key must be text")
        elif key.tag != _MERGE and key.value in seen:
            first = seen[key.value]
            report.mistake(key, (*path, key.value), "this key stands twice", f"first: line {first}")
        elif key.tag != _MERGE:
            seen[key.value] = key.start_mark.line + 1
    for name, (key, value) in _merged(node).items():
        if name in seen or key.tag != _MERGE:
            yield name, key, value


def refuse_double_keys(root: yaml.Node, file: Path) -> None:
    """Raise `ConfigError` if a mapping has a key twice: PyYAML would ignore one of the values."""
    report = SourceProblems(str(file), root)
    todo: list[tuple[yaml.Node, KeyPath]] = [(root, ())]
    seen: set[int] = set()  # several aliases may have the same node
    while todo:
        node, path = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            todo += [(value, (*path, name)) for name, _, value in entries(node, path, report)]
        elif isinstance(node, yaml.SequenceNode):
            todo += [(value, (*path, index)) for index, value in enumerate(node.value)]
    report.raise_mistakes()


def _merged(node: yaml.MappingNode) -> dict[str, tuple[yaml.ScalarNode, yaml.Node]]:
    """Return the entries of a mapping and of the anchors that `<<: *anchor` merges into it.

    An entry of the mapping wins over an entry of an anchor; of equal entries, the first wins.
    """
    own: dict[str, tuple[yaml.ScalarNode, yaml.Node]] = {}
    inherited: dict[str, tuple[yaml.ScalarNode, yaml.Node]] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.tag != _MERGE:
            own.setdefault(key.value, (key, value))
            continue
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for source in sources:
            if isinstance(source, yaml.MappingNode):
                inherited = {**_merged(source), **inherited}
    return {**inherited, **own}


def json_problem(value: Any) -> str:
    """Return what JSON cannot express in a value, and how to write it; empty if JSON can."""
    if isinstance(value, dict | list):
        if isinstance(value, dict):
            for name in value:
                if not isinstance(name, str):
                    return f"the key {name!r} is not a text: put the key in quotes"
        parts = value.values() if isinstance(value, dict) else value
        problems = (json_problem(each) for each in parts)
        return next(filter(None, problems), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a number of JSON"
    if value is None or isinstance(value, str | int | float):
        return ""
    return f"a value of the type {type(value).__name__}: put the value in quotes"


def value_of(node: yaml.Node | None, *keys: str) -> Any:
    """Return the node below these keys, None if there is none; for files without a schema."""
    for key in keys:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for name, value in pairs if name.value == key), None)
    return node


def items_of(node: yaml.Node | None, *keys: str) -> list[yaml.Node]:
    """Return the items of the list below these keys, none of another node."""
    found = value_of(node, *keys)
    return list(found.value) if isinstance(found, yaml.SequenceNode) else []


def text_of(node: yaml.Node | None, *keys: str) -> str:
    """Return the text below these keys, an empty one for another node."""
    found = value_of(node, *keys)
    return str(found.value) if isinstance(found, yaml.ScalarNode) else ""


def find(node: yaml.Node, path: KeyPath) -> yaml.Node:
    """Return the node at `path` below `node`, or the nearest one above it that exists."""
    for step in path:
        below: yaml.Node | None = None
        if isinstance(step, int) and isinstance(node, yaml.SequenceNode):
            below = node.value[step] if step < len(node.value) else None
        elif isinstance(step, str) and isinstance(node, yaml.MappingNode):
            below = _merged(node).get(step, (None, None))[1]
        if below is None:
            break
        node = below
    return node
