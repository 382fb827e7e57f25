"""What a ResourceClaim asks of our driver, and whether it can have it. Pure.

The scheduler has decided already: `status.allocation` names the devices. The driver is the last to
see that a device would be held twice.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kubedevices.allocation import ClaimReference
from kubedevices.errors import ClaimRefused


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

    Raises `ClaimRefused` for another claim of the same name, for a claim without allocation, and
    for one with configuration for this driver, which takes none: before anything is done.
    """
    if claim["metadata"]["uid"] != wanted.uid:
        raise ClaimRefused(str(wanted), f"it was replaced: its UID is {claim['metadata']['uid']}")
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        raise ClaimRefused(str(wanted), "nothing is allocated to it (any more)")
    devices = allocation.get("devices", {})
    results = tuple(
        Result(
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
    for each in devices.get("config", []):
        if each.get("opaque", {}).get("driver") == driver:
            source = "its DeviceClass" if each.get("source") == "FromClass" else "the claim"
            raise ClaimRefused(
                str(wanted), f"{source} has configuration for {driver}, which takes none: remove it"
            )
    return results


class Holder(NamedTuple):
    """A claim that holds devices: its name and what it got."""

    claim: str
    results: tuple[Result, ...]


def check_free(claim: ClaimReference, results: Iterable[Result], holders: Iterable[Holder]) -> None:
    """Raise `ClaimRefused` if one of `holders`, the other claims, holds a device of `results`."""
    taken = {
        result.device: holder.claim
        for holder in holders
        for result in holder.results
        if not result.is_shared
    }
    for result in results:
        if not result.is_shared and result.device in taken:
            raise ClaimRefused(
                str(claim), f"the claim {taken[result.device]} still holds device {result.device}"
            )
