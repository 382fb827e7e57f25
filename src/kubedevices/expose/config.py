"""The schema of the YAML file of `kubedevices expose`, with every rule.

    version: 1
    namespace: devices.example.com
    resources:
    - name: serial                          # becomes devices.example.com/serial
      match: [{path: /dev/ttyUSB*}]         # every match becomes a device
      container: {path: "/dev/ttyS{index}"}

This module only checks the file. `expose_host` and `expose_tree` look at the host.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from kubedevices.config.checks import numa_node, path_template, replicas, template
from kubedevices.config.durations import duration
from kubedevices.config.keys import Complain, KeyPath, key, varied_key
from kubedevices.config.placeholders import placeholders
from kubedevices.config.yaml_config import load_config
from kubedevices.config.yaml_source import SourceProblems
from kubedevices.expose import checks
from kubedevices.expose.checks import OF_THE_NODE, PLACEHOLDERS
from kubedevices.expose.match_keys import Match
from kubedevices.expose.path_patterns import PathPattern
from kubedevices.plugin.allocate_response import Inject
from kubedevices.plugin.allocation_policy import POLICIES
from kubedevices.rules.health_gate import SHORTEST_INTERVAL, Check


@dataclass(frozen=True, kw_only=True)
class ContainerSide:
    """How a container sees the device."""

    HINT: ClassVar[str] = "write 'container: {path: /dev/...}'"

    path: str = key(
        "where the container sees the device",
        default="{path}",
        check=path_template(*checks.BEFORE_CONTAINER_PATH),
    )
    permissions: str = key(
        "one or more of r, w and m (mknod)", default="rw", check=checks.permissions
    )


@dataclass(frozen=True, kw_only=True)
class MountRule:
    """A file or directory of the host that a container gets with the device."""

    HINT: ClassVar[str] = "write '- host: /path'"

    host: str = key("path on the host", check=path_template(*PLACEHOLDERS))
    container: str = key(
        "path in the container, by default that of the host",
        default="",
        check=path_template(*PLACEHOLDERS),
    )
    read_only: bool = key("whether the container may only read it", default=False)


@dataclass(frozen=True, kw_only=True)
class Companion:
    """A device file that a container gets with the device, or all files that a glob matches.

    An empty value means the value of the resource.
    """

    HINT: ClassVar[str] = "write '- /dev/...' or '- {path: /dev/..., container: /dev/...}'"

    path: str = key(
        "path on the host; * ? and [...] match any number of files", check=checks.companion
    )
    container: str = key(
        "path in the container, by default that of the host; of a glob, the directory",
        default="",
        check=path_template(*OF_THE_NODE),
    )
    permissions: str = key(
        "one or more of r, w and m, by default those of the device",
        default="",
        check=checks.permissions,
    )
    optional: bool | None = key("true: a device exists even if this file is missing", default=None)


@dataclass(frozen=True, kw_only=True)
class ExposedHealthRule(Check):
    """A check of whether a device works: the content of a file, or the exit code of a command."""

    HINT: ClassVar[str] = "write 'health: {file: /sys/..., equals: ok}' or {command: [...]}"
    ONE_OF: ClassVar[tuple[str, ...]] = ("file", "command")

    file: str | None = varied_key(Check, "file", check=path_template(*PLACEHOLDERS))
    command: tuple[str, ...] = varied_key(Check, "command", check=template(*PLACEHOLDERS))


@dataclass(frozen=True, kw_only=True)
class ResourceRule:
    """One resource: its device files, and what a container gets with each."""

    HINT: ClassVar[str] = "write '- name: ...' and 'match: [...]'"

    name: str = key(
        "the part of the resource name after the slash; with {name}, {n} or {address} each "
        "match becomes a resource",
        check=checks.resource_template,
    )
    match: tuple[Match, ...] = key(
        "alternatives; each match becomes a device", not_empty=True, hint="write '- path: /dev/...'"
    )
    exclude: tuple[PathPattern, ...] = key(
        "globs of paths to leave out",
        default=(),
        parse=PathPattern,
        hint="a list of paths, wildcards allowed",
    )
    id: Literal["stable", "path", "index"] = key(
        "how a device is named: by a name that survives unplugging, by its path, or by a number",
        default="stable",
    )
    container: ContainerSide = key("how a container sees the device", default_factory=ContainerSide)
    env: Mapping[str, str] = key(
        "variables of the container; placeholders allowed",
        default_factory=dict,
        check=template(*PLACEHOLDERS),
        check_key=checks.env_name,
    )
    mounts: tuple[MountRule, ...] = key(
        "files and directories that a container gets with each device", default=()
    )
    with_: tuple[str | Companion, ...] = key(
        "further device files that a container gets with each device",
        name="with",
        default=(),
        check=checks.companion,
        hint=Companion.HINT,
    )
    optional: bool = key("true: a device exists even if a file of 'with' is missing", default=False)
    replicas: int = key(
        "number of containers that may share each device", default=1, check=replicas
    )
    rename_shared: bool = key("with replicas, the resource has the name NAME.shared", default=False)
    fail_requests_greater_than_one: bool = key(
        "refuse a container that asks for several devices", default=False
    )
    allocation: str = key("which devices to allocate first", default="none", choices=(*POLICIES,))
    topology: Literal["auto", "none"] | tuple[int, ...] = key(
        "NUMA nodes: auto asks the kernel, none, or a list of numbers",
        default="auto",
        check=numa_node,
        hint="auto, none, or a list such as [0]",
    )
    health: ExposedHealthRule | None = key(
        "a check of whether a device works", default=None, without=("sysfs",)
    )
    gone_grace: float | None = duration(
        "how long a removed device stays in the list as Unhealthy", default=None
    )
    inject: Inject | None = key(
        "how a container gets the device: as device files, as a CDI device, or both", default=None
    )

    @property
    def companions(self) -> tuple[Companion, ...]:
        """The files of `with`, each as a `Companion`."""
        return tuple(
            each if isinstance(each, Companion) else Companion(path=each) for each in self.with_
        )

    @property
    def is_template(self) -> bool:
        """Whether each match becomes a resource, see `expose_names`."""
        return bool(placeholders(self.name))

    @property
    def device_type(self) -> str:
        """The resource's name after the slash, in the form that pods use."""
        return _device_type(self.name, self.rename_shared, self.replicas)

    @property
    def numa_nodes(self) -> tuple[int, ...] | None:
        """The value for `Device.numa_nodes`."""
        if isinstance(self.topology, tuple):
            return self.topology
        return None if self.topology == "auto" else ()

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Check the served name, and that every placeholder has a value."""
        device_type = _device_type(
            values.get("name", "x"), values.get("rename_shared", False), values.get("replicas", 1)
        )
        if problem := checks.resource_template(device_type):
            complain(("renameShared",), f"the name would be {device_type!r}: {problem}", "")
        matches = values.get("match", ())
        if not matches:
            return
        fewest = min(matches, key=lambda match: match.wildcards)
        by_path = next((match for match in matches if match.path or match.directory), None)
        for path, text in _templates(values):
            for name in placeholders(text):
                number = 1 if name == "n" else int(name) if name.isdecimal() else 0
                if number > fewest.wildcards:
                    count = f"{fewest.wildcards or 'no'} wildcard{'s' * (fewest.wildcards > 1)}"
                    complain(path, f"{{{name}}} has no value: {fewest.text} has {count}", "")
                elif name == "address" and by_path:
                    complain(path, f"{{address}} has no value: {by_path.text} is a path", "")


def _device_type(name: str, rename_shared: bool, replicas: int) -> str:
    return f"{name}.shared" if rename_shared and replicas > 1 else name


def _templates(values: Mapping[str, Any]) -> list[tuple[KeyPath, str]]:
    """Return every text with placeholders of a resource, with its key path."""
    found: list[tuple[KeyPath, str]] = [(("name",), values.get("name", ""))]
    if container := values.get("container"):
        found.append((("container", "path"), container.path))
    found += [(("env", name), name + text) for name, text in values.get("env", {}).items()]
    for i, each in enumerate(values.get("with_", ())):
        text = each if isinstance(each, str) else each.path + each.container
        found.append((("with", i), text))
    for i, mount in enumerate(values.get("mounts", ())):
        found += [
            (("mounts", i, "host"), mount.host),
            (("mounts", i, "container"), mount.container),
        ]
    if health := values.get("health"):
        found.append((("health", "file"), health.file or ""))
        found += [(("health", "command", i), text) for i, text in enumerate(health.command)]
    return found


@dataclass(frozen=True, kw_only=True)
class ExposeConfig:
    """The whole file."""

    HINT: ClassVar[str] = "version, namespace and resources"

    version: int = key(
        "the version of this format: 1", check=checks.version, hint="write 'version: 1'"
    )
    namespace: str = key(
        "the part of every resource name before the slash",
        check=checks.namespace,
        hint="your domain, for example example.com",
    )
    scan_interval: float = duration(
        "pause between two looks, such as 5s",
        default=5.0,
        least=SHORTEST_INTERVAL,
        hint="for example 5s or 500ms",
    )
    gone_grace: float = duration(
        "how long a removed device stays in the list as Unhealthy", default=30.0
    )
    resources: tuple[ResourceRule, ...] = key(
        "the resources to serve", unique="name", not_empty=True
    )

    def gone_grace_of(self, rule: ResourceRule) -> float:
        """Return for how many seconds a removed device of `rule` is reported as Unhealthy."""
        return self.gone_grace if rule.gone_grace is None else rule.gone_grace

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Check that resources have different names, and that names are valid kinds for CDI."""
        first: dict[str, str] = {}
        for i, rule in enumerate(values.get("resources", ())):
            is_cdi = rule.inject in {"cdi", "both"} and "namespace" in values
            if is_cdi and (problem := checks.cdi_kind(f"{values['namespace']}/{rule.device_type}")):
                complain(("resources", i, "inject"), problem, "only 'nodes' is possible")
            other = first.setdefault(rule.device_type, rule.name)
            if other != rule.name:
                text = f"the resource {other!r} already has the name {rule.device_type!r}"
                complain(("resources", i, "name"), text, "")


def load_expose_config(file: Path) -> tuple[ExposeConfig, SourceProblems]:
    """Read `file`; raises `CannotRead`, or `ConfigError` with all mistakes in the file."""
    return load_config(file, ExposeConfig)
