"""A driver that shares no code with ours keeps all rules, and each of its defects breaks one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubedevices.check.drivers.rules import ALL, CATALOGUE
from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import TRIGGERED
from kubedevices.check.drivers.timing import QUICK
from tests.check.grpc_driver.defects import all_defects, rule_of
from tests.check.grpc_driver_rig import (
    AFTER,
    FAST,
    LONGER,
    WRONG_ROLES,
    grpc_driver,
    with_needs,
)
from tests.check.rig import NO_PROSE, found

DEFECTS = (*all_defects(), *WRONG_ROLES)
QUICKLY_TRIED = (
    *("register.info", "prepare.repeat", "prepare.exclusive", "unprepare.others"),
    *("state.cdi-wiped", "rights.wide"),
)
"""Only these defects are tried in the fast tests: each needs drivers of its own."""

ELSEWHERE = {*AFTER, "register.idle", "rights.unused"}
"""Rules that need another trigger, half an hour, or the right to delete slices only if it is used:
the driver deletes them rarely."""

BESIDE = tuple(rule.id for rule in ALL if not rule.slow and not rule.track)
"""The rules that share a copy of the driver and do not wait: they are tried with each defect."""

PIECES = {
    "process.dies": ("process.dies", "slices.quiet"),
    "process.dies/bad-claim": ("process.dies", "prepare.unknown-device"),
    "register.idle": ("register.idle",),
    "unprepare.cleans/keeps-the-device": ("unprepare.cleans",),
}
"""What has to run, and nothing else, so that a defect shows."""

CHANGES = tuple(rule.id for rule in ALL if rule.track == TRIGGERED)


def _param(defect: str) -> Any:
    return pytest.param(defect, marks=() if defect in QUICKLY_TRIED else pytest.mark.slow)


async def test_the_driver_is_well_behaved(short_dir: Path) -> None:
    """Every rule that needs neither long waits nor a copy of its own passes."""
    chosen = [rule for rule in ALL if not rule.slow and not rule.track]
    results = (await run_driver(grpc_driver(short_dir / "devices"), chosen, FAST)).results
    assert not [each.verdict for each in results if each.status.value != "pass"]
    assert not [each for each in results if NO_PROSE.search(each.verdict.evidence)]


@pytest.mark.slow
async def test_the_driver_keeps_every_rule(short_dir: Path) -> None:
    """Also those with a trigger, and with a copy of the driver for each rule."""
    timing = replace(QUICK.scaled(2), repaired=60)
    results = (await run_driver(grpc_driver(short_dir / "devices"), ALL, timing)).results
    bad = {each.check.id: each.verdict for each in results if each.status.value != "pass"}
    assert {*bad} <= ELSEWHERE, bad


@pytest.mark.slow
@pytest.mark.parametrize("rule", AFTER)
async def test_the_driver_keeps_rules_with_other_triggers(short_dir: Path, rule: str) -> None:
    """With the trigger of the rule; no other rule fails."""
    target = grpc_driver(short_dir / "devices", after=AFTER[rule])
    results = (await run_driver(target, with_needs(*CHANGES), FAST)).results
    assert [each.status.value for each in results if each.check.id == rule] == ["pass"]
    assert "fail" not in found(results).values(), found(results)


@pytest.mark.slow
async def test_no_copies_run_at_the_same_time(short_dir: Path) -> None:
    """If the user does not want it, also for a rule that tries each error on a copy."""
    good, twice = grpc_driver(short_dir / "devices"), short_dir / "twice"
    script = f'exec 9> {short_dir}/lock; flock -n 9 || touch {twice}; exec "$@"'
    target = replace(good, command=("sh", "-c", script, "sh", *good.command), at_once=1)
    rules = with_needs("slices.deleted-one", "slices.conflict", "slices.unhealthy")
    results = (await run_driver(target, rules, FAST)).results
    assert {each.status.value for each in results} == {"pass"}, [each.verdict for each in results]
    assert not twice.exists()


ALIKE = {
    "process.dies/bad-claim": {"prepare.unknown-device"},
    "prepare.requests": {"prepare.twice"},
    "prepare.requests/for-all": {"prepare.foreign"},
    "prepare.exclusive/never-looks": {"prepare.shares"},
    "slices.unhealthy": {"health.recovers"},
    "health.stays-open": {"health.two-watchers"},
    "unprepare.half": {"prepare.foreign"},  # of the claim with an unknown pool
    "unprepare.object-gone": {"unprepare.api-away"},
}
"""Rules that fail too, because the defect shows itself there as well."""

WEAKER = {
    "prepare.config-strict/any-version": "warn",
    "prepare.unknown-device/any-pool": "warn",
    "register.stop/cuts-a-call": "warn",
    "slices.refused/silent": "warn",
    "state.checkpoint-cut/silent": "warn",
}
"""Defects of which a rule only warns that fails for others."""


@pytest.mark.parametrize("defect", [_param(defect) for defect in DEFECTS])
async def test_a_defect_breaks_its_rule_alone(short_dir: Path, defect: str) -> None:
    """The rule finds it, and nothing else fails; other rules may warn."""
    rule = CATALOGUE.find(rule_of(defect))
    beside = () if defect in (*QUICKLY_TRIED, *PIECES) else BESIDE
    if rule.track == TRIGGERED:
        beside = (*beside, *CHANGES)
    rules = with_needs(*PIECES.get(defect, (rule.id,)), *beside)
    target = grpc_driver(short_dir / "devices", defect)
    results = (await run_driver(target, rules, LONGER.get(rule.id, FAST))).results
    (result,) = [each for each in results if each.check.id == rule.id]
    assert result.status.value == WEAKER.get(defect, rule.severity.value), result.verdict
    others = {name for name, status in found(results).items() if status == "fail"} - {rule.id}
    others -= ALIKE.get(defect, set())
    assert not others, [each.verdict for each in results if each.check.id in others]
    assert not NO_PROSE.search(result.verdict.evidence)


def test_each_rule_has_a_defect() -> None:
    """So a rule that never fires cannot be added."""
    assert {rule.id for rule in ALL} == {*map(rule_of, DEFECTS)}
