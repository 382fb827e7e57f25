"""Good plugins with habits of their own: no check cries wolf over them."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.allocation import RegisterRequest
from kubedevices.conformance.checks import ALL
from kubedevices.conformance.harness import Harness
from kubedevices.conformance.harness_setup import open_harness
from kubedevices.conformance.report.document import as_document
from kubedevices.conformance.report.junit import as_junit
from kubedevices.conformance.report.summary import Run
from kubedevices.conformance.results import PLUGIN
from kubedevices.conformance.runner import CheckResult, run_checks
from kubedevices.conformance.target import Target
from kubedevices.probe.arrival import Arrival
from tests.conformance.good_plugin import GoodPlugin
from tests.conformance.rig import FAST, HERE, found, target, widgets
from tests.conformance.unusual_plugin import (
    AllocatesAfterTheSecondTime,
    BothWays,
    HearsSigtermLate,
    KeepsTheMissing,
    NamedBySecondAndBinding,
    NamedBySecondAndRemoving,
    OneAfterTheOther,
    OneLongAfterTheOther,
    PoolOfThreads,
    RegistersOften,
    RegistersTwiceAfterAWait,
    SpeaksV1Alpha,
    WatchesLate,
)
from tests.fake_plugin import RESOURCE, FakePlugin, healthy

pytestmark = pytest.mark.usefixtures("preloaded")

SCRIPT = HERE / "unusual_plugin.py"
SLOWER_THAN_ITS_LIMIT = replace(FAST, registered_soon=1)
"""Two answers to Register take longer than one and the grace that a resource gets."""

WIDGET, GADGET = "example.com/widget", "example.com/gadget"


async def only(habit: type[GoodPlugin], *ids: str, resource: str = "") -> list[CheckResult]:
    """Run some checks on a plugin with a habit; twice if the machine may have stalled."""
    checks = [each for each in ALL if each.id in ids]
    for _ in range(2):
        with widgets() as directory:
            plugin = target(SCRIPT, directory, ("--habit", habit.__name__))
            plugin = replace(plugin, resource=resource)
            results = await run_checks(plugin, checks, SLOWER_THAN_ITS_LIMIT)
        if not found(results):
            break
    return results


@pytest.mark.parametrize(
    ("habit", "name"),
    [
        (OneAfterTheOther, "registration.slow-kubelet"),
        (RegistersTwiceAfterAWait, "life.kubelet-away"),
        (AllocatesAfterTheSecondTime, "life.kubelet-away"),
        (NamedBySecondAndRemoving, "registration.two-instances"),
        (NamedBySecondAndBinding, "registration.stale-socket"),
        (OneAfterTheOther, "registration.unopened-stream"),
        (KeepsTheMissing, "list.recovers"),
        (PoolOfThreads, "life.threads"),
        (WatchesLate, "life.sockets-wiped"),
        (WatchesLate, "life.own-socket-removed"),
        (WatchesLate, "life.descriptors"),
        (HearsSigtermLate, "life.stop-in-allocate"),
    ],
)
async def test_a_habit_is_no_fault(habit: type[GoodPlugin], name: str) -> None:
    """A check that a habit once led astray passes."""
    results = await only(habit, name)
    assert [(each.status, each.verdict.evidence) for each in results if each.status != "pass"] == []
    assert results


async def test_a_plugin_that_outlives_its_command_is_told() -> None:
    """Its command ends on SIGTERM, another process answers on: the check ends soon."""
    (check,) = [each for each in ALL if each.id == "life.stop-in-allocate"]
    with widgets() as directory:
        plugin = target(SCRIPT, directory, ("--habit", "PoolOfThreads"))
        wrapped = ("sh", "-c", 'setsid "$@" & exec sleep 1000', "sh", *plugin.command)
        results = await run_checks(replace(plugin, command=wrapped), [check], FAST)
    (result,) = results
    assert "after the command ended: another process" in result.verdict.evidence


@pytest.mark.parametrize("habit", [OneAfterTheOther, OneLongAfterTheOther])
async def test_one_of_several_resources_is_waited_for(habit: type[GoodPlugin]) -> None:
    """With --resource, that one may come last, and what others call is no retry of it."""
    results = await only(habit, "registration.slow-kubelet", resource=GADGET)
    assert [(each.status, each.resource) for each in results] == [("pass", GADGET)]


@pytest.mark.parametrize("registry", [True, False])
async def test_a_plugin_may_come_both_ways(registry: bool) -> None:
    """By Register and by the watcher: each time once, and its own calls are still looked at."""
    ids = ["registration.once", "registration.refused", "life.sockets-wiped"]
    checks = [each for each in ALL if each.id in ids]
    with widgets() as directory:
        plugin = target(SCRIPT, directory, ("--habit", BothWays.__name__))
        results = await run_checks(replace(plugin, registry=registry), checks, FAST)
    assert {each.check.id: each.status.value for each in results} == dict.fromkeys(ids, "pass")


async def test_a_plugin_of_v1alpha_gets_its_verdict(short_dir: Path) -> None:
    """It is told what no kubelet serves any more, in every report, though it ends at once."""
    with widgets() as directory:
        plugin = target(SCRIPT, directory, ("--habit", SpeaksV1Alpha.__name__))
        results = await run_checks(plugin, ALL, FAST)
        assert found(results) == {"registration.registers": "fail"}
        (first,) = [each for each in results if each.status == "fail"]
        assert "deviceplugin.Registration (v1alpha)" in first.verdict.evidence
        assert len(results) == len(ALL)
    document = json.loads(json.dumps(as_document(Run("p", results, 1))))
    assert document["summary"]["fail"] == 1
    assert 'failures="1"' in as_junit(Run("p", results, 1))


def of(results: Sequence[CheckResult], resource: str) -> set[str]:
    """Return what was said of a resource, or of both: of them at once if the second was early."""
    return {each.check.id for each in results if each.resource in (resource, PLUGIN)}


async def test_a_late_resource_is_checked_as_well() -> None:
    """One that registers while the first is being checked misses no check of a resource."""
    ids = ["registration.registers", "registration.once", "list.order", "life.kubelet-away"]
    results = await only(OneLongAfterTheOther, *ids)
    assert not found(results)
    assert of(results, WIDGET) == set(ids)
    assert of(results, GADGET) == set(ids)


async def test_a_late_resource_is_checked_at_the_end() -> None:
    """The same where no check is left that would begin with a kubelet's restart."""
    ids = ["registration.registers", "registration.once"]
    results = await only(OneLongAfterTheOther, *ids)
    assert of(results, WIDGET) == of(results, GADGET) == set(ids)


async def test_resources_are_watched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who dies of a lost stream some time later is waited for once, not once for each resource."""
    pauses: list[float] = []
    pause = Harness.pause

    async def counting(harness: Harness, seconds: float) -> None:
        pauses.append(seconds)
        await pause(harness, seconds)

    monkeypatch.setattr(Harness, "pause", counting)
    with widgets() as directory:
        plugin = target(SCRIPT, directory, ("--habit", OneAfterTheOther.__name__))
        checks = [each for each in ALL if each.id == "list.abandoned-stream"]
        results = await run_checks(plugin, checks, FAST)
    assert of(results, WIDGET) == of(results, GADGET) == {"list.abandoned-stream"}
    assert pauses.count(FAST.watch) == 1


async def test_registering_again_and_again_is_no_new_resource() -> None:
    """The wait for further resources ends although the known one keeps calling Register."""
    async with asyncio.timeout(60):
        results = await only(RegistersOften, "registration.once")
    assert found(results) == {"registration.once": "warn"}


async def test_each_resource_has_its_own_calls(short_dir: Path) -> None:
    """What is said of a resource that is missing does not read like retries of one."""
    async with open_harness(Target(directory=short_dir), FAST) as harness:
        harness.resources = (GADGET, WIDGET)
        request = RegisterRequest("v1beta1", "widget.sock", WIDGET)
        harness.probe.arrivals += [Arrival(request, at=1), Arrival(request, at=2)]
        assert harness.why_missing(3) == (
            "not registered within 3.0 s; it called Register 0 times for example.com/gadget, "
            "2 times for example.com/widget"
        )
        harness.resources = (WIDGET,)
        assert harness.why_missing(3, since=2) == (
            "not registered within 3.0 s; it called Register 1 time"
        )


async def test_what_registers_before_the_kubelet_goes_has_not_come_back(short_dir: Path) -> None:
    """It was let in after a check began, and hung up on with all others a moment later."""
    async with open_harness(Target(directory=short_dir), FAST) as harness:
        await harness.probe.start()
        harness.resources = (RESOURCE,)
        since = asyncio.get_running_loop().time()
        async with FakePlugin(short_dir, devices=healthy("a")) as plugin:
            await plugin.register()
            assert harness.missing(since) == []
            await harness.probe.restart(wipe="nothing")
            assert harness.missing(since) == [RESOURCE]
            await plugin.register()
            assert harness.missing(since) == []
