"""Whether somebody behind a scanner is there: a plugin of others restarts while we go on.

A scanner that speaks for somebody else has the attribute `presence`, and every middleware passes on
that of its inner scanner (`presence_of`). The protocol:

* the scanner calls `leave()` when the other is gone, and reports no tree meanwhile: the last stays;
* it reports the new list, and then calls `arrive()`;
* before the first list, `is_away` is true.

Everything on the event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Presence:
    """Whether the other is there, and who wants to hear of it."""

    def __init__(self, *, is_away: bool = True) -> None:
        self._here = asyncio.Event()
        if not is_away:
            self._here.set()
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_away(self) -> bool:
        """Whether nobody would answer."""
        return not self._here.is_set()

    def leave(self) -> None:
        """Note that the other is gone."""
        if not self.is_away:
            self._here.clear()
            self._tell()

    def arrive(self) -> None:
        """Note that the other is there, after its list was reported."""
        if self.is_away:
            self._here.set()
            self._tell()

    async def wait_here(self) -> None:
        """Return when the other is there; at once if it is."""
        await self._here.wait()

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
    """Return the presence of whom `scanner` speaks for; None for a scanner that speaks for itself.

    A middleware has its inner scanner as `scanner`.
    """
    while scanner is not None:
        found: object = getattr(scanner, "presence", None)
        if isinstance(found, Presence):
            return found
        scanner = getattr(scanner, "scanner", None)
    return None
