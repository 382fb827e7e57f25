"""A catalogue of checks: find one by its ID, choose some, and the titles of their themes."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kubedevices.check.check import PluginCheck, Theme
from kubedevices.errors import UsageError
from kubedevices.errors.words import did_you_mean

PLUGIN_THEMES: Mapping[str, str] = MappingProxyType(
    {
        "registration": "Registration",
        "list": "List",
        "allocate": "Allocate",
        "preferred": "Preferred allocation",
        "prestart": "PreStart",
        "life": "Life",
        "grpc": "gRPC",
    }
)
"""The titles in reports by the first part of a check's ID, for device plugins."""

DRIVER_THEMES: Mapping[str, str] = MappingProxyType(
    {
        "register": "Registration",
        "slices": "ResourceSlices",
        "prepare": "Prepare",
        "unprepare": "Unprepare",
        "state": "Reboot and crash",
        "health": "Health",
        "rights": "Rights",
        "process": "Process",
    }
)
"""The same for DRA drivers."""


class Catalogue(NamedTuple):
    """All checks of one kind of program, in the order of reports."""

    checks: tuple[PluginCheck, ...]
    themes: Mapping[str, str]

    @classmethod
    def of(cls, titles: Mapping[str, str], *themes: Theme) -> "Catalogue":
        """Return the checks of these themes in their order; `titles` are those in reports."""
        return cls(tuple(check for theme in themes for check in theme.checks), titles)

    def find(self, name: str) -> PluginCheck:
        """Return the check with this ID; raises `UsageError` with the most similar ID."""
        for check in self.checks:
            if check.id == name:
                return check
        ids = [check.id for check in self.checks]
        ending = [each for each in ids if each.endswith(f".{name}")]
        hint = did_you_mean(name, ending, alike=0) or did_you_mean(name, ids) or " (see --list)"
        raise UsageError(f"there is no check {name!r}{hint}")

    def select(self, only: Iterable[str] = (), skip: Iterable[str] = ()) -> list[PluginCheck]:
        """Return what `--only` and `--skip` leave; raises `UsageError` for an unknown ID."""
        wanted, unwanted = [*only], [*skip]
        for name in (*wanted, *unwanted):
            if name not in self.themes:
                self.find(name)
        return [
            check
            for check in self.checks
            if (not wanted or {check.id, check.theme} & {*wanted})
            and not {check.id, check.theme} & {*unwanted}
        ]
