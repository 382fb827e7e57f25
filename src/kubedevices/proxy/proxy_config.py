"""What may stand in the YAML file of `kubedevices proxy`: the schema, with every rule.

    resources:
      nvidia.com/gpu:
        share: {replicas: 4, distinct: true}
        hold: 5m
      intel.com/*:                        # a resource without rules of its own
        rename: "example.com/{name}"

The order of the middleware is fixed (`proxy.chain`), so the order of keys means nothing.
"""

# ruff: noqa: RUF009  # `key` makes a field, not a value

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from kubedevices.config.durations import parse_duration
from kubedevices.config.yaml_config import Complain, key, load_config
from kubedevices.config.yaml_source import Report
from kubedevices.errors import ConfigError, ConfigProblem
from kubedevices.middleware.replicas import SPREADINGS
from kubedevices.middleware.share import REPLICAS_LIMIT
from kubedevices.resource_name import ResourceName, explain_resource_name

_DURATION_HINT = "for example 30s or 5m"
_LAST_NUMA_NODE = 1023
_WILDCARDS = re.compile(r"\*|\?|\[[^]/]*\]")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def _replicas(count: int) -> str:
    return "" if 1 <= count <= REPLICAS_LIMIT else f"must be from 1 to {REPLICAS_LIMIT}"


def _at_least_1(count: int) -> str:
    return "" if count >= 1 else "must be 1 or more"


def _one_of(*words: str) -> Any:
    listed = " or ".join(words)
    return lambda text: "" if text in words else f"must be {listed}, not {text!r}"


def _pattern(text: str) -> str:
    """Check a resource name with wildcards."""
    return explain_resource_name(_WILDCARDS.sub("x", text))


def _new_name(text: str) -> str:
    """Check a resource name with placeholders."""
    for name in _PLACEHOLDER.findall(text):
        if name not in {"name", "domain"}:
            return f"{{{name}}} stands for nothing; known: {{name}} and {{domain}}"
    return explain_resource_name(_PLACEHOLDER.sub("x", text))


def _type(text: str) -> str:
    if "/" in text:
        return f"{text!r}: write only the part after the slash; the domain stays, or is renamed"
    return explain_resource_name(f"example.com/{text}")


def _numa_node(number: int) -> str:
    return "" if 0 <= number <= _LAST_NUMA_NODE else f"{number} is no NUMA node"


def _absolute(text: str) -> str:
    return "" if text.startswith("/") else "an absolute path is needed"


@dataclass(frozen=True, kw_only=True)
class ShareOfKey:
    """How many replicas some devices have."""

    HINT: ClassVar[str] = "write '{ids: \"GPU-a*\", replicas: 8}'"

    ids: str = key(meaning="glob of device IDs")
    replicas: int = key(meaning="replicas of each of these devices", check=_replicas)


@dataclass(frozen=True, kw_only=True)
class ShareKey:
    """Several containers per device."""

    HINT: ClassVar[str] = "write 'share: {replicas: 4}'"

    replicas: int = key(
        meaning="replicas of each device that no rule names", default=1, check=_replicas
    )
    rules: tuple[ShareOfKey, ...] = key(
        meaning="replicas of some devices; the first that fits", default=()
    )
    per_container: int | None = key(
        meaning="the most replicas that one container may have", default=None, check=_at_least_1
    )
    distinct: bool = key(
        meaning="whether replicas of one container must be of different devices", default=False
    )
    allocation: str = key(
        meaning="whether the least or the most used devices are given first",
        default="spread",
        check=_one_of(*SPREADINGS),
        choices=SPREADINGS,
    )


@dataclass(frozen=True, kw_only=True)
class RecordKey:
    """A record of what passes."""

    HINT: ClassVar[str] = "write 'record: {file: /var/log/gpu.jsonl}'"

    file: str = key(
        meaning="where the lines are written; {name} and {domain} stand for the parts of the name",
        check=_absolute,
    )
    max_size: int = key(
        meaning="bytes after which the next file begins", default=10 * 2**20, check=_at_least_1
    )
    files: int = key(meaning="how many files are kept", default=5, check=_at_least_1)
    redact_env: bool = key(
        meaning="whether the values of environment variables are left out", default=False
    )


@dataclass(frozen=True, kw_only=True)
class FilterKey:
    """Devices that are left out."""

    HINT: ClassVar[str] = "write 'filter: {ids: [\"GPU-bad*\"]}'"
    ANY_OF: ClassVar[tuple[str, ...]] = ("ids", "numa")

    ids: tuple[str, ...] = key(meaning="globs of device IDs", default=())
    numa: tuple[int, ...] = key(meaning="NUMA nodes", default=(), check=_numa_node)


@dataclass(frozen=True, kw_only=True)
class PciKey:
    """What a PCI function must be; everything given must fit."""

    HINT: ClassVar[str] = """write 'pci: {vendor: "10de", device: "20*"}'"""
    ANY_OF: ClassVar[tuple[str, ...]] = ("vendor", "device", "class", "driver", "address")

    vendor: str | None = key(meaning="vendor ID in hexadecimal, a glob", default=None)
    device: str | None = key(meaning="device ID in hexadecimal, a glob", default=None)
    class_: str | None = key(
        meaning="class or its beginning: 03 is every display controller", name="class", default=None
    )
    driver: str | None = key(meaning="the driver it is bound to, a glob", default=None)
    address: str | None = key(meaning="such as 0000:3b:00.0, a glob", default=None)


@dataclass(frozen=True, kw_only=True)
class SplitPartKey:
    """Devices that become another resource; everything given must fit."""

    HINT: ClassVar[str] = "write '{to: gpu-a100, ids: [\"GPU-a*\"]}'"
    ANY_OF: ClassVar[tuple[str, ...]] = ("ids", "numa", "pci")

    to: str = key(meaning="the resource's name after the slash", check=_type)
    ids: tuple[str, ...] = key(meaning="globs of device IDs", default=())
    numa: tuple[int, ...] = key(meaning="NUMA nodes", default=(), check=_numa_node)
    pci: PciKey | None = key(meaning="what the PCI function of the device is", default=None)


@dataclass(frozen=True, kw_only=True)
class SplitKey:
    """One resource as several."""

    HINT: ClassVar[str] = "write 'split: {rules: [{to: gpu-a100, ids: [\"GPU-a*\"]}]}'"

    rules: tuple[SplitPartKey, ...] = key(
        meaning="the first that fits a device says its resource", not_empty=True
    )
    rest: str = key(
        meaning="whether devices that fit no rule stay in the resource or are left out",
        default="keep",
        check=_one_of("keep", "drop"),
        choices=("keep", "drop"),
    )


@dataclass(frozen=True, kw_only=True)
class ResourceRule:
    """What becomes of one resource, or of each that a pattern names."""

    HINT: ClassVar[str] = "write 'example.com/gpu: {hold: 5m}'"

    record: RecordKey | None = key(meaning="record what passes", default=None)
    mend: bool = key(meaning="whether faults of the plugin's answers are made good", default=True)
    filter: FilterKey | None = key(meaning="devices that are left out", default=None)
    split: SplitKey | None = key(meaning="one resource as several", default=None)
    rename: str | None = key(
        meaning="another name; {name} and {domain} stand for the parts of the name before",
        default=None,
        check=_new_name,
        hint='for example "example.com/{name}"',
    )
    share: ShareKey | None = key(meaning="several containers per device", default=None)
    hold: float | None = key(
        meaning="how long the list stays as it was while the plugin is away",
        default=None,
        parse=parse_duration,
        hint=_DURATION_HINT,
    )
    allocate_wait: float = key(
        meaning="how long all calls of one absence together wait for the plugin",
        default=10.0,
        parse=parse_duration,
        hint=_DURATION_HINT,
    )
    hold_over_reboot: bool = key(
        meaning="whether the last list is offered before the plugin is back after a reboot",
        default=False,
    )

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Check what belongs together."""
        if values.get("split") and "{name}" not in (values.get("rename") or "{name}"):
            text = "only what is not split off would have this name"
            complain(("rename",), text, "write {name} where the old name is to stand")
        if values.get("hold") is None:
            for name in ("allocateWait", "holdOverReboot"):
                field = "allocate_wait" if name == "allocateWait" else "hold_over_reboot"
                if field in values:
                    complain((name,), "it means nothing without hold", "write 'hold: 5m', too")


_PLAIN = ResourceRule()


@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """The whole file."""

    HINT: ClassVar[str] = "resources"

    unlisted: str = key(
        meaning="what becomes of resources that no key below `resources` names",
        default="pass",
        check=_one_of("pass", "hide"),
        choices=("pass", "hide"),
    )
    resources: Mapping[str, ResourceRule] = key(
        meaning="rules by resource name; a name may have wildcards",
        default_factory=dict,
        check_key=_pattern,
    )

    def find(self, resource: str) -> tuple[str, ResourceRule] | None:
        """Return the rule of an inside resource, and the key that it stands under.

        A key that is the very name comes first, then the first pattern that fits. A resource that
        nothing names has the key "". None: it is not to be served.
        """
        if resource in self.resources:
            return resource, self.resources[resource]
        for name, rule in self.resources.items():
            if fnmatchcase(resource, name):
                return name, rule
        return ("", _PLAIN) if self.unlisted == "pass" else None


def is_pattern(name: str) -> bool:
    """Whether the key of a rule has wildcards."""
    return _WILDCARDS.search(name) is not None


def load_proxy_config(file: Path) -> tuple[ProxyConfig, Report]:
    """Read `file`; raises `CannotRead`, or `ConfigError` with every mistake in it."""
    config, report = load_config(file, ProxyConfig)
    if problems := [*_merging_patterns(config, report), *_doubled_names(config, report)]:
        raise ConfigError(problems)
    return config, report


def _merging_patterns(config: ProxyConfig, report: Report) -> list[ConfigProblem]:
    """Return patterns that give one name, or one file, to all of their resources."""
    shared = [
        report.place(("resources", name, "record", "file"))._replace(
            problem="every resource of this pattern would be recorded there",
            suggestion="write {name} where the name is to stand",
        )
        for name, rule in config.resources.items()
        if is_pattern(name) and rule.record and not _PLACEHOLDER.search(rule.record.file)
    ]
    return shared + [
        report.place(("resources", name, "rename"))._replace(
            problem=f"every resource of this pattern would be {rule.rename}",
            suggestion="write {name} where the name is to stand",
        )
        for name, rule in config.resources.items()
        if is_pattern(name) and rule.rename and not _PLACEHOLDER.search(rule.rename)
    ]


def _doubled_names(config: ProxyConfig, report: Report) -> list[ConfigProblem]:
    """Return rules of different resources that produce one name."""
    makers: dict[str, list[str]] = defaultdict(list)
    for name, rule in config.resources.items():
        if not is_pattern(name):
            for made in served_names(name, rule):
                makers[made].append(name)
    return [
        report.place(("resources", name))._replace(
            problem=f"{made} is what {names[0]} becomes, too",
            suggestion="choose another name for one of them",
        )
        for made, names in makers.items()
        for name in names[1:]
    ]


def served_names(resource: str, rule: ResourceRule) -> tuple[str, ...]:
    """Return what a resource is called outside: several names if it is split."""
    inside = ResourceName.parse(resource)
    types = [part.to for part in rule.split.rules] if rule.split else []
    if rule.split is None or rule.split.rest == "keep":
        types.append(inside.device_type)
    return tuple(dict.fromkeys(str(renamed(inside, each, rule.rename)) for each in types))


def renamed(inside: ResourceName, device_type: str, name: str | None) -> ResourceName:
    """Return what a type that comes from `inside` is called outside; raises `InvalidResourceName`.

    `name` has placeholders; without any it is meant for what is not split off.
    """
    if name is None:
        return ResourceName(inside.domain, device_type)
    domain, _, text = name.replace("{domain}", inside.domain).partition("/")
    domain = domain.replace("{name}", inside.device_type)
    if "{name}" not in text and device_type != inside.device_type:
        return ResourceName(domain, device_type)
    return ResourceName(domain, text.replace("{name}", device_type))
