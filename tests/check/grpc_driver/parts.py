"""Which classes a driver consists of: a defect replaces one or more of them."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Parts:
    """The replaced classes. `parts.of(Publisher)` is the class of the publisher."""

    def __init__(self, replaced: Sequence[type] = ()) -> None:
        self._replaced = tuple(replaced)

    def of(self, base: type[T]) -> type[T]:
        """Return `base`, or the subclass that replaces it."""
        return next((each for each in self._replaced if issubclass(each, base)), base)
