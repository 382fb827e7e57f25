"""`kubedevices check` for DRA drivers: our own pass, and each defect is found by its rule."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from kubedevices.check.check import PluginCheck
from kubedevices.check.drivers.rules import ALL, CATALOGUE
from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.target import QUICK, TRIGGERED, DriverTarget, DriverTiming
from kubedevices.check.results import CheckResult
from kubedevices.errors import DriverNeverRegistered
from tests.check.defective_driver import DEFECTS
from tests.check.rig import NO_PROSE

PROGRAM = (
    *("env", "POD_UID={pod_uid}"),
    *(sys.executable, "-W", "error", "-m", "tests.check.defective_driver"),
)
SIMULATE = ("simulate", "--mode", "dra", "--env-prefix", "GPU", "--number-devices", "3")
PLACES = (
    *("--kubeconfig", "{kubeconfig}", "--kube-node", "{node}"),
    *("--kubelet-dir", "{kubelet_dir}", "--cdi-dir", "{cdi_dir}"),
)
FAST = ("register.info", "slices.quiet", "prepare.repeat", "prepare.exclusive", "unprepare.cleans")
SHOWN_BY = {"process.dies": ("prepare.unknown-device",)}
"""Rules that make a driver do what another rule judges."""

LONG = DriverTiming(
    repaired=15,
    published=15,
    start=60,
    refusing=2,
    absent=0.2,
    quiet=2,
    again=8,
    before_kubelet=1,
    stop=20,
    idle=8,
)


def driver(defect: str) -> DriverTarget:
    """Return our simulator with a defect."""
    is_long = defect == "register.idle"
    return DriverTarget((*PROGRAM, defect, *SIMULATE, *PLACES), long=is_long)


async def judged(defect: str, *rules: str) -> list[CheckResult]:
    """Return the results of rules, and of what they need, for a driver with a defect."""
    return (await run_driver(driver(defect), with_needs(*rules), LONG)).results


def with_needs(*rules: str) -> list[PluginCheck]:
    """Return these rules and those that they need, in the order of reports."""
    wanted = {*rules} | {need for name in rules for need in CATALOGUE.find(name).needs}
    return [rule for rule in ALL if rule.id in wanted]


def _param(rule: str) -> Any:
    """Only one defect of each kind is tried in the fast tests: each needs a driver of its own."""
    return pytest.param(rule, marks=() if rule in FAST else pytest.mark.slow)


async def test_our_simulator_is_well_behaved() -> None:
    """Every rule that needs neither long waits nor a trigger passes."""
    chosen = [rule for rule in ALL if not rule.slow and not rule.track]
    results = (await run_driver(driver("none"), chosen, LONG)).results
    found = {each.check.id: each.verdict for each in results if each.status.value != "pass"}
    assert {*found} == {"prepare.shares", "prepare.config-order"}, found
    assert len(results) == len(chosen)
    assert not [each for each in results if NO_PROSE.search(each.verdict.evidence)]


@pytest.mark.slow
async def test_our_simulator_keeps_every_rule() -> None:
    """Also those with a copy of the driver for each rule."""
    results = (await run_driver(driver("none"), ALL, replace(QUICK.scaled(2), repaired=60))).results
    found = {each.check.id: each.verdict for each in results if each.status.value != "pass"}
    not_tried = {rule.id for rule in ALL if rule.track == TRIGGERED or rule.theme == "rights"}
    not_tried |= {"prepare.shares", "prepare.config-order", "register.idle"}
    assert {*found} == not_tried, found


@pytest.mark.parametrize(
    "rule", [_param(rule) for rule in DEFECTS if CATALOGUE.find(rule).track != TRIGGERED]
)
async def test_a_defect_is_found_by_its_rule(rule: str) -> None:
    """A rule that passes here would pass in a driver that breaks it."""
    results = await judged(rule, rule, *SHOWN_BY.get(rule, ()))
    (result,) = [each for each in results if each.check.id == rule]
    assert result.status.value == result.check.severity.value, result.verdict
    assert result.verdict.evidence
    if rule.startswith("prepare."):  # others quote the driver
        assert not NO_PROSE.search(result.verdict.evidence)


async def test_a_program_that_never_registers() -> None:
    """The error tells it from a driver with mistakes, and what to try."""
    target = DriverTarget(("sh", "-c", "sleep 100 # {kubelet_dir}"))
    with pytest.raises(DriverNeverRegistered, match=r"no registration socket.*\{kubeconfig\}"):
        await run_driver(target, ALL[:1], QUICK.scaled(0.02))
    with pytest.raises(DriverNeverRegistered, match="exit code 7"):
        await run_driver(DriverTarget(("sh", "-c", "exit 7")), ALL[:1], QUICK)
