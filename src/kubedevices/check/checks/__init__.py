"""All checks, in the order in which reports show them.

A file begins like the IDs of its checks: `list.complete` is in one of the files `list_…`.

registration         the Register call
registration_starts  no kubelet, a slow kubelet, old sockets; the plugin watcher
list_content         the content of device lists
list_streams         ListAndWatch streams
run_trigger          runs the trigger that changes devices, and undoes it; for the next two
list_changes         changes of devices reach all streams
life_lost_updates    changes of devices after kubelet restarts
allocate             Allocate: which requests get an answer, and which answer
allocate_container   content of the answers: device files, mounts, environment, annotations
allocate_cdi         CDI names in the answers, and the CDI files
preferred            GetPreferredAllocation
prestart             PreStartContainer
life_restarts        the plugin registers again after kubelet restarts
life_after_restarts  the process after kubelet restarts: it ends, or it grows
life_stops           SIGTERM
grpc                 gRPC and HTTP/2
"""

from kubedevices.check.catalogue import PLUGIN_THEMES, Catalogue
from kubedevices.check.check import PluginCheck
from kubedevices.check.checks import (
    allocate,
    allocate_cdi,
    allocate_container,
    grpc,
    life_after_restarts,
    life_lost_updates,
    life_restarts,
    life_stops,
    list_changes,
    list_content,
    list_streams,
    preferred,
    prestart,
    registration,
    registration_starts,
)

CATALOGUE = Catalogue.of(
    PLUGIN_THEMES,
    registration.arrival,
    registration.quiet,
    registration_starts.watched,
    registration_starts.theme,
    list_content.first,
    list_content.theme,
    list_streams.abandoned,
    list_streams.theme,
    list_streams.quiet,
    list_changes.theme,
    allocate.base,
    allocate.theme,
    allocate_container.theme,
    allocate_cdi.theme,
    preferred.works,
    preferred.preferred,
    prestart.theme,
    life_restarts.theme,
    life_after_restarts.dies_theme,
    life_lost_updates.theme,
    life_after_restarts.theme,
    life_stops.theme,
    grpc.first,
    grpc.theme,
)

ALL, THEMES = CATALOGUE
find, select = CATALOGUE.find, CATALOGUE.select

CHANGES_TRACK = list_changes.TRACK

TRIGGER_CHECKS = frozenset(
    each.id for theme in (list_changes.theme, life_lost_updates.theme) for each in theme.checks
)
"""The checks that run the trigger."""

REGISTERS_CHECK: PluginCheck = registration.arrival.checks[0]
"""Reports that the plugin never registers; without this check nothing can be judged then."""

DIES_CHECK: PluginCheck = life_after_restarts.dies_theme.checks[0]
"""Reports every unexpected end of the plugin, also an end during another check."""
