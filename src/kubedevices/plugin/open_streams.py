"""Which ListAndWatch streams of a resource are open: `server` counts, `registrar` asks."""

import contextlib
from collections.abc import Callable, Iterator


class OpenStreams:
    """Which ListAndWatch streams are open, numbered from 1 in the order they were opened.

    A registration remembers the last number before it: streams up to that one belong to an
    earlier registration, or to an earlier kubelet, and say nothing about this one.
    """

    def __init__(self) -> None:
        self.opened = 0
        """How many were ever opened: the number of the last one."""

        self.on_change: Callable[[], None] | None = None
        self._open: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def count_after(self, number: int) -> int:
        """Return how many are open of those opened after `number`."""
        return sum(stream > number for stream in self._open)

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Count one more open stream while the context lasts."""
        self.opened += 1
        number = self.opened
        self._open.add(number)
        self._tell()
        try:
            yield
        finally:
            self._open.discard(number)
            self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()
