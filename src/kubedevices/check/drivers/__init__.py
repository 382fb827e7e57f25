"""`kubedevices check` for DRA drivers, in any language.

The check acts as kubelet, API server, scheduler and container runtime. It needs no cluster. Rules
are checks as for device plugins; a rule takes the `DriverNode`.

config     `DriverCheck`: how to check, as options of the command line and in tests
target     what to check, in one configuration value
timing     all limits and pauses of a run
node       `DriverNode`: one copy of the driver with an API server and a kubelet of its own
node_setup  opens such a node
node_files  the files of a node: what a driver leaves there, and what the check does to them
detect     whether a program is a device plugin or a driver, by what it registers
registry   the kubelet's plugin registry: what registered, and what the check answers
claims     `TestClaim`: a claim that a rule creates, prepares and unprepares
cluster    what the driver published, and the faults of the API server
trigger_record  what one run of the trigger changed
rights     what the driver may do at the API server, and what it did
run        a whole run: which rules share a copy of the driver
rules      the rules, one file per theme
"""

from typing import TYPE_CHECKING

from kubedevices.errors import UsageError, needs_h11

if TYPE_CHECKING:
    from kubedevices.check.catalogue import Catalogue


def known_rules() -> list[str]:
    """Return the IDs of all rules for drivers; none where h11 is missing."""
    try:
        return [rule.id for rule in catalogue().checks]
    except UsageError:
        return []


def catalogue() -> "Catalogue":
    """Return all rules for drivers; raises `UsageError` where h11 is missing."""
    with needs_h11("checking a DRA driver"):
        from kubedevices.check.drivers.rules import CATALOGUE  # noqa: PLC0415 - needs h11
    return CATALOGUE
