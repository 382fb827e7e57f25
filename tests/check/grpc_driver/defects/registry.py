"""`defect`, which registers a class that breaks a rule, and the collection of all of them."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeVar

FILES = ("registration", "slices", "prepare", "unprepare", "state", "health")
T = TypeVar("T", bound=type)

_ALL: dict[str, tuple[type, ...]] = {}


def defect(rule: str) -> Callable[[T], T]:
    """Register a class that breaks the rule with this ID, in the place of its base class."""

    def add(kind: T) -> T:
        _ALL[rule] = (*_ALL.get(rule, ()), kind)
        return kind

    return add


def all_defects() -> Mapping[str, tuple[type, ...]]:
    """Load all files; return the classes by rule."""
    for file in FILES:
        import_module(f"tests.check.grpc_driver.defects.{file}")
    return _ALL
