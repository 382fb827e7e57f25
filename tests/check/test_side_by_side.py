"""Tracks at the same time: the same verdicts as one after another; plugins that run only once."""

import asyncio
import shlex
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubedevices.check.check import PluginCheck, Status, Verdict
from kubedevices.check.checks import ALL, DIES_CHECK, find
from kubedevices.check.plugin import Plugin
from kubedevices.check.results import CheckResult, ResultCollector
from kubedevices.check.runner import in_order, run_all
from kubedevices.check.shared_state import DeviceChanges, SharedState
from kubedevices.check.target import Target, Trigger
from kubedevices.check.timing import QUICK
from kubedevices.host import deadlines
from tests.check.mutants.registry import all_mutations
from tests.check.rig import FAST, GOOD_PLUGIN, MUTANT, check, found, target, widgets

pytestmark = pytest.mark.usefixtures("preloaded")

SAMPLE = (
    "intel-panics-after-a-restart",
    "rocm-any-stream-end-exits",
    "generic-streams-share-a-queue",
)
AGAIN = 2
SLOW_TIMES = {"quiet", "slow_register", "noticed_soon", "absent", "refusing", "away", "often"}
"""Times of slow checks, which --quick leaves out, and one that is no limit."""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_verdicts_are_the_same_side_by_side() -> None:
    """For good and bad plugins, whatever runs at the same time."""
    wrong = {}
    for name in SAMPLE:
        mutation = all_mutations()[name]
        for _ in range(1 + AGAIN):  # on a machine that stalls a plugin looks slow
            results = await check(MUTANT, "--mutation", name, *mutation.options, side_by_side=True)
            wrong[name] = found(results)
            if wrong[name] == mutation.breaks:
                del wrong[name]
                break
        assert [each.check.id for each in results] == sorted(
            [each.check.id for each in results], key=[one.id for one in ALL].index
        )
    assert not wrong


async def test_no_check_is_tried_twice() -> None:
    """Also if no chosen check has the phase ARRIVAL."""
    names = ("list.second-stream", "allocate.unknown-id", "life.sockets-wiped")
    results = await check(GOOD_PLUGIN, checks=map(find, names), side_by_side=True)
    assert sorted(each.check.id for each in results) == sorted(names)


async def test_a_plugin_that_cannot_run_twice_is_checked_step_by_step() -> None:
    """The plugin has a lock, like a port: this is not a failure."""
    with widgets() as directory:
        plugin = target(GOOD_PLUGIN, directory)
        lock = ["flock", "--nonblock", "--no-fork", "--conflict-exit-code", "9", f"{directory}"]
        plugin = replace(plugin, command=(*lock, *plugin.command), side_by_side=True)
        checks = [each for each in ALL if each.theme == "grpc" or each.id == "life.sockets-wiped"]
        results = (await run_all(plugin, checks, FAST)).results
    assert {each.status.value for each in results} == {"pass"}


async def test_one_copy_waits_for_a_hanging_allocate_for_all() -> None:
    """The call of another copy ends when it is known, and no copy calls again."""
    shared, calls = SharedState(DeviceChanges(Trigger(""))), 0
    name = "example.com/widget"

    class Asking(Plugin):
        async def stable_ids(self) -> list[str]:
            return ["w0"]

        async def ask(self, *_: object, **__: object) -> Any:
            nonlocal calls
            calls += 1
            asyncio.get_running_loop().call_soon(shared.hanging[name].set)
            await asyncio.Event().wait()

    def copy() -> Plugin:
        return Asking(
            cast("Any", SimpleNamespace(resource=name)),
            cast("Any", SimpleNamespace(shared=shared, allocates={}, timing=FAST)),
        )

    async with deadlines.timeout(5):
        assert not await copy().can_allocate()
        assert not await copy().can_allocate()
    assert calls == 1


async def test_late_in_a_quick_run_no_check_begins() -> None:
    """The reason names the limit; the limit is in own seconds of the check and its plugins."""
    names = ("registration.registers", "list.order", "grpc.ping")
    timing = replace(FAST, last_begin=1e-9)
    results = await check(GOOD_PLUGIN, checks=map(find, names), timing=timing)
    said = {each.check.id: (each.status.value, each.verdict.evidence) for each in results}
    assert said["registration.registers"][0] == "pass"
    late = ("skip", "not begun within 1e-09 s (--quick)")
    assert said["list.order"] == said["grpc.ping"] == late


def test_no_limit_of_a_quick_run_is_longer_than_ten_seconds() -> None:
    """One that is would make a run with a plugin that never answers slow."""
    counts = {"rounds", "changes", "calls_at_once", "streams_beside"}
    limits = {name: value for name, value in asdict(QUICK).items() if name not in counts}
    assert {name for name, value in limits.items() if value > 10} <= SLOW_TIMES


async def test_an_unexpected_end_is_reported_once_by_life_dies() -> None:
    """The check that ran is skipped, and `life.dies` fails, even if it was not chosen."""
    words = shlex.join([sys.executable, str(GOOD_PLUGIN)])
    script = f"{words} --socket-dir {{socket_dir}} --device-dir $0 & sleep 3"
    with widgets() as directory:
        end = f"{script}; echo 'panic: out of widgets' >&2; kill $!; exit 2"
        plugin = Target(("sh", "-c", end, str(directory)))
        checks = [find("list.stays-open")]
        results = (await run_all(plugin, checks, replace(FAST, quiet=20))).results
    assert {each.check.id: each.status.value for each in results} == {
        "list.stays-open": "skip",
        "life.dies": "fail",
    }
    (dies,) = [each for each in results if each.check is DIES_CHECK]
    assert "exit code 2" in dies.verdict.evidence
    assert dies.verdict.story == "panic: out of widgets"


def result(one: PluginCheck, status: Status) -> CheckResult:
    return CheckResult(one, "a.b/c", Verdict(status, "seen"), 0.0)


def test_each_process_ends_once_and_a_change_at_that_time_is_told() -> None:
    """The text of an end says that the devices changed, which may be the cause."""
    shared, plugin, other = SharedState(DeviceChanges(Trigger("true"))), object(), object()
    for process in (plugin, plugin, other):
        shared.record_end(process, "it ended", "panic")
    for _ in range(2):
        shared.mark_during_change(plugin)
    whens = ["it ended, while the devices changed", "it ended"]
    assert [each.when for each in shared.unexpected_ends] == whens


def test_the_end_that_is_easiest_to_reproduce_is_reported() -> None:
    """An end after one restart is reported before an end after many restarts."""
    shared = SharedState(DeviceChanges(Trigger("true")))
    shared.record_end(object(), "after 7 restarts", "panic")
    shared.record_end(object(), "after a restart", "panic", first=True)
    assert shared.unexpected_ends[0].when == "after a restart"


def test_a_result_waits_for_the_checks_that_it_needs() -> None:
    """A result is reported only when the results of all needed checks are final."""
    first, second = find("life.sockets-wiped"), find("life.dies")
    said: list[tuple[str, str]] = []

    def tell(one: PluginCheck, results: object) -> None:
        assert isinstance(results, list)
        said.extend((one.id, each.status.value) for each in results)

    collector = ResultCollector([first, second], tell)
    collector.end(second, [result(second, Status.FAIL)])
    assert said == []
    collector.end(first, [result(first, Status.FAIL)])
    assert said == [(first.id, "fail"), (second.id, "skip")]
    assert [
        each.status.value
        for each in collector.finish(SharedState(DeviceChanges(Trigger())), DIES_CHECK)
    ] == ["fail", "skip"]


async def test_devices_change_while_other_checks_wait_for_a_return() -> None:
    """A check that waits for a return does not delay the checks that change devices."""
    ended: list[str] = []
    names = ("list.change", "life.kubelet-away")
    with widgets() as directory:
        plugin = target(MUTANT, directory, ("--mutation", "akri-never-registers-again"))
        plugin = replace(plugin, side_by_side=True)
        await run_all(
            plugin,
            [*map(find, names)],
            replace(FAST, registered_at_all=15),
            lambda one, results: ended.append(one.id) if results else None,
        )
    assert ended == [*names]


async def test_other_copies_do_not_judge_devices_that_change() -> None:
    """A device changes its health all the time while checks run on other copies."""
    with widgets() as directory:
        plugin = target(GOOD_PLUGIN, directory)
        broken = Trigger(f"echo Unhealthy > {directory}/w0", undo=f"echo > {directory}/w0")
        plugin = replace(plugin, side_by_side=True, trigger=broken)
        results = (await run_all(plugin, ALL, FAST)).results
    assert found(results) == {}
    said = {each.check.id: each.status.value for each in results}
    assert said["list.change"] == said["list.recovers"] == said["life.lost-updates"] == "pass"


@pytest.mark.parametrize("later", ["life.dies", "life.lost-updates", "life.memory"])
def test_a_check_runs_after_the_checks_that_it_needs(later: str) -> None:
    """This holds for each phase and each track."""
    names = [each.id for each in in_order(ALL)]
    for need in find(later).needs:
        assert names.index(need) < names.index(later)
