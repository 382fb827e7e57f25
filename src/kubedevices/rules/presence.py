"""Whether the plugin behind a scanner is connected: it may restart while our process goes on.

A scanner that has the devices of another plugin has the attribute `presence`. `presence_of` finds
it behind any number of middleware. The protocol:

* the scanner keeps the last list of its plugin: its tree stays when the plugin leaves;
* it calls `leave()` when the plugin is gone, `arrive()` when the plugin is back, and reports its
  tree in the same step of the event loop;
* before the first list, `is_away` is true.

All calls must be on the event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator


class Presence:
    """Whether the plugin is connected, since when it is away, and the listeners for changes."""

    def __init__(self, *, is_away: bool = True) -> None:
        self._here, self._away = asyncio.Event(), asyncio.Event()
        (self._away if is_away else self._here).set()
        self._since: float | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_away(self) -> bool:
        """Whether the plugin is away."""
        return not self._here.is_set()

    def away_since(self, now: float) -> float | None:
        """Return since when the plugin is away, in the loop's time; None while it is connected.

        A plugin that was never connected is away since the first question. From any thread.
        """
        if not self.is_away:
            return None
        if self._since is None:
            self._since = now
        return self._since

    def leave(self) -> None:
        """Record that the plugin is gone."""
        if not self.is_away:
            self._since = asyncio.get_running_loop().time()
            self._here.clear()
            self._away.set()
            self._call_listeners()

    def arrive(self) -> None:
        """Record that the plugin is connected and has sent its list."""
        if self.is_away:
            self._away.clear()
            self._here.set()
            self._since = None
            self._call_listeners()

    async def wait_here(self) -> None:
        """Return when the plugin is connected; at once if it is."""
        await self._here.wait()

    async def wait_away(self) -> None:
        """Return when the plugin is gone; at once if it is."""
        await self._away.wait()

    @contextlib.contextmanager
    def listening(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Call `on_change` at each change while the context lasts."""
        self._listeners.append(on_change)
        try:
            yield
        finally:
            self._listeners.remove(on_change)

    def _call_listeners(self) -> None:
        for on_change in [*self._listeners]:
            on_change()


def presence_of(scanner: object) -> Presence | None:
    """Return the presence of the plugin behind `scanner`; None if `scanner` finds devices itself.

    The attribute `scanner` of a middleware is its inner scanner.
    """
    while scanner is not None:
        if isinstance(found := getattr(scanner, "presence", None), Presence):
            return found
        scanner = getattr(scanner, "scanner", None)
    return None
