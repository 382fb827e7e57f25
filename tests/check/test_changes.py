"""Changes of devices: the trigger, and verdicts if nothing changed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.checks import find
from kubedevices.check.results import CheckResult
from kubedevices.check.runner import run_all
from kubedevices.check.shared_state import DeviceChanges
from kubedevices.check.target import NUMBER_VARIABLE, Trigger
from kubedevices.check.timing import CheckTiming
from tests.check.good_plugin import GoodPlugin
from tests.check.rig import FAST, GOOD_PLUGIN, HERE, MUTANT, check, hot_plug, target, widgets
from tests.check.unusual_plugin import LooksRarely, RemembersDevices, SecondNeverChanges

pytestmark = pytest.mark.usefixtures("preloaded")

SCRIPT = HERE / "unusual_plugin.py"
CHANGES = ("list.change", "list.replicas", "list.recovers", "life.lost-updates")
WIDGET, GADGET = "example.com/widget", "example.com/gadget"


def verdicts(results: list[CheckResult]) -> dict[tuple[str, str], str]:
    """Return check and resource → status, and a word of the evidence where it was skipped."""
    return {(each.check.id, each.resource): each.status.value for each in results}


async def changed(
    habit: type[GoodPlugin], *ids: str, trigger: Trigger | None = None, timing: CheckTiming = FAST
) -> tuple[list[CheckResult], list[str]]:
    """Run the checks about changes; return what they say and the files that are left."""
    with widgets() as directory:
        plugin = target(SCRIPT, directory, ("--habit", habit.__name__))
        plugin = replace(plugin, trigger=hot_plug(directory) if trigger is None else trigger)
        results = (await run_all(plugin, map(find, ids), timing)).results
        return results, sorted(path.name for path in directory.iterdir())


def test_a_trigger_may_name_its_resource() -> None:
    """A resource has a slash, so `RESOURCE=CMD` differs from a shell's `NAME=value`."""
    assert Trigger.parse("a.b/c=touch x") == Trigger("touch x", "a.b/c")
    for text in ("touch x=y", "A=1 touch x", "/bin/touch=x", "touch a.b/c=d", ""):
        assert Trigger.parse(text) == Trigger(text)


def test_every_run_of_a_trigger_has_a_number() -> None:
    """`{n}` and the variable count from 1; a trigger that may be a switch runs evenly."""
    changes = DeviceChanges(Trigger("touch w{n}"))
    one, two = changes.next(), changes.next()
    assert one.argv()[-1] == "touch w1"
    assert two.environment()[NUMBER_VARIABLE] == "2"
    assert changes.undoing() == []
    changes.next()
    assert [call.argv()[-1] for call in changes.undoing()] == ["touch w4"]
    assert changes.undoing() == []
    assert changes.next().argv()[-1] == "touch w5"


def test_an_undo_follows_every_run() -> None:
    """The undo command gets the numbers of the runs, the last run first."""
    changes = DeviceChanges(Trigger("touch w{n}", undo="rm w{n}"))
    for _ in range(3):
        changes.next()
    assert [call.argv()[-1] for call in changes.undoing()] == ["rm w3", "rm w2", "rm w1"]


async def test_only_the_resource_that_changes_is_judged() -> None:
    """A second resource, which the trigger does not change, is skipped."""
    patient = replace(FAST, change=10, noticed_soon=10, settle=4)
    results, left = await changed(SecondNeverChanges, *CHANGES, timing=patient)
    said = verdicts(results)
    assert said[("list.change", WIDGET)] == "pass"
    assert said[("list.change", GADGET)] == "skip"
    assert "fail" not in said.values()
    assert left == ["w0", "w1", "w2"]


async def test_a_trigger_without_effect_is_a_skip() -> None:
    """Nothing changed, so nothing was lost: the skip says what may be wrong with the trigger."""
    names = ("list.change", "list.recovers", "life.lost-updates")
    results, _ = await changed(LooksRarely, *names, trigger=Trigger("true"))
    assert {each.status.value for each in results} == {"skip"}
    (change,) = [each for each in results if each.check.id == "list.change"]
    assert "no stream had a change within" in change.verdict.evidence
    assert "--change-timeout" in change.verdict.evidence


async def test_without_a_trigger_no_check_waits() -> None:
    """A check that is skipped at once disturbed nothing, so no pause follows."""
    names = ("list.change", "list.recovers")
    patient = replace(FAST, linger=100)
    async with asyncio.timeout(60):
        results, _ = await changed(LooksRarely, *names, trigger=Trigger(""), timing=patient)
    assert {each.verdict.evidence.partition(",")[0] for each in results} == {"needs --trigger"}


@pytest.mark.parametrize("habit", [LooksRarely, RemembersDevices])
async def test_a_plugin_without_a_changed_list_has_lost_no_update(habit: type[GoodPlugin]) -> None:
    """It scans once a day, or its devices never change: all streams have the same list."""
    results, _ = await changed(habit, "list.change", "life.lost-updates")
    assert "fail" not in verdicts(results).values()


async def test_a_change_that_only_new_streams_see_is_lost() -> None:
    """Both open streams have no change, but a new stream has it: the update was lost."""
    mutation = ("--mutation", "tells-no-open-stream")
    (result,) = await check(MUTANT, *mutation, checks=[find("list.change")])
    assert result.status == "fail"
    assert "a new stream of example.com/widget has it" in result.verdict.evidence


async def test_the_devices_are_left_as_they_were(tmp_path: Path) -> None:
    """Also after a failure, a trigger that is a switch has run an even number of times."""
    with widgets() as directory:
        switch = f"if [ -e {directory}/w9 ]; then rm {directory}/w9; else touch {directory}/w9; fi"
        count = f"{switch}; echo >> {tmp_path}/runs"
        plugin = target(MUTANT, directory, ("--mutation", "generic-streams-share-a-queue"))
        plugin = replace(plugin, trigger=Trigger(count))
        (result,) = (await run_all(plugin, [find("list.change")], FAST)).results
        assert result.status == "fail"
        assert len((tmp_path / "runs").read_text().splitlines()) % 2 == 0
        assert not (directory / "w9").exists()


async def test_replicas_that_were_never_unhealthy_are_a_skip() -> None:
    """Without an unhealthy device the check has nothing to judge."""
    with widgets(unhealthy=False) as directory:
        plugin = target(GOOD_PLUGIN, directory)
        (result,) = (await run_all(plugin, [find("list.replicas")], FAST)).results
    assert result.status == "skip"
    assert "was unhealthy" in result.verdict.evidence
