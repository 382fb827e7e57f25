"""Counts the open ListAndWatch streams of a resource; `server` opens them and sends the lists.

`registrar` and `registration_loop` read the numbers to find out whether a kubelet listens.
"""

import contextlib
from collections.abc import Callable, Iterator


class OpenStreams:
    """The open ListAndWatch streams, numbered from 1 in the order they were opened.

    A registration remembers the last number before it. Streams up to this number belong to an
    earlier registration or to an earlier kubelet, so they say nothing about this registration.
    """

    def __init__(self) -> None:
        self.opened = 0
        """How many streams were ever opened: the number of the last stream."""

        self.on_change: Callable[[], None] | None = None
        self._open: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def count_after(self, number: int) -> int:
        """Return how many streams with a number above `number` are open."""
        return sum(stream > number for stream in self._open)

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Count one more open stream while the context lasts."""
        self.opened += 1
        number = self.opened
        self._open.add(number)
        self._report_change()
        try:
            yield
        finally:
            self._open.discard(number)
            self._report_change()

    def _report_change(self) -> None:
        if self.on_change is not None:
            self.on_change()
