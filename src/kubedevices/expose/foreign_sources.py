"""Finds the settings of another plugin in its own file, or in an object that starts the plugin.

A DaemonSet has the settings in the arguments of its containers, a ConfigMap in its values. A list
of arguments may also be the whole file. A file may have several documents, or a List of Kubernetes.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kubedevices.config.yaml_source import parse_yaml
from kubedevices.errors import CannotRead

_SEPARATOR = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_PODS = {"Pod", "DaemonSet", "Deployment", "StatefulSet"}


class Source(NamedTuple):
    """Settings as YAML; `domain` is the value of `--domain` in the same arguments, if any."""

    root: yaml.Node
    domain: str = ""


def read_sources(file: Path) -> list[Source]:
    """Return all settings in `file`; raises `CannotRead`, and `ConfigError` for broken YAML."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRead(str(file), getattr(error, "strerror", None) or str(error)) from error
    if re.match(r"\s*--\w", text):
        return [*_of_arguments([(word, 0) for word in _words(text)], file)]
    found: list[Source] = []
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    parts = [(text[:a].count("\n"), text[a:b]) for a, b in zip(starts, ends, strict=True)]
    for lines, part in parts:
        if part.strip() or len(parts) == 1:
            found += _of_document(parse_yaml(("\n" * lines + part).encode(), file), file)
    return found


def _words(text: str) -> list[str]:
    return shlex.split(text.replace("\\\n", " "))


def _of_document(root: yaml.Node, file: Path) -> Iterator[Source]:
    kind = _text(_get(root, "kind"))
    if kind == "List":
        for item in _items(_get(root, "items")):
            yield from _of_document(item, file)
    elif kind == "ConfigMap":
        data = _get(root, "data")
        for _, value in data.value if isinstance(data, yaml.MappingNode) else ():
            yield from _of_text(value, file)
    elif kind in _PODS:
        pod = root if kind == "Pod" else _get(_get(root, "spec"), "template")
        for container in _items(_get(_get(pod, "spec"), "containers")):
            words = [*_items(_get(container, "command")), *_items(_get(container, "args"))]
            yield from _of_arguments([_word(each) for each in words], file)
    elif kind:
        return
    elif any(word.startswith("--") for word in map(_text, _items(root))):
        yield from _of_arguments([_word(each) for each in _items(root)], file)
    else:
        yield Source(root)


def _of_text(value: yaml.Node, file: Path) -> Iterator[Source]:
    text, lines = _word(value)
    if re.search(r"devicematch|groups|devices?:", text):
        yield Source(parse_yaml(("\n" * lines + text).encode(), file))


def _of_arguments(words: list[tuple[str, int]], file: Path) -> Iterator[Source]:
    """Yield the values of `--device`, each with the value of `--domain`.

    The value of an option may be part of its word (`--device=…`) or the next word.
    """
    given: list[tuple[str, str, int]] = []
    rest = iter(words)
    for word, line in rest:
        name, equals, value = word.partition("=")
        if name in {"--device", "--domain"}:
            given.append((name, *((value, line) if equals else next(rest, ("", line)))))
    domain = next((value for name, value, _ in given if name == "--domain"), "")
    for name, value, lines in given:
        if name == "--device":
            yield Source(parse_yaml(("\n" * lines + value).encode(), file), domain)


def _word(node: yaml.Node) -> tuple[str, int]:
    """Return a text and the line on which it begins, from 0; a block begins below `|` or `>`."""
    return _text(node), node.start_mark.line + (getattr(node, "style", None) in {"|", ">"})


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _get(node: yaml.Node | None, key: str) -> Any:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if _text(name) == key), None)
