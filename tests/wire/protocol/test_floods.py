"""Floods and bombs are cut off, and until then cost little memory and work; a clock plays no part.

Work is counted in calls of functions, memory in what tracemalloc sees at its peak.
"""

from collections.abc import Callable

import pytest

from kubedevices.wire.http2_limits import FloodGuard
from tests.wire.protocol.floods import BOMBS, TO_CLIENTS, TO_SERVERS, Frames, cost

PURSE = 1000


@pytest.fixture(autouse=True)
def _small_purse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a tenth of the frames do."""
    monkeypatch.setattr(FloodGuard, "budget", float(PURSE))


FLOODS = [(False, flood) for flood in TO_SERVERS] + [(True, flood) for flood in TO_CLIENTS]


@pytest.mark.parametrize(
    ("is_client", "flood"),
    FLOODS,
    ids=lambda value: value.__name__ if callable(value) else ("server", "client")[value],
)
def test_flood(is_client: bool, flood: Callable[[], Frames]) -> None:
    """It ends soon, each frame costs little, and little is kept or waits to be sent."""
    it = cost(flood, 2 * PURSE, is_client=is_client)
    assert it.is_cut_off
    assert it.frames <= PURSE + 200
    assert it.calls <= 120 * it.frames
    assert it.peak <= 600_000
    assert it.sent <= 30 * it.frames + 300


@pytest.mark.parametrize("bomb", BOMBS)
def test_bomb(bomb: Callable[[], Frames]) -> None:
    """Large frames cost no more than their bytes, whether they are refused or not."""
    it = cost(bomb, 2)
    assert it.calls <= 3 * it.received + 1000
    assert it.peak <= 5 * it.received + 200_000
    assert it.sent <= 1000


def test_a_field_used_a_thousand_times_is_refused() -> None:
    """Indices of a large field are the one bomb that grows: a byte brings three thousand."""
    (indices,) = (bomb for bomb in BOMBS if bomb.__name__ == "bomb_of_indices")
    assert cost(indices, 2).is_cut_off
