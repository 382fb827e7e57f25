"""`defect`, which registers a class that breaks a rule, and the collection of all of them."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeVar

FILES = (
    *("registration", "process", "slices", "prepare", "prepare_errors", "holders"),
    *("configuration", "unprepare", "state", "health"),
)
T = TypeVar("T", bound=type)

_ALL: dict[str, tuple[type, ...]] = {}


def defect(rule: str, name: str = "") -> Callable[[T], T]:
    """Register a class that breaks the rule with this ID, in the place of its base class.

    A rule may have several defects: all but the first have a name.
    """
    key = f"{rule}/{name}" if name else rule

    def add(kind: T) -> T:
        _ALL[key] = (*_ALL.get(key, ()), kind)
        return kind

    return add


def all_defects() -> Mapping[str, tuple[type, ...]]:
    """Load all files; return the classes by `RULE` or `RULE/NAME`."""
    for file in FILES:
        import_module(f"tests.check.grpc_driver.defects.{file}")
    return _ALL


def rule_of(defect: str) -> str:
    """Return the ID of the rule that a defect breaks."""
    return defect.partition("/")[0]
