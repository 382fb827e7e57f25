"""Keeps of many values only what a shape names, and equal parts of them once. Pure.

The objects of a large cluster take ten times as much memory as what is read of them: pods have the
history of their fields, and thousands of devices have equal attributes.
"""

from collections.abc import Mapping
from typing import Any

from kubedevices.config.documents.shape import Shape


class Kept:
    """Returns parts of values. What it returns shares memory, so it must not be changed."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._lists: dict[tuple[int, ...], list[Any]] = {}
        self._objects: dict[tuple[int, ...], dict[str, Any]] = {}

    def of(self, value: Any, shape: Shape) -> Any:
        """Return what `shape` names of a value that has this shape."""
        if isinstance(shape, Mapping):
            return {
                self._text(key): self.of(value[key], inner)
                for name, inner in shape.items()
                if (key := name.removesuffix("!")) in value
            }
        if isinstance(shape, list):
            return [self.of(each, shape[0]) for each in value]
        return self._same(value)

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def _same(self, value: Any) -> Any:
        """Return an equal value of before, if there is one.

        Parts of what is kept are never freed, so their addresses tell them apart.
        """
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            items = [self._same(each) for each in value]
            return self._lists.setdefault(tuple(map(id, items)), items)
        if isinstance(value, dict):
            found = {self._text(key): self._same(each) for key, each in value.items()}
            key = tuple(id(part) for item in found.items() for part in item)
            return self._objects.setdefault(key, found)
        return value
