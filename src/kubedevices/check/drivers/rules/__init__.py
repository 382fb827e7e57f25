"""All rules for DRA drivers, in the order in which reports show them.

register               GetInfo, restarts of the kubelet, sockets that vanish, SIGTERM
slices                 what is published, and how it is kept right
slices_changes         what is published when a trigger changes devices
prepare                NodePrepareResources
prepare_errors         a slow or refusing API server, and what refusals say
prepare_holders        who holds a device
prepare_configuration  opaque parameters
unprepare              NodeUnprepareResources
state                  reboots, crashes, damaged files
health                 the health of devices
rights                 the ClusterRole of the driver
process                when the process ends, what it prints and leaves open
"""

from kubedevices.check.catalogue import DRIVER_THEMES, Catalogue
from kubedevices.check.drivers.rules import (
    health,
    prepare,
    prepare_configuration,
    prepare_errors,
    prepare_holders,
    process,
    register,
    rights,
    slices,
    slices_changes,
    state,
    unprepare,
)

CATALOGUE = Catalogue.of(
    DRIVER_THEMES,
    register.arrival,
    register.theme,
    slices.theme,
    slices.waiting,
    slices.apart,
    slices_changes.theme,
    prepare.arrival,
    prepare.theme,
    prepare_errors.theme,
    prepare_errors.slow,
    prepare_holders.theme,
    prepare_configuration.theme,
    unprepare.theme,
    state.simple,
    state.theme,
    health.theme,
    health.apart,
    health.triggered,
    rights.theme,
    process.theme,
    process.afterwards,
)

ALL = CATALOGUE.checks
DIES = CATALOGUE.find("process.dies")
