"""A plugin's own time does not contain the time that a busy or suspended machine took."""

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

from kubedevices.check import busy_machine, checks
from kubedevices.check.busy_machine import (
    LONGEST_STRETCH,
    RAISED_NICE,
    LostTime,
    raised_priority,
    waited_below,
)
from kubedevices.check.checks import find
from kubedevices.check.harness_setup import open_harness
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target
from tests.check.rig import FAST, GOOD_PLUGIN, target, widgets
from tests.host_needs import needs
from tests.waiting import until

SECOND = 10**9


def noted(*looks: tuple[float, dict[int, int]]) -> LostTime:
    found = LostTime(1)
    for now, waited in looks:
        found.record(now, waited)
    return found


def test_waiting_for_a_processor_does_not_count() -> None:
    """All threads below the root count, new threads from their start; between readings linearly."""
    found = noted(
        (10, {1: 5 * SECOND}),
        (10.5, {1: 5 * SECOND + SECOND // 5, 2: SECOND // 10}),
        (11, {2: SECOND // 10}),
    )
    assert found.spent(10, 11) == pytest.approx(0.7)
    assert found.spent(10.25, 11) == pytest.approx(0.6)


def test_no_more_is_lost_than_time_passed() -> None:
    """Threads that wait at the same time count once; a limit is stretched tenfold at most."""
    found = noted((1, {}), (1.5, dict.fromkeys(range(9), SECOND)))
    assert found.spent(1, 1.5) == pytest.approx(0.5 / LONGEST_STRETCH)


def test_the_time_of_a_suspended_machine_does_not_count() -> None:
    """A late reading means that nothing ran, neither the check nor the plugin."""
    found = noted((1, {}), (4, {}), (4.5, {}))
    assert found.spent(1, 4) == pytest.approx(busy_machine.SAMPLE_EVERY)
    assert found.spent(4, 4.5) == pytest.approx(0.5)
    assert found.spent(3, 4.5) == pytest.approx(1.5 - 2.5 / 3)


def test_a_sleeping_plugin_on_a_busy_machine_uses_up_its_limit() -> None:
    """A timer needs no processor: only the longest delay of one reading is subtracted, once."""
    late = 0.3
    looks = [(1 + n * (busy_machine.SAMPLE_EVERY + late), {1: 7 * SECOND}) for n in range(9)]
    asked, answered = looks[0][0], looks[-1][0]
    assert noted(*looks).spent(asked, answered) == pytest.approx(answered - asked - late)


async def test_the_waiting_time_of_one_copy_does_not_count_for_another(
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


async def test_a_reading_includes_processes_of_processes() -> None:
    """A container engine or a shell starts the plugin: the time of the plugin counts."""
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
async def test_a_limit_counts_own_seconds_of_the_plugin(
    is_starved: bool, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that never got a processor has not used up its limit when the clock says so."""

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


async def test_the_command_of_a_container_engine_may_end_later() -> None:
    """The command ends after the plugin in its container, but the plugin ended in time."""
    with widgets() as directory:
        plugin = target(GOOD_PLUGIN, directory)
        engine = "trap 'kill $c; wait $c; sleep 3; exit 0' TERM; \"$@\" & c=$!; wait $c; wait"
        plugin = replace(plugin, command=("sh", "-c", engine, "engine", *plugin.command))
        checks = [find("life.stop-time"), find("life.stop-code"), find("life.stop-socket")]
        results = (await run_all(plugin, checks, replace(FAST, stop=2))).results
    assert {each.check.id: each.status.value for each in results} == {
        each.id: "pass" for each in checks
    }


def test_checks_measure_and_wait_in_own_seconds() -> None:
    """No check uses the clock directly: `harness.spent` and the waits of the harness do."""
    by_the_clock = (
        r"time\(\) - |asyncio\.(wait|timeout)|change_signal\.until|process\.wait|stream\.first\("
    )
    for path in Path(checks.__file__).parent.glob("*.py"):
        assert not re.findall(by_the_clock, path.read_text()), path.name


# ---------------------------------------------------------------- the priority of the check


def priorities(nice: int, policy: int) -> list[int]:
    """Return the priorities of a thread and of its child, during a check and afterwards."""
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
    """Call `priorities` in a new thread, so that its priority ends with the thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(priorities, nice, policy).result()


@needs("priority")
def test_only_the_check_itself_has_a_raised_priority() -> None:
    """Its child has the usual priority, and so has the thread afterwards."""
    assert in_a_thread() == [RAISED_NICE, 0, 0, os.SCHED_OTHER]


@needs("priority")
def test_a_priority_chosen_by_the_user_does_not_change() -> None:
    """A user who runs a check with `nice` wants the check and the plugin to run after others."""
    assert in_a_thread(5) == [5, 5, 5, os.SCHED_OTHER]
    assert in_a_thread(policy=os.SCHED_BATCH) == [0, 0, 0, os.SCHED_BATCH]


def test_without_the_permission_the_priority_does_not_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a container with few capabilities, the priority stays and no error is raised."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with raised_priority():
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
