"""What a ResourceClaim asks of our driver, and whether it can have it. Pure.

The scheduler has decided already: `status.allocation` names the devices. The driver is the last to
see that a device would be held twice.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kubedevices.allocation import ClaimReference
from kubedevices.errors import ClaimRefused

Configuration = Mapping[str, Any]
"""What is configured for a request, as JSON has it."""


class Group(NamedTuple):
    """Devices that a `ClaimPreparer` makes ready in one call."""

    request: str
    device_type: str
    device_ids: tuple[str, ...]
    configuration: Configuration = MappingProxyType({})


class Result(NamedTuple):
    """One device that the scheduler gave to a claim; `device` is the name in the slice.

    `request` is a request of the claim, without the name of a subrequest. `is_shared`: other claims
    may hold the device too, because an administrator looks at it or because it is divided.
    """

    request: str
    pool: str
    device: str
    share_id: str = ""
    admin_access: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether other claims may hold the device as well."""
        return self.admin_access or bool(self.share_id)


def results_of(claim: Mapping[str, Any], wanted: ClaimReference, driver: str) -> tuple[Result, ...]:
    """Return our part of the allocation of a claim, read from the API server.

    Raises `ClaimRefused` for another claim of the same name, and for a claim without allocation.
    """
    if claim["metadata"]["uid"] != wanted.uid:
        raise ClaimRefused(str(wanted), f"it was replaced: its UID is {claim['metadata']['uid']}")
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        raise ClaimRefused(str(wanted), "nothing is allocated to it (any more)")
    devices = allocation.get("devices", {})
    results = tuple(
        Result(
            # A claim with alternatives names `request/subrequest`; kubelets and containers know the
            # request.
            each["request"].partition("/")[0],
            each["pool"],
            each["device"],
            each.get("shareID", ""),
            bool(each.get("adminAccess", False)),
        )
        for each in devices.get("results", [])
        if each["driver"] == driver
    )
    if not results:
        raise ClaimRefused(str(wanted), f"no device of the driver {driver} is allocated to it")
    return results


def configuration_of(claim: Mapping[str, Any], driver: str) -> Mapping[str, Configuration]:
    """Return what the claim and its DeviceClass configure for `driver`, by request.

    An entry for no request in particular is for all of them. The class is weaker than the claim,
    and of one of them an earlier entry weaker than a later one: a stronger entry replaces the keys
    that it has.
    """
    devices = claim["status"]["allocation"].get("devices", {})
    entries = [each for each in devices.get("config", []) if _driver_of(each) == driver]
    # A stable sort: entries of the class first, each part in its own order, so that later ones win.
    entries.sort(key=lambda each: each.get("source") != "FromClass")
    found: dict[str, Configuration] = {}
    for each in devices.get("results", []):
        if each["driver"] == driver:
            name: str = each["request"]
            request = name.partition("/")[0]
            for entry in entries:
                if not entry.get("requests") or {name, request} & set(entry["requests"]):
                    parameters = entry["opaque"].get("parameters") or {}
                    found[request] = {**found.get(request, {}), **parameters}
    return found


def _driver_of(entry: Mapping[str, Any]) -> str:
    return str((entry.get("opaque") or {}).get("driver", ""))


class ClaimHolder(NamedTuple):
    """A claim that holds devices: its name and what it got."""

    claim: str
    results: tuple[Result, ...]


def check_free(
    claim: ClaimReference, results: Iterable[Result], holders: Iterable[ClaimHolder]
) -> None:
    """Raise `ClaimRefused` if one of `holders`, the other claims, holds a device of `results`."""
    taken = {
        result.device: holder.claim
        for holder in holders
        for result in holder.results
        if not result.is_shared
    }
    for result in results:
        # The last line of defence: the scheduler should never give such a device away twice.
        if not result.is_shared and result.device in taken:
            raise ClaimRefused(
                str(claim), f"the claim {taken[result.device]} still holds device {result.device}"
            )
