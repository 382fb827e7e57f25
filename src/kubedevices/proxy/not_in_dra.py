"""The keys of a rule that the proxy cannot follow in mode dra, each with the reason. Pure.

A test compares this table with all keys of a rule: a new key works in DRA, or has a row here.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kubedevices.config.keys import KeyPath, format_key, key_names
from kubedevices.config.yaml_source import SourceProblems
from kubedevices.dra.names import check_driver_name
from kubedevices.errors import ConfigError, ConfigProblem, InvalidResourceName
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule, has_placeholder, is_pattern
from kubedevices.values.cdi.container_annotations import PREFIX


def _has_plain_annotations(annotations: Any) -> bool:
    return any(not each.startswith(PREFIX) for each in annotations)


class NotInDra(NamedTuple):
    """A key that DRA cannot follow; `is_used` returns whether its value needs it."""

    fields: tuple[str, ...]
    """The names of the fields from `ProxyRule` down."""

    why: str
    instead: str
    is_used: Callable[[Any], bool] = bool


_CHOOSES = "the scheduler chooses the devices of a claim"
_NO_STREAM = "a kubelet opens no ListAndWatch stream to a DRA driver"
_REMOVE = "remove the key"

NOT_IN_DRA = (
    NotInDra(("share", "per_container"), "a claim says how many shares it has", _REMOVE),
    NotInDra(
        ("share", "distinct"),
        _CHOOSES,
        "remove the key, and write in the claim: constraints: [{distinctAttribute: DOMAIN/id}]",
    ),
    NotInDra(("share", "allocation"), _CHOOSES, _REMOVE, lambda value: value != "spread"),
    NotInDra(
        ("inject", "annotations"),
        "containers get what a claim has by CDI, which has no annotations",
        f"use env; only annotations {PREFIX}… work, as names of CDI devices",
        _has_plain_annotations,
    ),
    NotInDra(("inject", "cdi"), "containers get everything of a claim by CDI already", _REMOVE),
    NotInDra(("faults", "drop_stream_every"), _NO_STREAM, _REMOVE),
    NotInDra(("faults", "never_list"), _NO_STREAM, _REMOVE),
    NotInDra(("faults", "wrong_ids"), f"{_CHOOSES}, and asks no plugin", _REMOVE),
)


def refuse_in_dra(config: ProxyConfig, report: SourceProblems | None) -> None:
    """Raise `ConfigError` if mode dra cannot follow a rule of `config`.

    `report` has the places of the keys; None if the rules come from no file.
    """
    problems = []
    for path, problem, instead in _problems(config):
        place = ConfigProblem("the rules", 0, 0, format_key(path), "")
        if report is not None:
            place = report.place(path)
        problems.append(place._replace(problem=f"not in mode dra: {problem}", suggestion=instead))
    if problems:
        raise ConfigError(sorted(problems, key=lambda each: (each.line, each.column)))


def _problems(config: ProxyConfig) -> Iterator[tuple[KeyPath, str, str]]:
    for name, rule in config.resources.items():
        yield from _driver_name(name, rule)
        for row in NOT_IN_DRA:
            value: Any = rule
            path: KeyPath = ("resources", name)
            for field in row.fields:
                if value is None:
                    break
                path = (*path, key_names(type(value))[field])
                value = getattr(value, field)
            if value is not None and row.is_used(value):
                yield path, row.why, row.instead


def _driver_name(name: str, rule: ProxyRule) -> Iterator[tuple[KeyPath, str, str]]:
    """Report a domain that cannot be the name of a driver; patterns say nothing about a domain."""
    path: KeyPath = ("resources", name) if rule.rename is None else ("resources", name, "rename")
    text = name if rule.rename is None else rule.rename
    domain = text.partition("/")[0]
    if is_pattern(domain) or has_placeholder(domain):
        return
    try:
        check_driver_name(domain)
    except InvalidResourceName as error:
        yield path, f"{domain}: {error.rule}", "rename the resource to a shorter domain"
