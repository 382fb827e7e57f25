"""When to register again: a table of what happened, with time as a number."""

import pytest

from kubedevices.plugin.registration_state import RegistrationState
from kubedevices.plugin.timing import Timing, back_off

TIMING = Timing()
SOON, FIRST, LAST = TIMING.again_soon, TIMING.again_first, TIMING.again_last


def after(stream: tuple[float, float] | None, losses: int) -> RegistrationState:
    """Make a registration at time 100 whose stream was open from and to these times."""
    state = RegistrationState(TIMING, 100, losses)
    state.observe(0, 0, 100)
    if stream:
        state.observe(1, 1, stream[0])
        state.observe(1, 1, (stream[0] + stream[1]) / 2)
        state.observe(1, 0, stream[1])
        state.observe(1, 0, stream[1] + 1)
    return state


@pytest.mark.parametrize(
    ("stream", "losses", "again_at"),
    [
        (None, 0, 100 + FIRST),
        (None, 1, 100 + 2 * FIRST),
        (None, 2, 100 + 4 * FIRST),
        (None, 50, 100 + LAST),
        ((101, 102), 0, 102 + SOON),
        ((101, 102), 1, 102 + 8 * SOON),
        ((101, 102), 2, 102 + 64 * SOON),
        ((101, 102), 4, 102 + 4096 * SOON),
        ((101, 102), 50, 102 + LAST),
        ((101, 101 + TIMING.stream_lasted), 50, 101 + TIMING.stream_lasted + SOON),
    ],
)
def test_pauses_grow_as_long_as_no_stream_lasts(
    stream: tuple[float, float] | None, losses: int, again_at: float
) -> None:
    """The first loss is repaired at once, each one after it eight times as late."""
    assert after(stream, losses).again_at == again_at


@pytest.mark.parametrize(
    ("stream", "losses", "then"),
    [(None, 0, 1), (None, 3, 4), ((101, 102), 2, 3), ((101, 500), 7, 1)],
)
def test_losses_are_counted_until_a_stream_lasts(
    stream: tuple[float, float] | None, losses: int, then: int
) -> None:
    """A registration whose stream lasted starts the count afresh."""
    assert after(stream, losses).losses == then


def test_nothing_is_due_while_a_stream_is_open() -> None:
    """An open stream needs no registration, however old it is, also when it follows another."""
    state = RegistrationState(TIMING, 100)
    due = []
    for opened, open_now, now in (
        (0, 0, 100),
        (1, 1, 101),
        (2, 2, 9998),
        (2, 0, 9999),
        (3, 1, 9999.1),
    ):
        state.observe(opened, open_now, now)
        due.append(state.again_at)
    assert due == [110, None, None, 9999 + SOON, None]


def test_a_short_stream_between_two_looks_counts_as_lost() -> None:
    """Opened and ended between two observations, it is not taken for one that never came."""
    state = RegistrationState(TIMING, 100)
    state.observe(1, 0, 103)
    assert state.is_lost
    assert state.had_stream
    assert state.again_at == 103 + SOON


def test_back_off_never_overflows() -> None:
    """However many failures there were, the pause is the last one."""
    assert back_off(0.002, 5, 10**9) == 5
    assert [back_off(0.2, 5, n) for n in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]
