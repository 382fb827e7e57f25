"""All rules for DRA drivers, in the order in which reports show them.

registration  GetInfo, restarts of the kubelet, sockets that vanish, SIGTERM
slices        what is published, and how it is kept right
prepare       NodePrepareResources
holders       who holds a device
configuration  opaque parameters
unprepare     NodeUnprepareResources
state         reboots, crashes, damaged files
health        the health of devices
rights        the ClusterRole of the driver
"""

from kubedevices.check.catalogue import DRIVER_THEMES, Catalogue
from kubedevices.check.check import PluginCheck
from kubedevices.check.drivers.rules import (
    configuration,
    health,
    holders,
    prepare,
    registration,
    rights,
    slices,
    state,
    unprepare,
)

ALL: tuple[PluginCheck, ...] = tuple(
    check
    for theme in (
        registration.arrival,
        registration.theme,
        slices.theme,
        slices.apart,
        slices.triggered,
        prepare.theme,
        holders.theme,
        configuration.theme,
        unprepare.theme,
        state.simple,
        state.theme,
        health.theme,
        rights.theme,
    )
    for check in theme.checks
)

CATALOGUE = Catalogue(ALL, DRIVER_THEMES)
