"""A plugin's own time: what a busy machine, or one that stands still, took does not count."""

import asyncio
import os
import re
import subprocess
import time
from asyncio.subprocess import PIPE
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.conformance import busy_machine, checks
from kubedevices.conformance.busy_machine import (
    LONGEST_STRETCH,
    RAISED_NICE,
    LostTime,
    raised_priority,
    waited_below,
)
from kubedevices.conformance.checks import find
from kubedevices.conformance.harness_setup import open_harness
from kubedevices.conformance.runner import run_checks
from kubedevices.conformance.target import Target
from tests.conformance.rig import FAST, GOOD_PLUGIN, target, widgets
from tests.waiting import until

SECOND = 10**9


def noted(*looks: tuple[float, dict[int, int]]) -> LostTime:
    found = LostTime(1)
    for now, waited in looks:
        found.record(now, waited)
    return found


def test_waiting_for_a_processor_does_not_count() -> None:
    """Every thread below the root counts, new ones from their beginning; between looks evenly."""
    found = noted(
        (10, {1: 5 * SECOND}),
        (10.5, {1: 5 * SECOND + SECOND // 5, 2: SECOND // 10}),
        (11, {2: SECOND // 10}),
    )
    assert found.spent(10, 11) == pytest.approx(0.7)
    assert found.spent(10.25, 11) == pytest.approx(0.6)


def test_no_more_is_lost_than_time_passed() -> None:
    """Many threads that wait at once are one wait, and even then the time is not endless."""
    found = noted((1, {}), (1.5, dict.fromkeys(range(9), SECOND)))
    assert found.spent(1, 1.5) == pytest.approx(0.5 / LONGEST_STRETCH)


def test_a_stand_still_is_not_counted() -> None:
    """A look that comes late says that nothing ran meanwhile, neither we nor the plugin."""
    found = noted((1, {}), (4, {}), (4.5, {}))
    assert found.spent(1, 4) == pytest.approx(busy_machine.SAMPLE_EVERY)
    assert found.spent(4, 4.5) == pytest.approx(0.5)
    assert found.spent(3, 4.5) == pytest.approx(1.5 - 2.5 / 3)


def test_a_plugin_that_sleeps_on_a_busy_machine_had_its_time() -> None:
    """A timer needs no processor: that each look is late excuses it once, by the latest of them."""
    late = 0.3
    looks = [(1 + n * (busy_machine.SAMPLE_EVERY + late), {1: 7 * SECOND}) for n in range(9)]
    asked, answered = looks[0][0], looks[-1][0]
    assert noted(*looks).spent(asked, answered) == pytest.approx(answered - asked - late)


async def test_one_copy_is_not_excused_by_what_another_waited(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two harnesses, only the harness whose plugin got no processor waits longer."""
    monkeypatch.setattr(busy_machine, "SAMPLE_EVERY", 3600)  # we look, and nobody else does
    busy: set[int] = set()
    monkeypatch.setattr(
        busy_machine,
        "waited_below",
        lambda root: {root: time.monotonic_ns() if root in busy else 0},
    )
    loop, plugin = asyncio.get_running_loop(), Target(directory=short_dir)
    async with open_harness(plugin, FAST) as starved, open_harness(plugin, FAST) as asleep:
        busy.add(starved.supervisor.pid)
        for harness in (starved, asleep):
            harness.lost_time.sample()
        began = loop.time()
        await until(lambda: loop.time() > began + 0.5)
        for harness in (starved, asleep):
            harness.lost_time.sample()
        wall = loop.time() - began
        assert starved.spent(began) < 0.5 * wall
        assert asleep.spent(began, began + wall) == pytest.approx(wall)


async def test_a_look_sees_the_process_of_a_process() -> None:
    """Engines and shells start plugins; theirs is the time that counts."""
    inner = "read line <&3; :"
    outer = f"sh -c '{inner}' & echo $!; wait"
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec 3<&0; {outer}", stdin=PIPE, stdout=PIPE
    )
    assert shell.stdout
    below = int(await shell.stdout.readline())
    assert {shell.pid, below} <= waited_below(shell.pid).keys()
    await shell.communicate(b"done\n")
    assert waited_below(shell.pid) == {}


@pytest.mark.parametrize("is_starved", [True, False])
async def test_a_limit_is_the_own_time_of_a_plugin(
    is_starved: bool, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that got no processor all the time has not had its time when the clock says so."""

    def waited(root: int) -> dict[int, int]:
        return {root: time.monotonic_ns() if is_starved else 0}

    monkeypatch.setattr(busy_machine, "waited_below", waited)
    loop, limit, end = asyncio.get_running_loop(), 1, short_dir / "end"
    async with open_harness(Target(directory=short_dir), FAST) as harness:
        harness.lost_time.sample()
        command = ("sh", "-c", f"while [ ! -e {end} ]; do sleep 0.1; done")
        process = await harness.supervisor.start(command, env=os.environ, log=short_dir / "log")
        began = loop.time()
        waiting = asyncio.create_task(harness.until_ended(process, limit))
        if is_starved:
            await until(lambda: loop.time() > began + 1.5 * limit)
            end.touch()
        assert await waiting is is_starved


async def test_the_command_of_an_engine_may_tidy_up() -> None:
    """It ends some time after the plugin in its container: the plugin did end in time."""
    with widgets() as directory:
        plugin = target(GOOD_PLUGIN, directory)
        engine = "trap 'kill $c; wait $c; sleep 3; exit 0' TERM; \"$@\" & c=$!; wait $c; wait"
        plugin = replace(plugin, command=("sh", "-c", engine, "engine", *plugin.command))
        checks = [find("life.stop-time"), find("life.stop-code"), find("life.stop-socket")]
        results = await run_checks(plugin, checks, replace(FAST, stop=2))
    assert {each.check.id: each.status.value for each in results} == {
        each.id: "pass" for each in checks
    }


def test_checks_measure_and_wait_by_a_plugins_own_time() -> None:
    """None subtracts times of a clock, or waits by it: `harness.spent` and its waits do that."""
    by_the_clock = (
        r"time\(\) - |asyncio\.(wait|timeout)|change_signal\.until|process\.wait|stream\.first\("
    )
    for path in Path(checks.__file__).parent.glob("*.py"):
        assert not re.findall(by_the_clock, path.read_text()), path.name


# ---------------------------------------------------------------- the priority of the check


def priorities(nice: int, policy: int) -> list[int]:
    """Return those of such a thread and of its child, while a check runs and after."""
    os.sched_setscheduler(0, policy, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    seen = []
    with raised_priority():
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))
        seen.append(int(subprocess.run(["nice"], check=True, capture_output=True).stdout))
    seen.append(os.getpriority(os.PRIO_PROCESS, 0))
    seen.append(os.sched_getscheduler(0))
    return seen


def in_a_thread(nice: int = 0, policy: int = os.SCHED_OTHER) -> list[int]:
    """Do so in a thread of its own: whatever happens to its priority ends with it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(priorities, nice, policy).result()


@pytest.mark.needs_host("root with CAP_SYS_NICE")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have priority")
def test_only_the_check_itself_gets_priority() -> None:
    """Its child has none, and afterwards nothing of it is left."""
    assert in_a_thread() == [RAISED_NICE, 0, 0, os.SCHED_OTHER]


@pytest.mark.needs_host("root with CAP_SYS_NICE")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose any priority")
def test_a_chosen_priority_is_left_alone() -> None:
    """Who runs a check with `nice` wants it to come after others, and the plugin with it."""
    assert in_a_thread(5) == [5, 5, 5, os.SCHED_OTHER]
    assert in_a_thread(policy=os.SCHED_BATCH) == [0, 0, 0, os.SCHED_BATCH]


def test_without_the_right_it_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container of few capabilities nothing happens, and nothing is said."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with raised_priority():
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
