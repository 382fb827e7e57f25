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

from kubedevices.check.catalogue import PLUGIN_THEMES, Catalogue
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

CATALOGUE = Catalogue.of(
    PLUGIN_THEMES,
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

ALL, THEMES = CATALOGUE
find, select = CATALOGUE.find, CATALOGUE.select

CHANGES_TRACK = changes.TRACK

TRIGGER_CHECKS = frozenset(
    each.id for theme in (changes.theme, lost_updates.theme) for each in theme.checks
)
"""The checks that run the trigger."""

REGISTERS_CHECK: PluginCheck = registration.arrival.checks[0]
"""Reports that the plugin never registers; without this check nothing can be judged then."""

DIES_CHECK: PluginCheck = after_restarts.dies_theme.checks[0]
"""Reports every unexpected end of the plugin, also an end during another check."""
