"""The schema of the YAML file of `kubedevices proxy`, and the rule of each resource in it.

    resources:
      nvidia.com/gpu:
        share: {replicas: 4, distinct: true}
        hold: 5m
      intel.com/*:                        # a resource without rules of its own
        rename: "example.com/{name}"

The order of the middleware is fixed (`proxy.middleware_chain`), so the order of keys does not
matter.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal

from kubedevices.config.checks import absolute
from kubedevices.config.keys import Complain, Declared, KeyPath, key, varied_key
from kubedevices.config.yaml_config import load_config
from kubedevices.config.yaml_source import SourceProblems
from kubedevices.errors import ConfigError, ConfigProblem
from kubedevices.rules.faults import FaultRule
from kubedevices.rules.filter import FilterRule
from kubedevices.rules.health_rule import HealthRule
from kubedevices.rules.hold_rule import HoldRule
from kubedevices.rules.inject_rule import InjectRule
from kubedevices.rules.record_file import RecordRule
from kubedevices.rules.share import ShareRule
from kubedevices.rules.split import SplitRule
from kubedevices.values.resource_name import ResourceName, explain_resource_name

_WILDCARDS = re.compile(r"\*|\?|\[[^]/]*\]")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def _pattern(text: str) -> str:
    """Check a resource name with wildcards."""
    return explain_resource_name(_WILDCARDS.sub("x", text))


def _new_name(text: str) -> str:
    """Check a resource name with placeholders."""
    for name in _PLACEHOLDER.findall(text):
        if name not in {"name", "domain"}:
            return f"{{{name}}} has no value; known: {{name}} and {{domain}}"
    return explain_resource_name(_PLACEHOLDER.sub("x", text))


@dataclass(frozen=True, kw_only=True)
class ProxyFaults(FaultRule):
    """Faults on purpose, also by a socket."""

    control: str | None = key(
        "a socket for `kubedevices simulate --tell`, which sets the health of devices",
        default=None,
        check=absolute,
    )


@dataclass(frozen=True, kw_only=True)
class ProxyRule(Declared):
    """The rule of one resource, or of each resource that a pattern matches."""

    HINT: ClassVar[str] = "write 'example.com/gpu: {hold: 5m}'"

    record: RecordRule | None = key("record all lists and calls in a file", default=None)
    repair: bool = key(
        "whether faults in the plugin's lists and answers are repaired", default=True
    )
    filter: FilterRule | None = key("devices that are left out", default=None)
    split: SplitRule | None = key("several resources from one", default=None)
    rename: str | None = key(
        "another name; {name} and {domain} stand for the parts of the old name",
        default=None,
        check=_new_name,
        hint='for example "example.com/{name}"',
    )
    cordon: bool = key("whether `kubedevices cordon` can cordon devices", default=True)
    health: HealthRule | None = key(
        "damping of health changes, and checks beside the plugin's health", default=None
    )
    share: ShareRule | None = key("several containers per device", default=None)
    hold: float | None = varied_key(HoldRule, "hold")
    allocate_wait: float = varied_key(HoldRule, "allocate_wait")
    hold_over_reboot: bool = key(
        "whether the last list is offered after a reboot, before the plugin registers",
        default=False,
    )

    inject: InjectRule | None = key(
        "additions to the plugin's answer, for every container", default=None
    )
    faults: ProxyFaults | None = key("faults on purpose, for tests", default=None)

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        """Check keys that depend on each other."""
        if values.get("split") and "{name}" not in (values.get("rename") or "{name}"):
            text = "only devices that are not split off would have this name"
            complain(("rename",), text, "write {name} where the old name belongs")
        HoldRule.validate(values, complain)
        if values.get("hold") is None and "hold_over_reboot" in values:
            complain(("holdOverReboot",), "no effect without hold", "add 'hold: 5m'")


_PLAIN = ProxyRule()


@dataclass(frozen=True, kw_only=True)
class ProxyConfig(Declared):
    """The whole file."""

    HINT: ClassVar[str] = "resources"

    unlisted: Literal["pass", "hide"] = key(
        "whether resources that no key below `resources` matches are served", default="pass"
    )
    resources: Mapping[str, ProxyRule] = key(
        "rules by resource name; a name may have wildcards",
        default_factory=dict,
        check_key=_pattern,
    )

    def find(self, resource: str) -> tuple[str, ProxyRule] | None:
        """Return the key and the rule of an inside resource; None if it is not to be served.

        A key that equals the name comes first, then the first pattern that matches. For a resource
        that no key matches, the key is "".
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


def has_placeholder(name: str) -> bool:
    """Whether a new name has `{name}` or `{domain}`."""
    return _PLACEHOLDER.search(name) is not None


def load_proxy_config(file: Path) -> tuple[ProxyConfig, SourceProblems]:
    """Read `file`; raises `CannotRead`, or `ConfigError` with all mistakes in the file."""
    config, report = load_config(file, ProxyConfig)
    if problems := [*_merging_patterns(config, report), *_doubled_names(config, report)]:
        raise ConfigError(problems)
    return config, report


def _merging_patterns(config: ProxyConfig, report: SourceProblems) -> list[ConfigProblem]:
    """Return patterns that give the same name, or the same file, to all of their resources."""
    shared = [
        report.place(("resources", name, "record", "file"))._replace(
            problem="every resource of this pattern would be recorded in this file",
            suggestion="write {name} where the name belongs",
        )
        for name, rule in config.resources.items()
        if is_pattern(name) and rule.record and not has_placeholder(rule.record.file)
    ]
    return shared + [
        report.place(("resources", name, "rename"))._replace(
            problem=f"every resource of this pattern would be {rule.rename}",
            suggestion="write {name} where the name belongs",
        )
        for name, rule in config.resources.items()
        if is_pattern(name) and rule.rename and not has_placeholder(rule.rename)
    ]


def _doubled_names(config: ProxyConfig, report: SourceProblems) -> list[ConfigProblem]:
    """Return rules of different resources that produce the same name."""
    makers: dict[str, list[str]] = defaultdict(list)
    for name, rule in config.resources.items():
        if not is_pattern(name):
            for made in served_names(name, rule):
                makers[made].append(name)
    return [
        report.place(("resources", name))._replace(
            problem=f"{made} is also the outside name of {names[0]}",
            suggestion="choose another name for one of them",
        )
        for made, names in makers.items()
        for name in names[1:]
    ]


def served_names(resource: str, rule: ProxyRule) -> tuple[str, ...]:
    """Return the outside names of an inside resource: several names if it is split."""
    inside = ResourceName.parse(resource)
    types = [part.to for part in rule.split.rules] if rule.split else []
    if rule.split is None or rule.split.rest == "keep":
        types.append(inside.device_type)
    return tuple(dict.fromkeys(str(renamed(inside, each, rule.rename)) for each in types))


def places_of_globs(rule: ProxyRule, key: str) -> Mapping[str, Sequence[KeyPath]]:
    """Return the places in the file of each glob of IDs below `key` of a rule."""
    found: dict[str, list[KeyPath]] = defaultdict(list)
    listed: list[tuple[KeyPath, Sequence[str]]] = []
    if key == "filter" and rule.filter:
        listed = [((key, "ids"), rule.filter.ids)]
    elif key == "health" and rule.health:
        listed = [((key, "ignore"), rule.health.ignore)]
    elif key == "split" and rule.split:
        listed = [((key, "rules", i, "ids"), each.ids) for i, each in enumerate(rule.split.rules)]
    elif key == "share" and rule.share:
        for i, share in enumerate(rule.share.rules):
            found[share.ids].append((key, "rules", i, "ids"))
    for path, globs in listed:
        for i, glob in enumerate(globs):
            found[glob].append((*path, i))
    return found


def renamed(inside: ResourceName, device_type: str, name: str | None) -> ResourceName:
    """Return the outside name of a type that comes from `inside`; raises `InvalidResourceName`.

    `name` may have placeholders. Without them it is the name of devices that are not split off.
    """
    if name is None:
        return ResourceName(inside.domain, device_type)
    domain, _, text = name.replace("{domain}", inside.domain).partition("/")
    domain = domain.replace("{name}", inside.device_type)
    if "{name}" not in text and device_type != inside.device_type:
        return ResourceName(domain, device_type)
    return ResourceName(domain, text.replace("{name}", device_type))
