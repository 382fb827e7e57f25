"""A driver that shares no code with ours keeps all rules, and each of its defects breaks one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubedevices.check.drivers.rights import Right
from kubedevices.check.drivers.rules import ALL
from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import QUICK
from tests.check.defective_driver import DEFECTS
from tests.check.grpc_driver.defects import all_defects
from tests.check.grpc_driver_rig import FAST, LONGER, grpc_driver, with_needs
from tests.check.rig import NO_PROSE, found

QUICKLY_TRIED = ("register.info", "prepare.repeat", "unprepare.others", "state.cdi-wiped")
"""Only these defects are tried in the fast tests: each needs drivers of its own."""

WITHOUT_DEFECT = {"rights.unused", "rights.wide", "rights.other-nodes"}
"""They judge the ClusterRole alone: `test_driver_rights`."""

GRANTED = frozenset(
    {
        *(Right("resourceslices", verb) for verb in ("list", "watch", "create", "update")),
        Right("resourceslices", "delete"),
        Right("resourceclaims", "get"),
        Right("nodes", "get"),
    }
)
ELSEWHERE = {
    *("slices.empty", "slices.generation", "slices.many", "unprepare.device-gone"),
    *("register.idle", "rights.unused"),
}
"""Rules that need another trigger, half an hour, or the right to delete slices only if it is used:
the driver deletes them rarely."""

BESIDE = tuple(
    rule.id
    for rule in ALL
    if not rule.slow and not rule.track and rule.id not in ("slices.quiet", "health.stays-open")
)
"""The rules that share a copy of the driver and do not wait: they are tried with each defect."""

PIECES = {"process.dies": ("process.dies", "slices.quiet")}
"""What has to run so that a defect shows."""


def _param(rule: str) -> Any:
    return pytest.param(rule, marks=() if rule in QUICKLY_TRIED else pytest.mark.slow)


async def test_the_driver_is_well_behaved(short_dir: Path) -> None:
    """Every rule that needs neither long waits nor a copy of its own passes."""
    chosen = [rule for rule in ALL if not rule.slow and not rule.track]
    results = (await run_driver(grpc_driver(short_dir / "devices"), chosen, FAST)).results
    assert not [each.verdict for each in results if each.status.value != "pass"]
    assert not [each for each in results if NO_PROSE.search(each.verdict.evidence)]


@pytest.mark.slow
async def test_the_driver_keeps_every_rule(short_dir: Path) -> None:
    """Also those with a trigger, and with a copy of the driver for each rule."""
    target = replace(grpc_driver(short_dir / "devices"), granted=GRANTED, guarded=True)
    timing = replace(QUICK.scaled(2), repaired=60)
    results = (await run_driver(target, ALL, timing)).results
    bad = {each.check.id: each.verdict for each in results if each.status.value != "pass"}
    assert {*bad} <= ELSEWHERE, bad


ALIKE = {
    "prepare.requests": {"prepare.twice"},
    "health.stays-open": {"health.two-watchers"},
    "unprepare.object-gone": {"unprepare.api-away"},
}
"""Rules that fail too, because the defect shows itself there as well."""


@pytest.mark.parametrize("rule", [_param(rule) for rule in all_defects()])
async def test_a_defect_breaks_its_rule_alone(short_dir: Path, rule: str) -> None:
    """The rule finds it, and nothing else fails; other rules may warn."""
    target = replace(grpc_driver(short_dir / "devices", rule), granted=GRANTED)
    beside = () if rule in (*QUICKLY_TRIED, *PIECES) else BESIDE
    rules = with_needs([*PIECES.get(rule, (rule,)), *beside])
    results = (await run_driver(target, rules, LONGER.get(rule, FAST))).results
    (result,) = [each for each in results if each.check.id == rule]
    assert result.status.value == result.check.severity.value, result.verdict
    others = {name for name, status in found(results).items() if status == "fail"} - {rule}
    others -= ALIKE.get(rule, set())
    assert not others, [each.verdict for each in results if each.check.id in others]
    assert not NO_PROSE.search(result.verdict.evidence)


def test_each_rule_has_a_defect() -> None:
    """Only rules about a ClusterRole need no driver."""
    ours = {*DEFECTS, "prepare.config-order"}  # `test_driver_parameters` has its defects
    assert {rule.id for rule in ALL} == all_defects().keys() | WITHOUT_DEFECT | ours
