"""All checks, in the order in which reports show them.

registration  what a plugin says when it registers
starts        starting where something is not as it should be; the plugin watcher
listing       the content of device lists
streams       how ListAndWatch streams behave
changing      making devices change, by a trigger, and undoing it
changes       what becomes of changes
allocate      who gets an answer to Allocate, and which
container     what stands in the answers
cdi           CDI names in the answers, and the files behind them
preferred     GetPreferredAllocation and PreStartContainer
restarts      a kubelet that comes and goes
dies          an end of the plugin that nobody asked for
lost_updates  changes after restarts
growth        what a plugin holds more of after every restart
stops         SIGTERM
grpc          what every gRPC peer does
"""

from collections.abc import Iterable

from kubedevices.conformance.check import PluginCheck
from kubedevices.conformance.checks import (
    allocate,
    cdi,
    changes,
    container,
    dies,
    growth,
    grpc,
    listing,
    lost_updates,
    preferred,
    registration,
    restarts,
    starts,
    stops,
    streams,
)
from kubedevices.errors import UsageError
from kubedevices.words import did_you_mean

ALL: tuple[PluginCheck, ...] = tuple(
    check
    for theme in (
        registration.arrival,
        registration.quiet,
        starts.watched,
        starts.theme,
        listing.first,
        listing.theme,
        streams.abandoned,
        streams.theme,
        streams.quiet,
        changes.theme,
        allocate.base,
        allocate.theme,
        container.theme,
        cdi.theme,
        preferred.works,
        preferred.preferred,
        preferred.start,
        restarts.theme,
        dies.theme,
        lost_updates.theme,
        growth.theme,
        stops.theme,
        grpc.first,
        grpc.theme,
    )
    for check in theme.checks
)

THEMES = {
    "registration": "Registration",
    "list": "List",
    "allocate": "Allocate",
    "preferred": "Preferred allocation",
    "prestart": "PreStart",
    "life": "Life",
    "grpc": "gRPC",
}
"""The first part of an ID, and what reports call it."""


CHANGES = changes.TRACK

CHANGING = frozenset(
    each.id for theme in (changes.theme, lost_updates.theme) for each in theme.checks
)
"""The checks that run the trigger."""

DIES: PluginCheck = dies.theme.checks[0]
"""Tells of every end that nobody asked for, wherever it was seen."""


def find(name: str) -> PluginCheck:
    """Return the check with this ID; raises `UsageError` with the nearest one."""
    for check in ALL:
        if check.id == name:
            return check
    hint = did_you_mean(name, [check.id for check in ALL]) or " (see --list)"
    raise UsageError(f"there is no check {name!r}{hint}")


def select(only: Iterable[str] = (), skip: Iterable[str] = ()) -> list[PluginCheck]:
    """Return the checks that are meant by `--only` and `--skip`: IDs or themes."""
    wanted, unwanted = [*only], [*skip]
    for name in (*wanted, *unwanted):
        if name not in THEMES:
            find(name)
    return [
        check
        for check in ALL
        if (not wanted or {check.id, check.theme} & {*wanted})
        and not {check.id, check.theme} & {*unwanted}
    ]
