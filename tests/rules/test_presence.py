"""Whether somebody behind a scanner is there."""

import asyncio

import kubedevices as kd
from kubedevices.rules.presence import Presence, presence_of
from tests.widgets import Widgets


class Speaking(Widgets):
    def __init__(self) -> None:
        super().__init__()
        self.presence = Presence()


async def test_presence_notifies_listeners_and_wakes_waiters() -> None:
    """Only of changes, and not after it stopped listening."""
    presence, heard = Presence(), []
    waiting = asyncio.ensure_future(presence.wait_here())
    with presence.listening(lambda: heard.append(presence.is_away)):
        for step in (presence.leave, presence.arrive, presence.arrive, presence.leave):
            step()
    presence.arrive()
    assert heard == [False, True]
    await asyncio.wait_for(waiting, 10)


def test_presence_is_that_of_the_innermost_scanner() -> None:
    """However much of it there is; a scanner of our own speaks for itself."""
    plugin = Speaking()
    assert presence_of(kd.Middleware(kd.Middleware(plugin))) is plugin.presence
    assert presence_of(kd.Middleware(Widgets())) is None


async def test_the_time_of_an_absence_is_kept_until_the_plugin_arrives() -> None:
    """Every chain of rules over a plugin sees the same beginning of its absence."""
    presence = Presence()
    assert (presence.away_since(3.0), presence.away_since(8.0)) == (3.0, 3.0)
    presence.arrive()
    assert presence.away_since(9.0) is None
    presence.leave()
    since = presence.away_since(0.0)
    assert since is not None
    assert 0 < since <= asyncio.get_running_loop().time()


async def test_a_listener_sees_the_absence_as_it_is() -> None:
    """It decides by it whether the last list still counts."""
    presence, now = Presence(), asyncio.get_running_loop().time()
    heard: list[float | None] = []
    presence.arrive()
    with presence.listening(lambda: heard.append(presence.away_since(now + 1000))):
        presence.leave()
        presence.arrive()
    (left, here) = heard
    assert left is not None
    assert now <= left < now + 1000
    assert here is None


async def test_a_plugin_that_leaves_while_its_return_is_told_is_away_since_then() -> None:
    """A listener may find that nobody answers."""
    presence, now = Presence(), asyncio.get_running_loop().time()
    with presence.listening(presence.leave):
        presence.arrive()
    since = presence.away_since(now + 1000)
    assert since is not None
    assert now <= since < now + 1000
