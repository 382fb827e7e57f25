"""Finds the settings of another plugin in its own file, or in an object that starts the plugin.

Where people have these settings:

* the file of the plugin itself, or a list of its arguments;
* a DaemonSet, with the settings in arguments and the domain in an argument or a variable;
* a ConfigMap, whose domain is then in the DaemonSet beside it;
* the values of a chart, alone or in a HelmRelease, a HelmChart or an Application: the settings are
  anywhere in them, as YAML or as a text;
* the configuration of MicroShift, which contains generic-device-plugin.

A file may have several documents, or a List of Kubernetes.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from kubedevices.config.yaml_source import items_of, parse_yaml, text_of, value_of
from kubedevices.errors import CannotRead

MICROSHIFT_DOMAIN = "device.microshift.io"
"""The default of `genericDevicePlugin.domain` in MicroShift."""

_SEPARATOR = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_SETTINGS = re.compile(r"devicematch|groups|devices?:")
_PODS = {"Pod", "DaemonSet", "Deployment", "StatefulSet"}
_RELEASES = {"HelmRelease", "HelmChart", "HelmChartConfig", "Application"}
_OF_CHARTS = {
    *("affinity", "config", "env", "image", "nodeselector", "podannotations"),
    *("resources", "tolerations", "securitycontext", "serviceaccount", "namespace"),
    *("fullnameoverride", "nameoverride", "imagepullsecrets", "updatestrategy"),
}
_DEPTH = 8
"""Levels of a chart's values, of which a chart in a chart has some."""


class Source(NamedTuple):
    """Settings as YAML, and what stands around them.

    `domain` is given beside the settings; empty if it is not. `version` is the tag of the image.
    `others` are keys beside the settings that do not concern devices. `is_of_config` says that the
    domain may be in another object of the same file.
    """

    root: yaml.Node
    domain: str = ""
    version: str = ""
    others: tuple[str, ...] = ()
    is_of_config: bool = False
    is_off: bool = False


class Elsewhere(NamedTuple):
    """A reference to settings that are not in the file; `is_file` if a ConfigMap would have it."""

    line: int
    what: str
    is_file: bool = False


class Sources(NamedTuple):
    """All settings of a file, the domains that its pods name, and what is in other files."""

    found: list[Source]
    domains: tuple[str, ...]
    elsewhere: tuple[Elsewhere, ...] = ()


def read_sources(file: Path) -> Sources:
    """Return all settings in `file`; raises `CannotRead`, and `ConfigError` for broken YAML."""
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRead(str(file), getattr(error, "strerror", None) or str(error)) from error
    if re.match(r"\s*--\w", text):
        words = shlex.split(text.replace("\\\n", " "))
        return Sources([*_of_arguments([(word, 0) for word in words], file)], ())
    pods: list[Source] = []
    found: list[Source] = []
    elsewhere: list[Elsewhere] = []
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    parts = [(text[:a].count("\n"), text[a:b]) for a, b in zip(starts, ends, strict=True)]
    for lines, part in parts:
        if part.strip() or len(parts) == 1:
            root = _parse(part, lines, file)
            found += _of_document(root, file, pods)
            elsewhere += _elsewhere(root)
    domains = tuple(dict.fromkeys(each.domain for each in pods if each.domain))
    version = next((each.version for each in pods if each.version), "")
    found = [
        each._replace(
            domain=each.domain or (domains[0] if len(domains) == 1 else ""),
            version=each.version or version,
        )
        if each.is_of_config
        else each
        for each in found
    ]
    has_file = any(each.is_of_config for each in found)
    missing = tuple(each for each in elsewhere if not (has_file and each.is_file))
    return Sources(found, domains, missing)


def _of_document(root: yaml.Node, file: Path, pods: list[Source]) -> Iterator[Source]:
    """Yield the settings of a document; add to `pods` what each container says of domain, image."""
    kind = text_of(root, "kind")
    if kind == "List":
        for item in items_of(root, "items"):
            yield from _of_document(item, file, pods)
    elif kind == "ConfigMap":
        data = value_of(root, "data")
        for _, value in data.value if isinstance(data, yaml.MappingNode) else ():
            for each in _of_text(value, file):
                yield each._replace(is_of_config=True)
    elif kind in _PODS:
        pod = root if kind == "Pod" else value_of(root, "spec", "template")
        for container in items_of(pod, "spec", "containers"):
            yield from _of_container(container, file, pods)
    elif kind in _RELEASES:
        yield from _of_values(value_of(root, "spec"), file)
    elif not kind:
        yield from _of_settings(root, file)


def _elsewhere(root: yaml.Node) -> Iterator[Elsewhere]:
    """Yield what an object takes from another object, which a converted file would lack."""
    kind, spec = text_of(root, "kind"), value_of(root, "spec")
    if kind == "List":
        for item in items_of(root, "items"):
            yield from _elsewhere(item)
    elif kind in _RELEASES:
        for each in items_of(spec, "valuesFrom"):
            what = f"valuesFrom names {text_of(each, 'kind')} {text_of(each, 'name')}"
            yield Elsewhere(each.start_mark.line + 1, what)
    elif kind in _PODS:
        pod = root if kind == "Pod" else value_of(spec, "template")
        for container in items_of(pod, "spec", "containers"):
            yield from _elsewhere_of(container)


def _elsewhere_of(container: yaml.Node) -> Iterator[Elsewhere]:
    words = [*items_of(container, "command"), *items_of(container, "args")]
    texts = [text_of(each) for each in words]
    image = text_of(container, "image")
    if "generic-device-plugin" not in image and not any(t.startswith("--device") for t in texts):
        return
    for number, word in enumerate(texts):
        name, equals, value = word.partition("=")
        if name == "--config":
            path = value if equals else "".join(texts[number + 1 : number + 2])
            yield Elsewhere(words[number].start_mark.line + 1, f"--config names {path}", True)
    for each in items_of(container, "env"):
        if text_of(each, "name") == "DOMAIN" and value_of(each, "valueFrom") is not None:
            yield Elsewhere(each.start_mark.line + 1, "the domain (DOMAIN) is from another object")


def _of_settings(root: yaml.Node, file: Path) -> Iterator[Source]:
    """Yield the settings of a document that is no object of Kubernetes."""
    if any(word.startswith("--") for word in map(text_of, items_of(root))):
        yield from _of_arguments([_word(each) for each in items_of(root)], file)
    elif (part := value_of(root, "genericDevicePlugin")) is not None:
        is_off = text_of(part, "status").lower() != "enabled"
        domain = text_of(part, "domain") or MICROSHIFT_DOMAIN
        yield Source(part, domain, others=("status",), is_off=is_off)
    elif _is_own_file(root):
        yield Source(root, others=_others(root))
    else:
        yield from _of_values(root, file)


def _is_own_file(root: yaml.Node) -> bool:
    """Whether the document is the file of a plugin, and not something around one."""
    keys = {name.lower() for name in _names(root)}
    known = keys & {"devices", "device", "groups", "name"}
    return isinstance(root, yaml.SequenceNode) or bool(known)


def _others(root: yaml.Node) -> tuple[str, ...]:
    """Return the keys of a chart, if these are its values: a chart has keys that no plugin has."""
    return tuple(name for name in _names(root) if name.lower() in _OF_CHARTS)


def _names(root: yaml.Node | None) -> list[str]:
    return [text_of(key) for key, _ in root.value] if isinstance(root, yaml.MappingNode) else []


def _of_container(container: yaml.Node, file: Path, pods: list[Source]) -> Iterator[Source]:
    words = [*items_of(container, "command"), *items_of(container, "args")]
    variables = _variables(value_of(container, "env"))
    version = text_of(container, "image").partition("@")[0].rpartition("/")[2].partition(":")[2]
    given = [_word(each) for each in words]
    domain = _domain_of([word for word, _ in given], variables)
    pods.append(Source(container, domain, version))
    for each in _of_arguments(given, file):
        yield each._replace(domain=domain, version=version)


def _variables(env: yaml.Node | None) -> dict[str, str]:
    """Return the variables of a container, or of the values of a chart, which may be a mapping."""
    if isinstance(env, yaml.MappingNode):
        return {text_of(key): text_of(value) for key, value in env.value}
    return {text_of(each, "name"): text_of(each, "value") for each in items_of(env)}


def _domain_of(words: Iterable[str], variables: dict[str, str]) -> str:
    """Return the value of `--domain`, or of the variable DOMAIN, which the plugin reads too."""
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--domain":
            text = value if equals else next(rest, "")
            used = re.fullmatch(r"\$\((\w+)\)", text)
            return variables.get(used[1], "") if used else text
    return variables.get("DOMAIN", "")


def _of_values(root: yaml.Node | None, file: Path) -> Iterator[Source]:
    """Yield the settings anywhere in the values of a chart, with the domain beside them."""
    domain = _domain_in(root)
    for each in _search(root, file, _DEPTH):
        yield each._replace(domain=each.domain or domain)


def _search(node: yaml.Node | None, file: Path, depth: int) -> Iterator[Source]:
    if depth == 0:
        return
    if isinstance(node, yaml.ScalarNode):
        for each in _of_text(node, file):
            yield from _search(each.root, file, depth - 1)
    elif isinstance(node, yaml.SequenceNode):
        if any("devicematch" in _names(each) for each in node.value):
            yield Source(node)
        elif any(word.startswith("--") for word in map(text_of, node.value)):
            yield from _of_arguments([_word(each) for each in node.value], file)
    elif isinstance(node, yaml.MappingNode):
        listed = [*items_of(node, "devices"), *items_of(node, "device")]
        if any("groups" in _names(each) for each in listed):
            yield Source(node, others=_others(node))
            return
        for _, value in node.value:
            yield from _search(value, file, depth - 1)


def _domain_in(node: yaml.Node | None, depth: int = _DEPTH) -> str:
    """Return the first domain that the values of a chart name, in `domain`, `env` or arguments."""
    if depth == 0 or not isinstance(node, yaml.MappingNode):
        return ""
    words = [text_of(each) for _, value in node.value for each in items_of(value)]
    domain = text_of(node, "domain") or _domain_of(words, _variables(value_of(node, "env")))
    return domain or next(
        (found for _, value in node.value if (found := _domain_in(value, depth - 1))), ""
    )


def _of_text(value: yaml.Node, file: Path) -> Iterator[Source]:
    text, lines = _word(value)
    if _SETTINGS.search(text):
        yield Source(_parse(text, lines, file))


def _of_arguments(words: list[tuple[str, int]], file: Path) -> Iterator[Source]:
    """Yield the values of `--device`, each with the value of `--domain`.

    The value of an option may be part of its word (`--device=…`) or the next word.
    """
    domain = _domain_of([word for word, _ in words], {})
    rest = iter(words)
    for word, line in rest:
        name, equals, value = word.partition("=")
        if name == "--device":
            text, lines = (value, line) if equals else next(rest, ("", line))
            yield Source(_parse(text, lines, file), domain)


def _parse(text: str, lines: int, file: Path) -> yaml.Node:
    """Parse a part of the file that begins after `lines` lines: errors name lines of the file."""
    return parse_yaml(("\n" * lines + text).encode(), file)


def _word(node: yaml.Node) -> tuple[str, int]:
    """Return a text and the line on which it begins, from 0; a block begins below `|` or `>`."""
    return text_of(node), node.start_mark.line + (getattr(node, "style", None) in {"|", ">"})
