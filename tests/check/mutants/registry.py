"""`Mutation`, a broken plugin, and the collection of all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

FILES = (
    "registration",
    "listing",
    "allocate",
    "preferred",
    "life",
    "ends",
    "grpc",
    "field",
    "bare",
)


@dataclass(frozen=True)
class Mutation:
    """A broken plugin, and the checks that must find it: ID → `fail`, `warn` or `note`.

    `says` is a text of the report by check ID, and `never` is a text that no report may have.
    """

    name: str
    plugin: type[Any]
    breaks: dict[str, str] = field(hash=False)
    options: Sequence[str] = ()
    says: Mapping[str, str] = field(default_factory=dict, hash=False)
    never: str = ""


_ALL: dict[str, Mutation] = {}

PLAIN = ("--plain",)
WATCHED = ("--registry-dir", "{registry_dir}")


def mutation(
    name: str,
    *,
    fails: Sequence[str] = (),
    warns: Sequence[str] = (),
    notes: Sequence[str] = (),
    options: Sequence[str] = (),
    says: Mapping[str, str] | None = None,
    never: str = "",
) -> Callable[[type[Any]], type[Any]]:
    """Add a plugin to the collection."""

    def add(plugin: type[Any]) -> type[Any]:
        assert name not in _ALL, name
        breaks = dict.fromkeys(fails, "fail") | dict.fromkeys(warns, "warn")
        breaks |= dict.fromkeys(notes, "note")
        _ALL[name] = Mutation(name, plugin, breaks, options, says or {}, never)
        return plugin

    return add


def all_mutations() -> dict[str, Mutation]:
    """Load all files; return the mutations by name."""
    for file in FILES:
        import_module(f"tests.check.mutants.{file}")
    return _ALL
