"""A check comes before others on a busy machine, and the plugin that it starts does not."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from kubedevices.conformance.priority import NICE, before_others


def priorities(nice: int, policy: int) -> list[int]:
    """Return those of such a thread and of its child, while a check runs and after."""
    os.sched_setscheduler(0, policy, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    seen = []
    with before_others():
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
    assert in_a_thread() == [NICE, 0, 0, os.SCHED_OTHER]


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
    with before_others():
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
