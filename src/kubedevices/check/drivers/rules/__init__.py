"""All rules for DRA drivers, in the order in which reports show them.

registration  GetInfo, restarts of the kubelet, sockets that vanish, SIGTERM
slices        what is published, and how it is kept right
changes       what is published when a trigger changes devices
prepare       NodePrepareResources
prepare_errors  a slow or refusing API server, and what refusals say
holders       who holds a device
configuration  opaque parameters
unprepare     NodeUnprepareResources
state         reboots, crashes, damaged files
health        the health of devices
rights        the ClusterRole of the driver
process       when the process ends, what it prints and leaves open
"""

from kubedevices.check.catalogue import DRIVER_THEMES, Catalogue
from kubedevices.check.drivers.rules import (
    changes,
    configuration,
    health,
    holders,
    prepare,
    prepare_errors,
    process,
    registration,
    rights,
    slices,
    state,
    unprepare,
)

CATALOGUE = Catalogue.of(
    DRIVER_THEMES,
    registration.arrival,
    registration.theme,
    slices.theme,
    slices.apart,
    changes.theme,
    prepare.arrival,
    prepare.theme,
    prepare_errors.theme,
    prepare_errors.slow,
    holders.theme,
    configuration.theme,
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
