"""The progress on stderr during a run: final findings, and on a terminal a line with a clock."""

import asyncio
import time
from collections.abc import Sequence

from kubedevices.check.check import PluginCheck, Status
from kubedevices.check.results import CheckResult
from kubedevices.errors.words import some_of
from kubedevices.host import terminal

_TICK = 1.0


class ProgressLine:
    """Writes findings when they are final; on a terminal, also a line that changes each second."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._under_way: dict[str, float] = {}
        self._done: set[str] = set()
        self._live = terminal.stderr_is_terminal()

    def __call__(self, check: PluginCheck, results: Sequence[CheckResult]) -> None:
        """Record that a check begins (no results), or its results."""
        if results:
            self._under_way.pop(check.id, None)
            self._done.add(check.id)
        else:
            self._under_way[check.id] = time.monotonic()
        for result in results:
            if result.status in (Status.WARN, Status.FAIL):
                self.clear()
                terminal.print_to_stderr(f"{result.status}  {check.id}  {result.verdict.evidence}")
        self.draw()

    def line(self) -> str:
        """Return how many checks are done, which checks run, and for how long the oldest runs."""
        names = sorted(self._under_way, key=self._under_way.__getitem__)
        if not names:
            return f"[{len(self._done)}/{self._total}]"
        waited = time.monotonic() - self._under_way[names[0]]
        return f"[{len(self._done)}/{self._total}] {waited:.0f} s: {some_of(names, 2)}"

    async def tick(self) -> None:
        """Draw the line every second, until cancelled; without a terminal, return."""
        while self._live:
            self.draw()
            await asyncio.sleep(_TICK)

    def draw(self) -> None:
        """Draw the line if stderr is a terminal."""
        if self._live:
            terminal.draw_status(self.line())

    def clear(self) -> None:
        """Erase the line if stderr is a terminal."""
        if self._live:
            terminal.draw_status("")
