"""Correct plugins with unusual habits: no check fails them by mistake."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.checks import ALL, find
from kubedevices.check.harness import Harness
from kubedevices.check.harness_setup import open_harness
from kubedevices.check.report.document import as_document
from kubedevices.check.report.junit import as_junit
from kubedevices.check.report.summary import Run
from kubedevices.check.results import PLUGIN, CheckResult
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target
from kubedevices.check.timing import CheckTiming
from kubedevices.errors import UnknownResource
from kubedevices.testing.kubelet.arrival import Arrival
from kubedevices.values.allocation import RegisterRequest
from tests.check.good_plugin import GoodPlugin
from tests.check.rig import FAST, GOOD_PLUGIN, HERE, check, found, target, widgets
from tests.check.unusual_plugin import (
    AllocatesAfterTheSecondTime,
    BothWays,
    HearsSigtermLate,
    Interchangeable,
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


async def only(
    habit: type[GoodPlugin],
    *ids: str,
    resource: str = "",
    timing: CheckTiming = FAST,
) -> list[CheckResult]:
    """Run checks on a plugin with a habit; repeat them if the machine may have caused a finding."""
    for _ in range(2):
        with widgets() as directory:
            plugin = target(SCRIPT, directory, ("--habit", habit.__name__))
            plugin = replace(plugin, resource=resource)
            results = (await run_all(plugin, map(find, ids), timing)).results
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
        (Interchangeable, "allocate.unknown-id"),
    ],
)
async def test_an_unusual_habit_is_not_a_failure(habit: type[GoodPlugin], name: str) -> None:
    """A check that was once wrong about this habit passes."""
    is_slow = name == "registration.slow-kubelet"
    results = await only(habit, name, timing=SLOWER_THAN_ITS_LIMIT if is_slow else FAST)
    assert [(each.status, each.verdict.evidence) for each in results if each.status != "pass"] == []
    assert results


async def test_a_plugin_that_runs_longer_than_its_command_is_reported() -> None:
    """The command ends on SIGTERM, but another process still answers: the check ends soon."""
    with widgets() as directory:
        plugin = target(SCRIPT, directory, ("--habit", "PoolOfThreads"))
        wrapped = ("sh", "-c", 'setsid "$@" & exec sleep 1000', "sh", *plugin.command)
        checks = [find("life.stop-in-allocate")]
        (result,) = (await run_all(replace(plugin, command=wrapped), checks, FAST)).results
    assert "after the command ended: another process" in result.verdict.evidence


async def test_a_resource_that_no_plugin_has_is_told_at_once() -> None:
    """The wait ends when no further resource registers, long before the limit of a start."""
    with widgets() as directory:
        plugin = replace(target(GOOD_PLUGIN, directory), resource=GADGET)
        async with asyncio.timeout(120):
            with pytest.raises(UnknownResource) as caught:
                await run_all(plugin, [find("list.order")], replace(FAST, start=600))
    assert caught.value.registered == (WIDGET,)


@pytest.mark.parametrize("habit", [OneAfterTheOther, OneLongAfterTheOther])
async def test_the_check_waits_for_the_chosen_one_of_several_resources(
    habit: type[GoodPlugin],
) -> None:
    """With --resource, this resource may register last; calls of others are not its retries."""
    timing = replace(SLOWER_THAN_ITS_LIMIT, settle=3)  # the pause of the habit is shorter
    results = await only(habit, "registration.slow-kubelet", resource=GADGET, timing=timing)
    assert [(each.status, each.resource) for each in results] == [("pass", GADGET)]


@pytest.mark.parametrize("registry", [True, False])
async def test_a_plugin_may_register_in_both_ways(registry: bool) -> None:
    """With Register and through the plugin watcher, once each; its Register calls are judged."""
    ids = ["registration.once", "registration.refused", "life.sockets-wiped"]
    with widgets() as directory:
        plugin = target(SCRIPT, directory, ("--habit", BothWays.__name__))
        results = (await run_all(replace(plugin, registry=registry), map(find, ids), FAST)).results
    assert {each.check.id: each.status.value for each in results} == dict.fromkeys(ids, "pass")


async def test_a_plugin_of_v1alpha_gets_its_verdict() -> None:
    """All reports name the old API, although the plugin ends at once."""
    results = await check(SCRIPT, "--habit", SpeaksV1Alpha.__name__)
    assert found(results) == {"registration.registers": "fail"}
    (first,) = [each for each in results if each.status == "fail"]
    assert "deviceplugin.Registration (v1alpha)" in first.verdict.evidence
    assert len(results) == len(ALL)
    document = json.loads(json.dumps(as_document(Run(results, plugin="p", seconds=1))))
    assert document["summary"]["fail"] == 1
    assert 'failures="1"' in as_junit(Run(results, plugin="p", seconds=1))


def of(results: Sequence[CheckResult], resource: str) -> set[str]:
    """Return the IDs of the checks with a result for `resource`, or for the whole plugin."""
    return {each.check.id for each in results if each.resource in (resource, PLUGIN)}


async def test_a_late_resource_is_checked_as_well() -> None:
    """A resource that registers during the checks of the first gets all checks of a resource."""
    ids = ["registration.registers", "registration.once", "list.order", "life.kubelet-away"]
    timing = replace(FAST, registered_soon=6)  # it dials with a back-off, one after the other
    results = await only(OneLongAfterTheOther, *ids, timing=timing)
    assert not found(results)
    assert of(results, WIDGET) == set(ids)
    assert of(results, GADGET) == set(ids)


async def test_a_late_resource_is_checked_at_the_end() -> None:
    """This also holds if no later check restarts the kubelet."""
    ids = ["registration.registers", "registration.once"]
    results = await only(OneLongAfterTheOther, *ids)
    assert of(results, WIDGET) == of(results, GADGET) == set(ids)


async def test_resources_are_watched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check waits once for a late end of the plugin, not once for each resource."""
    pauses: list[float] = []
    pause = Harness.pause

    async def counting(harness: Harness, seconds: float) -> None:
        pauses.append(seconds)
        await pause(harness, seconds)

    monkeypatch.setattr(Harness, "pause", counting)
    habit = ("--habit", OneAfterTheOther.__name__)
    results = await check(SCRIPT, *habit, checks=[find("list.abandoned-stream")])
    assert of(results, WIDGET) == of(results, GADGET) == {"list.abandoned-stream"}
    assert pauses.count(FAST.watch) == 1


async def test_registering_again_and_again_is_no_new_resource() -> None:
    """The wait for further resources ends although the known one keeps calling Register."""
    async with asyncio.timeout(60):
        results = await only(RegistersOften, "registration.once")
    assert found(results) == {"registration.once": "warn"}


async def test_each_resource_has_its_own_calls(short_dir: Path) -> None:
    """The text about a missing resource does not count the calls of another resource."""
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


async def test_a_registration_just_before_the_restart_is_not_a_return(short_dir: Path) -> None:
    """The kubelet accepted it after the check began, and closed it with all other connections."""
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
