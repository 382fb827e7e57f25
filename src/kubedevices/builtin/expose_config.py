"""What may stand in the YAML file of `kubedevices expose`: the schema, with every rule.

    version: 1
    namespace: devices.example.com
    resources:
    - name: serial                          # becomes devices.example.com/serial
      match: [{path: /dev/ttyUSB*}]         # every match becomes a device
      container: {path: "/dev/ttyS{index}"}

Only what a file says is judged here; what the host has is for `expose_tree` and `expose`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from kubedevices.builtin.path_patterns import PathPattern, path_problem, placeholders
from kubedevices.builtin.yaml_config import Complain, key, load_config
from kubedevices.builtin.yaml_source import Report, suggest
from kubedevices.device import DeviceSpec
from kubedevices.resource_name import explain_resource_name

PLACEHOLDERS: Mapping[str, str] = MappingProxyType(
    {
        "n": "what the first wildcard of the match stands for",
        "name": "the last part of the host path",
        "path": "the host path",
        "index": "0, 1, 2 ...: the device's number within the resource",
        "id": "the device's ID",
        "container_path": "where the container sees the device",
    }
)
"""Every placeholder but `{1}`, `{2}` ...: what the first, second ... wildcard stands for."""

_OF_THE_NODE = ("n", "name", "path")
_BEFORE_CONTAINER_PATH = (*_OF_THE_NODE, "index", "id")

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHORTEST_INTERVAL = 0.1


def _check_version(version: int) -> str:
    return "" if version == 1 else f"version {version} is not known, this is version 1"


def _check_namespace(namespace: str) -> str:
    return explain_resource_name(f"{namespace}/x") if namespace else "a namespace is needed"


def _check_name(name: str) -> str:
    if "/" in name:
        return f"{name!r}: write only the part after the slash, the rest is the key 'namespace'"
    return explain_resource_name(f"example.com/{name}")


def _check_permissions(permissions: str) -> str:
    return DeviceSpec("/", permissions=permissions).problem()


def _check_replicas(replicas: int) -> str:
    return "" if 1 <= replicas <= 1000 else f"{replicas} must be between 1 and 1000"


def _check_env_name(name: str) -> str:
    if not name or "=" in name or not name.isprintable():
        return f"{name!r} cannot name an environment variable"
    return _template(*PLACEHOLDERS)(name)


def _template(*known: str) -> Callable[[str], str]:
    """Return a check: are all placeholders among `known`?"""

    def check(text: str) -> str:
        for name in placeholders(text):
            if name not in known and not re.fullmatch("[1-9]", name):
                meant = suggest(name, known)
                hint = f"did you mean {{{meant}}}?" if meant else _listed(known)
                return f"unknown placeholder {{{name}}}, {hint}"
        return ""

    return check


def _listed(names: tuple[str, ...]) -> str:
    return "known: " + ", ".join(f"{{{name}}}" for name in (*names, "1"))


def _path_template(*known: str) -> Callable[[str], str]:
    """Return a check for a path with placeholders."""

    def check(text: str) -> str:
        if problem := _template(*known)(text):
            return problem
        begins_with_one = re.match(r"\{(path|container_path)\}", text)
        return path_problem("/" + text if begins_with_one else text)

    return check


def _with_path(text: str) -> str:
    if re.search(r"[*?\[]", text):
        return f"{text!r}: wildcards mean nothing here, write {{n}} or name every node"
    return _path_template(*_OF_THE_NODE)(text)


def parse_duration(text: str) -> float:
    """Return the seconds in `5s`, `500ms`, `1m`, `1h`; raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if not found:
        raise ValueError(f"{text!r} is not a duration")
    return float(found[1]) * _UNITS[found[2]]


def _check_interval(seconds: float) -> str:
    return "" if seconds >= _SHORTEST_INTERVAL else "shorter than 100ms"


@dataclass(frozen=True, kw_only=True)
class PathMatch:
    """Device files by their path."""

    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {"usb": "path", "pci": "path"}
    HINT: ClassVar[str] = "write '- path: /dev/...'"

    path: PathPattern = key(parse=PathPattern)  # noqa: RUF009  # makes a field, not a value


@dataclass(frozen=True, kw_only=True)
class ContainerSide:
    """How a container sees the device."""

    HINT: ClassVar[str] = "write 'container: {path: /dev/...}'"

    path: str = key(default="{path}", check=_path_template(*_BEFORE_CONTAINER_PATH))
    permissions: str = key(default="rw", check=_check_permissions)


@dataclass(frozen=True, kw_only=True)
class MountRule:
    """A file or directory of the host that comes along."""

    HINT: ClassVar[str] = "write '- host: /path'"

    host: str = key(check=_path_template(*PLACEHOLDERS))
    container: str = key(default="", check=_path_template(*PLACEHOLDERS))
    read_only: bool = key(default=False)


@dataclass(frozen=True, kw_only=True)
class ResourceRule:
    """One resource: which device files, and what a container gets with each."""

    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "id",
            "renameShared",
            "failRequestsGreaterThanOne",
            "allocation",
            "topology",
            "health",
            "inject",
            "goneGrace",
        ),
        "",
    )
    HINT: ClassVar[str] = "write '- name: ...' and 'match: [...]'"

    name: str = key(check=_check_name)
    match: tuple[PathMatch, ...] = key(not_empty=True, hint="write '- path: /dev/...'")
    exclude: tuple[PathPattern, ...] = key(
        default=(), parse=PathPattern, hint="a list of paths, wildcards allowed"
    )
    container: ContainerSide = key(default_factory=ContainerSide)  # noqa: RUF009
    env: Mapping[str, str] = key(
        default_factory=dict, check=_template(*PLACEHOLDERS), check_key=_check_env_name
    )
    mounts: tuple[MountRule, ...] = key(default=())
    with_: tuple[str, ...] = key(name="with", default=(), check=_with_path)
    optional: bool = key(default=False)
    replicas: int = key(default=1, check=_check_replicas)

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Check that every placeholder of a wildcard has a wildcard to stand for."""
        matches = values.get("match", ())
        if not matches:
            return
        fewest = min(matches, key=lambda match: match.path.wildcards).path
        for path, text in _templates(values):
            for name in placeholders(text):
                number = 1 if name == "n" else int(name) if name.isdecimal() else 0
                if number > fewest.wildcards:
                    count = f"{fewest.wildcards or 'no'} wildcard{'s' * (fewest.wildcards > 1)}"
                    complain(path, f"{{{name}}} stands for nothing: {fewest.text} has {count}", "")


def _templates(values: Mapping[str, Any]) -> "list[tuple[tuple[str | int, ...], str]]":
    """Return every text with placeholders of a resource, with its key path."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    if container := values.get("container"):
        found.append((("container", "path"), container.path))
    found += [(("env", name), name + text) for name, text in values.get("env", {}).items()]
    found += [(("with", i), text) for i, text in enumerate(values.get("with_", ()))]
    for i, mount in enumerate(values.get("mounts", ())):
        found += [
            (("mounts", i, "host"), mount.host),
            (("mounts", i, "container"), mount.container),
        ]
    return found


@dataclass(frozen=True, kw_only=True)
class ExposeConfig:
    """The whole file."""

    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {"goneGrace": ""}
    HINT: ClassVar[str] = "version, namespace and resources"

    version: int = key(check=_check_version, hint="write 'version: 1'")
    namespace: str = key(check=_check_namespace, hint="a domain of yours, for example example.com")
    scan_interval: float = key(
        default=5.0, parse=parse_duration, check=_check_interval, hint="for example 5s or 500ms"
    )
    resources: tuple[ResourceRule, ...] = key(unique="name", not_empty=True)


def load_expose_config(file: Path) -> tuple[ExposeConfig, Report]:
    """Read `file`; raises `CannotRead`, or `ConfigError` with every mistake in it."""
    return load_config(file, ExposeConfig)
