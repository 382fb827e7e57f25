"""What one door refuses, every door refuses: Python, the files of proxy, expose and simulate, and
the control socket of a simulator. And what one accepts, every door accepts."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from kubedevices.config.keys import Declared, schema_fields
from kubedevices.config.yaml_config import load_config
from kubedevices.errors import ConfigError, UsageError
from kubedevices.expose.config import load_expose_config
from kubedevices.proxy.proxy_config import ProxyFaults, ProxyRule, load_proxy_config
from kubedevices.rules.device_selector import PciRule
from kubedevices.rules.faults import FaultRule, HealthChange, PreStart
from kubedevices.rules.filter import FilterRule
from kubedevices.rules.health_gate import Check
from kubedevices.rules.health_rule import HealthRule
from kubedevices.rules.hold_rule import HoldRule
from kubedevices.rules.inject_rule import InjectRule
from kubedevices.rules.record_file import RecordRule
from kubedevices.rules.share import ShareOf, ShareRule
from kubedevices.rules.split import SplitPart, SplitRule
from kubedevices.simulate.config import SimulatorConfig
from kubedevices.simulate.simulation_file import SimulatorFile, read_simulator_file
from kubedevices.simulate.step_keys import SetRule, step_of
from kubedevices.values.device import DeviceSpec, Health, Mount

Door = Callable[[Path, str], Any]
"""Reads the YAML text of a rule; raises `UsageError` for a wrong rule."""


def proxy(place: str) -> Door:
    def door(file: Path, text: str) -> Any:
        file.write_text(f"resources:\n  a.com/b:\n    {place.replace('RULE', text)}\n")
        return load_proxy_config(file)

    return door


def simulate(place: str) -> Door:
    def door(file: Path, text: str) -> Any:
        file.write_text(f"resourceName: a.com/b\n\n{place.replace('RULE', text)}\n")
        return read_simulator_file(file)

    return door


def expose(place: str) -> Door:
    def door(file: Path, text: str) -> Any:
        resource = f"{{name: x, match: [{{path: /dev/x}}], {place.replace('RULE', text)}}}"
        file.write_text(f"version: 1\nnamespace: a.com\nresources: [{resource}]\n")
        return load_expose_config(file)

    return door


def control_socket(key: str) -> Door:
    def door(_: Path, text: str) -> Any:
        return step_of({key: json.loads(json.dumps(yaml.safe_load(text)))})

    return door


DOORS: dict[type, list[Door]] = {
    RecordRule: [proxy("record: RULE")],
    FilterRule: [proxy("filter: RULE")],
    SplitRule: [proxy("split: RULE")],
    SplitPart: [proxy("split: {rules: [RULE]}")],
    PciRule: [proxy("split: {rules: [{to: x, pci: RULE}]}")],
    HealthRule: [proxy("health: RULE")],
    Check: [
        proxy("health: {checks: [RULE]}"),
        proxy("health: {recover: RULE}"),
        expose("health: RULE"),
    ],
    ShareRule: [proxy("share: RULE")],
    ShareOf: [proxy("share: {rules: [RULE]}")],
    InjectRule: [proxy("inject: RULE")],
    FaultRule: [
        proxy("faults: RULE"),
        simulate("faults: RULE"),
        simulate("timeline: [{at: 1s, faults: RULE}]"),
        control_socket("faults"),
    ],
    PreStart: [proxy("faults: {preStart: RULE}"), simulate("preStart: RULE")],
    HealthChange: [proxy("faults: {timeline: [RULE]}")],
    SetRule: [simulate("timeline: [{at: 1s, set: RULE}]"), control_socket("set")],
    ProxyFaults: [proxy("faults: RULE")],
    HoldRule: [proxy("RULE")],
    ProxyRule: [proxy("RULE")],
}

ONLY_PROXY = {"sysfs", "pre_start", "timeline"}
"""Keys that only files of the proxy have at these places."""

PART = SplitPart(to="x", ids=("a",))
UNHEALTHY = {"health": Health.UNHEALTHY}

RIGHT: list[tuple[type, dict[str, Any], str]] = [
    (RecordRule, {"file": "/x", "max_size": 1, "files": 1}, "{file: /x, maxSize: 1, files: 1}"),
    (FilterRule, {"numa": (0, 1023)}, "{numa: [0, 1023]}"),
    (SplitRule, {"rules": (PART,), "rest": "drop"}, "{rules: [{to: x, ids: [a]}], rest: drop}"),
    (SplitPart, {"to": "x", "ids": ("a",)}, "{to: x, ids: [a]}"),
    (PciRule, {"device_class": "03"}, "{class: '03'}"),
    (HealthRule, {"max_flaps": 0, "recover_after": 0.5}, "{maxFlaps: 0, recoverAfter: 500ms}"),
    (Check, {"file": "/x/{id}", "equals": "1"}, "{file: '/x/{id}', equals: '1'}"),
    (Check, {"command": ("a",), "interval": 0.1}, "{command: [a], interval: 100ms}"),
    (ShareRule, {"replicas": 1000, "per_container": 1}, "{replicas: 1000, perContainer: 1}"),
    (ShareOf, {"ids": "a*", "replicas": 1}, "{ids: a*, replicas: 1}"),
    (InjectRule, {"mounts": (Mount("/a", "/b"),)}, "{mounts: [{host: /a, container: /b}]}"),
    (FaultRule, {"refuse": ("a",), "never_list": True}, "{refuse: [a], neverList: true}"),
    (ProxyFaults, {"control": "/x"}, "{control: /x}"),
    (PreStart, {"delay": 60.0, "fail_every": 1}, "{delay: 1m, failEvery: 1}"),
    (HealthChange, {"at": 0.0, "id": "a", **UNHEALTHY}, "{at: 0s, id: a, health: Unhealthy}"),
    (SetRule, UNHEALTHY, "{health: Unhealthy}"),
    (HoldRule, {"hold": 0.0, "allocate_wait": 0.5}, "{hold: 0s, allocateWait: 500ms}"),
    (ProxyRule, {"hold": 60.0, "rename": "a.com/{name}"}, "{hold: 1m, rename: 'a.com/{name}'}"),
]

WRONG: list[tuple[type, dict[str, Any], str]] = [
    (RecordRule, {"file": "x"}, "{file: x}"),
    (RecordRule, {"file": "/x", "max_size": 0}, "{file: /x, maxSize: 0}"),
    (RecordRule, {"file": "/x", "files": 0}, "{file: /x, files: 0}"),
    (FilterRule, {}, "{}"),
    (FilterRule, {"numa": (-1,)}, "{numa: [-1]}"),
    (FilterRule, {"numa": (1024,)}, "{numa: [1024]}"),
    (FilterRule, {"ids": "a"}, "{ids: a}"),
    (SplitRule, {"rules": ()}, "{rules: []}"),
    (SplitRule, {"rules": (PART,), "rest": "x"}, "{rules: [{to: x, ids: [a]}], rest: x}"),
    (SplitPart, {"to": "x"}, "{to: x}"),
    (SplitPart, {"to": "a/b", "ids": ("a",)}, "{to: a/b, ids: [a]}"),
    (SplitPart, {"to": "x", "numa": (-1,)}, "{to: x, numa: [-1]}"),
    (PciRule, {}, "{}"),
    (HealthRule, {"unhealthy_after": -1.0}, "{unhealthyAfter: -1s}"),
    (HealthRule, {"healthy_after": 367 * 86400.0}, "{healthyAfter: 8808h}"),
    (HealthRule, {"recover_after": float("nan")}, "{recoverAfter: nan}"),
    (HealthRule, {"max_flaps": -1}, "{maxFlaps: -1}"),
    (Check, {}, "{}"),
    (Check, {"file": "x"}, "{file: x}"),
    (Check, {"file": "/x/{no}"}, "{file: '/x/{no}'}"),
    (Check, {"file": "/x/{id"}, "{file: '/x/{id'}"),
    (Check, {"file": "/x", "command": ("a",)}, "{file: /x, command: [a]}"),
    (Check, {"sysfs": "../x"}, "{sysfs: ../x}"),
    (Check, {"sysfs": ""}, "{sysfs: ''}"),
    (Check, {"command": ("",)}, "{command: ['']}"),
    (Check, {"command": ("{no}",)}, "{command: ['{no}']}"),
    (Check, {"command": ("a",), "equals": "1"}, "{command: [a], equals: '1'}"),
    (Check, {"file": "/x", "interval": 0.099}, "{file: /x, interval: 99ms}"),
    (Check, {"file": "/x", "fail_after": 0}, "{file: /x, failAfter: 0}"),
    (Check, {"file": "/x", "fail_after": 1001}, "{file: /x, failAfter: 1001}"),
    (Check, {"file": "/x", "ok_after": 0}, "{file: /x, okAfter: 0}"),
    (ShareRule, {"replicas": 0}, "{replicas: 0}"),
    (ShareRule, {"replicas": 1001}, "{replicas: 1001}"),
    (ShareRule, {"per_container": 0}, "{perContainer: 0}"),
    (ShareRule, {"allocation": "best"}, "{allocation: best}"),
    (ShareOf, {"ids": "a", "replicas": 0}, "{ids: a, replicas: 0}"),
    (InjectRule, {"env": {"A": "{no}"}}, "{env: {A: '{no}'}}"),
    (InjectRule, {"env": {"A=B": "1"}}, "{env: {A=B: '1'}}"),
    (InjectRule, {"annotations": {"a": "{"}}, "{annotations: {a: '{'}}"),
    (InjectRule, {"cdi_devices": ("v.com/x={no}",)}, "{cdiDevices: ['v.com/x={no}']}"),
    (
        InjectRule,
        {"mounts": (Mount("/{no}", "/b"),)},
        "{mounts: [{host: '/{no}', container: /b}]}",
    ),
    (InjectRule, {"mounts": (Mount("a", "/b"),)}, "{mounts: [{host: a, container: /b}]}"),
    (InjectRule, {"devices": (DeviceSpec("/a", "b"),)}, "{devices: [{host: /a, container: b}]}"),
    (
        InjectRule,
        {"devices": (DeviceSpec("/a", permissions="x"),)},
        "{devices: [{host: /a, permissions: x}]}",
    ),
    (FaultRule, {"allocate_delay": -1.0}, "{allocateDelay: -1s}"),
    (FaultRule, {"fail_allocate_every": -1}, "{failAllocateEvery: -1}"),
    (FaultRule, {"hang_allocate_every": -1}, "{hangAllocateEvery: -1}"),
    (FaultRule, {"drop_stream_every": 1e-9}, "{dropStreamEvery: 0s}"),
    (FaultRule, {"refuse": ("",)}, "{refuse: ['']}"),
    (PreStart, {"delay": -1.0}, "{delay: -1s}"),
    (PreStart, {"fail_every": -1}, "{failEvery: -1}"),
    (HealthChange, {"at": -1.0, **UNHEALTHY}, "{at: -1s, health: Unhealthy}"),
    (HealthChange, {"at": 0.0, "health": "Sick"}, "{at: 0s, health: Sick}"),
    (HealthChange, {"at": 0.0, "id": "", **UNHEALTHY}, "{at: 0s, id: '', health: Unhealthy}"),
    (SetRule, {"health": "Sick"}, "{health: Sick}"),
    (SetRule, {"id": "", **UNHEALTHY}, "{id: '', health: Unhealthy}"),
    (HoldRule, {"hold": -1.0}, "{hold: -1s}"),
    (HoldRule, {"hold": 1.0, "allocate_wait": -1.0}, "{hold: 1s, allocateWait: -1s}"),
    (HoldRule, {"allocate_wait": 1.0}, "{allocateWait: 1s}"),
    (ProxyRule, {"hold": -1.0}, "{hold: -1s}"),
    (ProxyRule, {"hold": 1.0, "allocate_wait": -1.0}, "{hold: 1s, allocateWait: -1s}"),
    (ProxyRule, {"allocate_wait": 1.0}, "{allocateWait: 1s}"),
    (ProxyRule, {"hold_over_reboot": True}, "{holdOverReboot: true}"),
    (ProxyRule, {"rename": "a.com/{no}"}, "{rename: 'a.com/{no}'}"),
    (
        ProxyRule,
        {"split": SplitRule(rules=(PART,)), "rename": "a.com/b"},
        "{split: {rules: [{to: x, ids: [a]}]}, rename: a.com/b}",
    ),
    (ProxyFaults, {"control": "x"}, "{control: x}"),
]


def doors_of(rule: type, values: dict[str, Any]) -> list[Door]:
    return DOORS[rule][: 1 if ONLY_PROXY & values.keys() else None]


@pytest.mark.parametrize(("rule", "values", "text"), RIGHT)
def test_every_door_accepts(rule: type, values: dict[str, Any], text: str, tmp_path: Path) -> None:
    """The same value comes through each door of a rule; the files prove that the doors work."""
    rule(**values)
    for door in doors_of(rule, values):
        door(tmp_path / "file.yaml", text)


@pytest.mark.parametrize(("rule", "values", "text"), WRONG)
def test_every_door_refuses(rule: type, values: dict[str, Any], text: str, tmp_path: Path) -> None:
    """Python names class and field, a file also its line, the third of each file here."""
    with pytest.raises(UsageError, match=rf"^{rule.__name__}\W"):
        rule(**values)
    for door in doors_of(rule, values):
        with pytest.raises(UsageError) as refused:
            door(tmp_path / "file.yaml", text)
        if isinstance(refused.value, ConfigError):
            assert {each.line for each in refused.value.problems} == {3}


@pytest.mark.parametrize("number", [0, 1001])
def test_expose_has_the_replicas_of_the_proxy(number: int, tmp_path: Path) -> None:
    """Its key is no rule of `rules`, but the same check is declared for it."""
    with pytest.raises(UsageError) as of_python:
        ShareRule(replicas=number)
    with pytest.raises(ConfigError) as of_expose:
        expose(f"replicas: {number}")(tmp_path / "expose.yaml", "")
    (problem,) = of_expose.value.problems
    assert str(of_python.value) == f"ShareRule.replicas: {problem.problem}"


def test_a_key_that_a_place_does_not_have_is_refused_in_python_too(tmp_path: Path) -> None:
    """A simulated resource has its faults of PreStartContainer beside its other faults."""
    with pytest.raises(UsageError, match=r"SimulatorConfig\.faults: preStart is not possible here"):
        SimulatorConfig(faults=FaultRule(pre_start=PreStart(delay=1.0)))
    with pytest.raises(ConfigError, match=r"faults\.preStart: unknown key") as refused:
        load_config(write(tmp_path, "faults: {preStart: {delay: 1s}}\n"), SimulatorFile)
    assert [each.line for each in refused.value.problems] == [1]


def write(directory: Path, text: str) -> Path:
    file = directory / "simulate.yaml"
    file.write_text(text)
    return file


def keys_below(schema: type) -> Iterator[tuple[type, str]]:
    for each in schema_fields(schema).values():
        yield schema, each.field.name


@pytest.mark.parametrize(("rule", "field"), [each for rule in DOORS for each in keys_below(rule)])
def test_a_value_of_another_type_is_refused(rule: type, field: str, tmp_path: Path) -> None:
    """For every key of every rule, in Python as in a file."""
    _, values, text = next(each for each in RIGHT if each[0] is rule)
    nonsense = {"x": {"y": "z"}}
    with pytest.raises(UsageError, match=rule.__name__):
        rule(**{**values, field: nonsense})
    key = next(name for name, each in schema_fields(rule).items() if each.field.name == field)
    written = json.dumps({**yaml.safe_load(text), key: nonsense})
    for door in doors_of(rule, {field: nonsense}):
        with pytest.raises(UsageError, match=key):
            door(tmp_path / "file.yaml", written)


def test_every_check_of_a_key_is_among_the_wrong_values() -> None:
    """A new key with a check needs a row, and a new rule needs doors."""
    tried = {(rule, name) for rule, values, _ in WRONG for name in values}
    tried |= {(ProxyFaults, name) for rule, name in tried if rule is FaultRule}
    checked = {
        (rule, each.field.name)
        for rule in DOORS
        for each in schema_fields(rule).values()
        if each.rules.check or each.rules.written or each.rules.not_empty
    }
    assert checked <= tried
    assert rules_below(ProxyRule) <= DOORS.keys()


def rules_below(kind: Any) -> set[type]:
    """Return the rules in a type, or in the types of its keys."""
    if not (isinstance(kind, type) and issubclass(kind, Declared)):
        return set[type]().union(*map(rules_below, get_args(kind)))
    schema: type = kind
    return {schema}.union(*(rules_below(each.kind) for each in schema_fields(schema).values()))
