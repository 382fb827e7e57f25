"""All checks, in the order in which reports show them.

registration    the Register call
starts          starts of the plugin: no kubelet, slow kubelet, old sockets; the plugin watcher
listing         the content of device lists
streams         ListAndWatch streams
run_trigger     runs the trigger that changes devices, and undoes it; for the next two
changes         changes of devices reach all streams
lost_updates    changes of devices after kubelet restarts
allocate        Allocate: which requests get an answer, and which answer
container       the content of the answers: device files, mounts, environment, annotations
cdi             CDI names in the answers, and the CDI files
preferred       GetPreferredAllocation and PreStartContainer
restarts        the plugin registers again after kubelet restarts
after_restarts  the process after kubelet restarts: it ends, or it grows
stops           SIGTERM
grpc            gRPC and HTTP/2
"""

from collections.abc import Iterable

from kubedevices.check.check import PluginCheck
from kubedevices.check.checks import (
    after_restarts,
    allocate,
    cdi,
    changes,
    container,
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
from kubedevices.errors.words import did_you_mean

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
        after_restarts.dies_theme,
        lost_updates.theme,
        after_restarts.theme,
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
"""The title in reports for the first part of a check's ID."""

CHANGES_TRACK = changes.TRACK

TRIGGER_CHECKS = frozenset(
    each.id for theme in (changes.theme, lost_updates.theme) for each in theme.checks
)
"""The checks that run the trigger."""

REGISTERS_CHECK: PluginCheck = registration.arrival.checks[0]
"""Reports that the plugin never registers; without this check nothing can be judged then."""

DIES_CHECK: PluginCheck = after_restarts.dies_theme.checks[0]
"""Reports every unexpected end of the plugin, also an end during another check."""


def find(name: str) -> PluginCheck:
    """Return the check with this ID; raises `UsageError` with the most similar ID."""
    for check in ALL:
        if check.id == name:
            return check
    hint = did_you_mean(name, [check.id for check in ALL]) or " (see --list)"
    raise UsageError(f"there is no check {name!r}{hint}")


def select(only: Iterable[str] = (), skip: Iterable[str] = ()) -> list[PluginCheck]:
    """Return the checks that `--only` and `--skip` leave; both take IDs and themes."""
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
