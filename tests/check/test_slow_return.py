"""A run waits for a late return once, not once per check, so it stays short."""

from dataclasses import replace

import pytest

from kubedevices.check.checks import find
from kubedevices.check.runner import seconds_apart
from kubedevices.check.shared_state import DeviceChanges, SharedState
from kubedevices.check.target import NO_TRIGGER
from kubedevices.check.timing import CheckTiming
from kubedevices.testing.kubelet.kubelet import Probe
from tests.check.rig import FAST, HERE, MUTANT, check
from tests.check.unusual_plugin import LateOnce

pytestmark = pytest.mark.usefixtures("preloaded")

UNUSUAL_PLUGIN = HERE / "unusual_plugin.py"

GROWTH = [find(f"life.{name}") for name in ("descriptors", "threads", "memory")]
LATE = replace(FAST, often=5, noticed_soon=0.5)
"""The first return of the late mutant takes 4.5 s, which corresponds to 36 s in a real run."""


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the kubelet restarts of a test."""
    counted: list[int] = []
    restart = Probe.restart

    async def counting(probe: Probe, **how: object) -> None:
        counted.append(1)
        await restart(probe, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Probe, "restart", counting)
    return counted


@pytest.mark.parametrize(
    ("mutation", "timing", "said", "status"),
    [
        ("generic-registers-late", LATE, "too long for many restarts", "skip"),
        ("akri-never-registers-again", replace(FAST, registered_at_all=0.5), "restart 1:", "warn"),
    ],
)
async def test_growth_waits_once_for_a_late_return(
    mutation: str, timing: CheckTiming, said: str, status: str, restarts: list[int]
) -> None:
    """Three checks share one series of restarts, even if it ends at the first restart."""
    results = await check(MUTANT, "--mutation", mutation, checks=GROWTH, timing=timing)
    assert [each.status.value for each in results] == [status] * 3
    assert all(said in each.verdict.evidence for each in results)
    assert len(restarts) == 1


async def test_one_late_return_does_not_end_a_series(restarts: list[int]) -> None:
    """The faster of two returns decides how many restarts fit: one may be delayed."""
    habit = ("--habit", LateOnce.__name__)
    timing = replace(FAST, often=18, rounds=6)
    (result,) = await check(UNUSUAL_PLUGIN, *habit, checks=GROWTH[:1], timing=timing)
    assert result.status.value == "pass", result.verdict
    assert len(restarts) == 2 + timing.rounds


async def test_lost_updates_stops_after_one_late_return(restarts: list[int]) -> None:
    """Six returns of 30 s take too long, and one change proves nothing: the check is skipped."""
    wanted = [find("life.lost-updates")]
    (result,) = await check(
        MUTANT, "--mutation", "generic-registers-late", checks=wanted, timing=LATE
    )
    assert result.status.value == "skip"
    assert "too long for several" in result.verdict.evidence
    assert len(restarts) == 1


def test_no_limit_is_near_a_usual_timer_of_plugins() -> None:
    """With a timer of 30 s the verdict is the same each time; `dial` is the kubelet's limit."""
    limits = CheckTiming()
    judging = {
        *(limits.start, limits.call, limits.call / 2, limits.first_list, limits.late_list),
        *(limits.registered_soon, limits.registered_at_all, limits.noticed_soon, limits.change),
        *(limits.pre_start, limits.pre_start * 2 / 3, limits.stop, limits.refusing),
        *(limits.absent, limits.quiet, limits.watch, limits.often),
    }
    near = [each for each in judging for timer in (5, 10, 30, 60) if abs(each - timer) < 2]
    assert near == []


def test_a_start_that_sleeps_delays_no_other_copy() -> None:
    """The pause between two starts is the processor time of a start, not its duration."""

    def apart(start: float, work: float) -> float:
        return seconds_apart(
            SharedState(DeviceChanges(NO_TRIGGER), usual_start=start, work_of_start=work)
        )

    assert apart(10, 0) == apart(1, 0) > apart(0.1, 0)
    assert apart(10, 0.2) == apart(0.2, 0.4) > apart(10, 0.1)


def test_the_longest_waits_of_a_run_stay_below_its_target() -> None:
    """A run takes 90 s with the worst plugin: one that never returns, or does so after 30 s.

    Tracks run side by side; each waits for one return, and in the end the changes wait for one.
    """
    limits, late = CheckTiming(), 30
    starts_and_answers = 15
    waits = {
        "kubelet-away": limits.away + limits.registered_at_all + limits.linger,
        "refused": limits.refusing + limits.registered_at_all,
        "absent-kubelet": limits.absent + limits.registered_at_all,
        "two-instances": 4 / 3 * limits.overlap + 2 * limits.stop + limits.registered_at_all,
        "dies": late + limits.watch,
        "lost-updates after a late return": late + limits.linger,
        "growth": late + limits.after_register,
    }
    assert {name for name, wait in waits.items() if wait + starts_and_answers > 90} == set()


def test_the_waits_of_a_plugin_that_starts_slowly_stay_below_the_target() -> None:
    """Kubevirt's framework needs 10 s for each start and each return, and may never return."""
    limits, start = CheckTiming(), 10
    both_copies = 2 * start + limits.settle + limits.hold  # before anything runs side by side
    answers = 3
    waits = {
        "a return that never comes": start
        + limits.after_register
        + limits.registered_at_all
        + limits.linger,
        "dies": start + limits.after_register + start + limits.watch,
        "lost-updates": start + limits.often,
        "stop-while-waiting": limits.settle + 2 * start + limits.stop,
        "same-second": 2 * (start + start),
    }
    assert {name for name, wait in waits.items() if both_copies + wait + answers > 80} == set()
