"""Whether somebody behind a scanner is there: a plugin of others restarts while we go on.

A scanner that speaks for somebody else has the attribute `presence`, and every middleware passes on
that of its inner scanner (`presence_of`). The protocol:

* the scanner calls `leave()` when the other is gone, before it reports a tree without devices;
* it reports the new list, and then calls `arrive()`;
* before the first list, `is_away` is true.

Everything on the event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Presence:
    """Whether the other is there, and the listeners for changes."""

    def __init__(self, *, is_away: bool = True) -> None:
        self._here, self._away = asyncio.Event(), asyncio.Event()
        (self._away if is_away else self._here).set()
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_away(self) -> bool:
        """Whether the other is away."""
        return not self._here.is_set()

    def leave(self) -> None:
        """Note that the other is gone."""
        if not self.is_away:
            self._here.clear()
            self._away.set()
            self._tell()

    def arrive(self) -> None:
        """Note that the other is there, after its list was reported."""
        if self.is_away:
            self._away.clear()
            self._here.set()
            self._tell()

    async def wait_here(self) -> None:
        """Return when the other is there; at once if it is."""
        await self._here.wait()

    async def wait_away(self) -> None:
        """Return when the other is gone; at once if it is."""
        await self._away.wait()

    @contextlib.contextmanager
    def listening(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Call `on_change` at each change while the context lasts."""
        self._listeners.append(on_change)
        try:
            yield
        finally:
            self._listeners.remove(on_change)

    def _tell(self) -> None:
        for on_change in [*self._listeners]:
            on_change()


def presence_of(scanner: Any) -> Presence | None:
    """Return the presence of the plugin behind `scanner`; None for a scanner of its own devices.

    A middleware has its inner scanner as `scanner`.
    """
    while scanner is not None:
        found: object = getattr(scanner, "presence", None)
        if isinstance(found, Presence):
            return found
        scanner = getattr(scanner, "scanner", None)
    return None
