"""What a rule cannot do in mode dra is refused, with its place and the reason."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from kubedevices.cli import main
from kubedevices.config.keys import schema_fields
from kubedevices.errors import ConfigError
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.not_in_dra import NOT_IN_DRA
from kubedevices.proxy.proxy import Proxy
from kubedevices.proxy.proxy_config import ProxyConfig, ProxyRule
from kubedevices.rules.share import ShareRule

REFUSED = {
    "share: {replicas: 2, perContainer: 1}": "share.perContainer: not in mode dra: a claim says",
    "share: {replicas: 2, distinct: true}": "share.distinct: not in mode dra: the scheduler",
    "share: {replicas: 2, allocation: pack}": "share.allocation: not in mode dra: the scheduler",
    "inject: {annotations: {a.example.com/b: c}}": "inject.annotations: not in mode dra: cont",
    "inject: {cdi: true}": "inject.cdi: not in mode dra: containers get",
    "faults: {dropStreamEvery: 1s}": "faults.dropStreamEvery: not in mode dra: a kubelet opens",
    "faults: {neverList: true}": "faults.neverList: not in mode dra: a kubelet opens no",
    "faults: {wrongIDs: true}": "faults.wrongIDs: not in mode dra: the scheduler chooses",
    f"rename: {'x' * 60}.com/y": "rename: not in mode dra: .*at most 63 characters",
}

WORKS = {
    "record.file", "record.maxSize", "record.files", "record.redactEnv", "repair", "filter.ids",
    "filter.numa", "split.rules", "split.rest", "rename", "cordon", "health.unhealthyAfter",
    "health.healthyAfter", "health.maxFlaps", "health.recoverAfter", "health.checks",
    "health.ignore", "health.recover", "share.replicas", "share.rules", "hold", "allocateWait",
    "holdOverReboot", "inject.env", "inject.mounts", "inject.devices", "inject.cdiDevices",
    "faults.allocateDelay", "faults.failAllocateEvery", "faults.hangAllocateEvery",
    "faults.refuse", "faults.preStart", "faults.timeline", "faults.control",
}  # fmt: skip
"""The keys that have their effect in DRA; `test_every_rule_in_every_mode` shows the effects."""


def keys_of(schema: type, prefix: str = "") -> Iterator[str]:
    """The keys of a rule, and the keys of its parts, but not those of list elements."""
    for name, (_, kind, _) in schema_fields(schema).items():
        inner = next((each for each in (kind, *get_args(kind)) if is_part(each)), None)
        if inner is None or prefix:
            yield prefix + name
        else:
            yield from keys_of(inner, f"{name}.")


def is_part(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def write(directory: Path, rule: str) -> Path:
    file = directory / "proxy.yaml"
    file.write_text(f"resources:\n  example.com/gpu:\n    {rule}\n")
    return file


def test_every_key_works_in_dra_or_has_a_reason() -> None:
    """A new key of a rule needs a decision: a row of the table, or a place in this list."""
    table = set()
    for row in NOT_IN_DRA:
        names, schema = [], ProxyRule
        for field in row.fields:
            found = {each[0].name: (name, each[1]) for name, each in schema_fields(schema).items()}
            name, kind = found[field]
            names.append(name)
            schema = next((each for each in (kind, *get_args(kind)) if is_part(each)), schema)
        table.add(".".join(names))
    assert sorted(WORKS | table) == sorted(keys_of(ProxyRule))
    assert not WORKS & table


@pytest.mark.parametrize("rule", REFUSED)
def test_check_names_what_mode_dra_cannot_do(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With file, line and key; as a device plugin the file is right."""
    file = write(tmp_path, rule)
    arguments = ["proxy", "--config", str(file), "--check"]
    assert main(arguments) == 0
    assert main([*arguments, "--mode", "dra"]) != 0
    said = capsys.readouterr().err
    assert re.search(rf"{file}:3:\d+: resources\S*{REFUSED[rule]}", said), said


def test_names_of_cdi_devices_among_annotations_work(tmp_path: Path) -> None:
    """They become names of CDI devices in the answer to the kubelet."""
    file = write(tmp_path, 'inject: {annotations: {cdi.k8s.io/x: "vendor.com/gpu=1"}}')
    assert main(["proxy", "--config", str(file), "--check", "--mode", "dra"]) == 0


def test_a_proxy_in_mode_dra_does_not_start_with_such_a_rule(tmp_path: Path) -> None:
    """A rule without a file has no line, but a key and the reason."""
    rule = ProxyRule(share=ShareRule(replicas=2, distinct=True))
    rules = LiveRules(ProxyConfig(resources={"example.com/gpu": rule}))
    with pytest.raises(ConfigError, match=r"share\.distinct: not in mode dra"):
        Proxy(socket_dir=tmp_path, state_dir=tmp_path, rules=rules, dra={})
    Proxy(socket_dir=tmp_path, state_dir=tmp_path, rules=rules)


def test_a_reload_refuses_such_a_rule(tmp_path: Path) -> None:
    """The rules from before stay in force."""
    rules = LiveRules.from_file(write(tmp_path, "hold: 5m"))
    rules.use_in_dra()
    assert rules.follower is not None
    config, report = rules.follower._load(write(tmp_path, "faults: {neverList: true}"))
    with pytest.raises(ConfigError, match="not in mode dra"):
        rules.follower.apply(config, report)
    found = rules.of("example.com/gpu")
    assert found is not None
    assert found.hold == 300
