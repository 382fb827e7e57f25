"""The file of the proxy: what it says, and what is wrong with it, each with its line."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from kubedevices.config.json_schema import make_schema
from kubedevices.errors import ConfigError, UsageError
from kubedevices.proxy import live_rules
from kubedevices.proxy.live_rules import LiveRules
from kubedevices.proxy.proxy_config import (
    ProxyConfig,
    ProxyRule,
    load_proxy_config,
    served_names,
)
from kubedevices.rules.health_gate import Check
from kubedevices.rules.inject_rule import InjectRule
from kubedevices.values.device import DeviceSpec, Mount
from tests.turns import Turns
from tests.waiting import until


def write(directory: Path, text: str) -> Path:
    file = directory / "proxy.yaml"
    file.write_text(text)
    return file


def mistakes(directory: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_proxy_config(write(directory, text))
    return [str(each).removeprefix(f"{directory}/proxy.yaml:") for each in refused.value.problems]


def test_every_key(tmp_path: Path) -> None:
    """What the file says is what the rule is."""
    config, _ = load_proxy_config(
        write(
            tmp_path,
            """
            unlisted: hide
            resources:
              nvidia.com/gpu:
                record: {file: /var/log/gpu.jsonl, maxSize: 1000, files: 2, redactEnv: true}
                repair: off
                cordon: off
                filter: {ids: ["bad*"], numa: [1]}
                split:
                  rules: [{to: gpu-big, ids: ["A*"], numa: [0], pci: {vendor: 10de, class: "03"}}]
                  rest: drop
                rename: "example.com/{name}"
                hold: 5m
                allocateWait: 30s
                holdOverReboot: true
                share:
                  replicas: 4
                  rules: [{ids: "GPU-a*", replicas: 8}]
                  perContainer: 1
                  distinct: true
                  allocation: pack
                health:
                  unhealthyAfter: 5s
                  healthyAfter: 30s
                  maxFlaps: 3
                  recoverAfter: 1h
                  checks: [{command: [test, -e, "/dev/{id}"], interval: 5s, failAfter: 1}]
                  ignore: [old*]
                  recover: {file: "/sys/{id}", equals: ok, okAfter: 1}
                inject:
                  env: {GPU_IDS: "{id}"}
                  mounts: [{host: /opt/gpu, container: /opt, readOnly: false}]
                  devices: [{host: /dev/gpuctl, permissions: rwm}]
                  annotations: {a: b}
                  cdiDevices: [vendor.com/gpu=all]
                  cdi: true
            """,
        )
    )
    rule = config.resources["nvidia.com/gpu"]
    assert config.unlisted == "hide"
    assert rule.record is not None
    assert (rule.record.max_size, rule.record.redact_env) == (1000, True)
    assert not rule.cordon
    assert (rule.repair, rule.hold, rule.allocate_wait, rule.hold_over_reboot) == (
        False, 300.0, 30.0, True,
    )  # fmt: skip
    assert rule.split is not None
    assert rule.split.rules[0].pci is not None
    assert rule.split.rules[0].pci.device_class == "03"
    assert rule.share is not None
    assert (rule.share.per_container, rule.share.rules[0].replicas) == (1, 8)
    assert served_names("nvidia.com/gpu", rule) == ("example.com/gpu-big",)
    assert rule.health is not None
    assert (rule.health.unhealthy_after, rule.health.max_flaps) == (5.0, 3)
    assert (rule.health.checks[0].interval, rule.health.recover) == (
        5.0,
        Check(file="/sys/{id}", equals="ok", ok_after=1),
    )
    assert rule.inject == InjectRule(
        env={"GPU_IDS": "{id}"},
        mounts=(Mount("/opt/gpu", "/opt"),),
        devices=(DeviceSpec("/dev/gpuctl", permissions="rwm"),),
        annotations={"a": "b"},
        cdi_devices=("vendor.com/gpu=all",),
        cdi=True,
    )
    schema = make_schema(ProxyConfig, "kubedevices proxy")
    known = schema["properties"]["resources"]["additionalProperties"]["properties"]
    assert {*known} > {"share", "hold", "rename", "inject"}


def test_the_exact_name_comes_before_patterns(tmp_path: Path) -> None:
    """Then the first pattern that fits; what nothing names passes, or is hidden."""
    text = """
        resources:
          intel.com/*: {hold: 1m}
          "*/qat": {hold: 2m}
          intel.com/sgx: {hold: 3m}
        """
    config, _ = load_proxy_config(write(tmp_path, text))
    held = {name: config.find(name) for name in ("intel.com/qat", "amd.com/qat", "intel.com/sgx")}
    assert [(each[0], each[1].hold) for each in held.values() if each] == [
        ("intel.com/*", 60.0),
        ("*/qat", 120.0),
        ("intel.com/sgx", 180.0),
    ]
    assert config.find("amd.com/gpu") == ("", ProxyRule())
    config, _ = load_proxy_config(write(tmp_path, f"        unlisted: hide{text}"))
    assert config.find("amd.com/gpu") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("resources:\n  a.com/b: {shared: {}}", "2:13: resources.a.com/b.shared: unknown key"),
        ("resources:\n  gpu: {hold: 5m}", "2:3: resources.gpu: it needs a domain"),
        ("resources:\n  a.com/*: {rename: 'b/c/d'}", "2:21: resources.a.com/*.rename: it must"),
        ("resources:\n  a.com/*: {rename: 'b.com/{id}'}", "{id} has no value"),
        ("resources:\n  a.com/b: {share: {replicas: 0}}", "must be from 1 to 1000"),
        ("resources:\n  a.com/b: {hold: 5}", "must be text, not a number"),
        ("resources:\n  a.com/b: {allocateWait: 5s}", "2:27: resources.a.com/b.allocateWait"),
        ("resources:\n  a.com/b: {filter: {}}", "one of ids, numa is needed"),
        ("resources:\n  a.com/b: {split: {rules: [{to: x.com/y, ids: [a]}]}}", "after the slash"),
        (
            "resources:\n  a.com/b: {rename: c.com/d}\n  c.com/d: {hold: 5m}",
            "3:12: resources.c.com/d: c.com/d is also the outside name of a.com/b",
        ),
        (
            "resources:\n  a.com/*: {rename: c.com/d}",
            "2:21: resources.a.com/*.rename: every resource of this pattern would be c.com/d",
        ),
        (
            "resources:\n  a.com/b: {split: {rules: [{to: x, ids: [a]}]}, rename: c.com/d}",
            "only devices that are not split off",
        ),
        (
            "resources:\n  a.com/*: {record: {file: /r.jsonl}}",
            "2:28: resources.a.com/*.record.file: every resource of this pattern would be",
        ),
        (
            "resources:\n  a.com/b: {inject: {env: {A: '{no}'}}}",
            "2:31: resources.a.com/b.inject.env.A: unknown placeholder",
        ),
        ("resources:\n  a.com/b: {inject: {mounts: [{host: a, container: /b}]}}", "absolute path"),
        ("unlisted: drop", "must be pass or hide"),
        ("resources:\n  a.com/b: {health: {maxFlaps: -1}}", "maxFlaps: must be 0 or more"),
        ("resources:\n  a.com/b: {faults: {failAllocateEvery: 0}}", "Every: must be 1 or more"),
        ("resources:\n  a.com/b: {faults: {hangAllocateEvery: 0}}", "Every: must be 1 or more"),
        (
            "resources:\n  a.com/b: {health: {checks: [{command: [a], interval: 0s}]}}",
            "interval: shorter than 100ms",
        ),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, text: str, told: str) -> None:
    """File, line, column, key, what is wrong."""
    assert any(told in each for each in mistakes(tmp_path, text)), mistakes(tmp_path, text)


def test_a_rule_without_a_plugin_gives_a_warning(tmp_path: Path) -> None:
    """With their line; a pattern that something fits is not among them."""
    rules = LiveRules.from_file(
        write(tmp_path, "resources:\n  a.com/*: {hold: 5m}\n  b.com/c: {hold: 5m}\n")
    )
    told = [str(each) for each in rules.unused(["a.com/x", "d.com/e"])]
    assert len(told) == 1
    assert ":3:12: resources.b.com/c: no plugin of this name" in told[0]


@pytest.mark.parametrize(
    ("rule", "key", "place"),
    [
        ("filter: {ids: [a, x*]}", "filter", "2:31: resources.a.com/b.filter.ids[1]"),
        (
            "split: {rules: [{to: c, ids: [x*]}]}",
            "split",
            "2:43: resources.a.com/b.split.rules[0].ids[0]",
        ),
        (
            "share: {rules: [{ids: x*, replicas: 2}]}",
            "share",
            "2:35: resources.a.com/b.share.rules[0].ids",
        ),
        ("health: {ignore: [x*]}", "health", "2:31: resources.a.com/b.health.ignore[0]"),
    ],
)
def test_a_glob_that_matches_no_device_has_its_line(
    tmp_path: Path, rule: str, key: str, place: str
) -> None:
    """Where rules came from no file, the text stands alone."""
    file = write(tmp_path, f"resources:\n  a.com/b: {{{rule}}}\n")
    told = LiveRules.from_file(file).with_place("a.com/b", key, "x*", "fits nothing")
    assert told == f"{file}:{place}: fits nothing (is it misspelt?)"
    assert LiveRules().with_place("a.com/b", key, "x*", "fits nothing") == "fits nothing"


async def test_the_warning_of_an_unused_rule_comes_once_for_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a change the plugins have the same time again to register."""
    file = write(tmp_path, "resources:\n  b.com/c: {hold: 5m}\n")
    rules = LiveRules.from_file(file)
    assert rules.follower is not None
    change = partial(rules.follower.apply, *load_proxy_config(file))
    pause, told = asyncio.sleep, list[int]()

    async def sleep(_seconds: float) -> None:
        told.append(caplog.text.count("no plugin of this name"))
        if len(told) == 1:
            change()
        await pause(0)

    monkeypatch.setattr(live_rules, "asyncio", SimpleNamespace(sleep=sleep))
    watching = asyncio.create_task(rules.watch([]))
    async with Turns() as turns:
        await until(lambda: turns.count > 20)
        assert told == [0, 0], "one warning, after the second pause"
        change()
        await until(lambda: len(told) > 2)
    assert told == [0, 0, 1]
    watching.cancel()
    await asyncio.wait({watching})


def test_the_outside_name_of_a_resource_that_is_gone_is_free() -> None:
    """Another plugin may serve under it, by the rule that it has."""
    rule = ProxyRule(rename="c.com/y")
    rules = LiveRules(ProxyConfig(resources={"*/x": rule}))
    rules.reserve_names("a.com/x", rule)
    with pytest.raises(UsageError, match=r"c\.com/y is already the outside name of a\.com/x"):
        rules.reserve_names("b.com/x", rule)
    rules.release_names("a.com/x")
    rules.reserve_names("b.com/x", rule)
