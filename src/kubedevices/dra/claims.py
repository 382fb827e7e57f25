"""Reads the allocation and the configuration of a ResourceClaim. Pure.

The scheduler has already chosen the devices: `status.allocation` names them. The driver makes the
last check that no device is held by two claims (`check_free`).
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from kubedevices.errors import ClaimRefused, DeviceStillHeld
from kubedevices.values.allocation import ClaimReference

Configuration = Mapping[str, Any]
"""The configuration of a request, as a JSON object."""


class ClaimSource(Protocol):
    """The source of claim objects: the API server."""

    async def get_claim(self, claim: ClaimReference) -> dict[str, Any]:
        """Return a ResourceClaim; raises `ApiRefused` or `ApiUnreachable`."""


class DeviceGroup(NamedTuple):
    """The devices that a `ClaimPreparer` prepares in one call: one request, one device type.

    A shared device is a group of its own, with its `label`. When its work is done, `first` is the
    claim for which the hooks were called; `answer` is what a container gets by `allocate` with
    this device alone, and `edits` what it gets by `prepare_claim`, as JSON objects.
    """

    request: str
    device_type: str
    device_ids: tuple[str, ...]
    configuration: Configuration = MappingProxyType({})
    label: str = ""
    first: ClaimReference | None = None
    answer: Mapping[str, Any] | None = None
    edits: Mapping[str, Any] | None = None


class Result(NamedTuple):
    """One device that the scheduler allocated to a claim; `device` is its name in the slice.

    `request` is a request of the claim, without the name of a subrequest.
    """

    request: str
    pool: str
    device: str
    share_id: str = ""
    admin_access: bool = False


def results_of(claim: Mapping[str, Any], wanted: ClaimReference, driver: str) -> tuple[Result, ...]:
    """Return the devices of `driver` that are allocated to a claim object of the API server.

    Raises `ClaimRefused` if the object is another claim of the same name, and if no device of
    `driver` is allocated to it.
    """
    if claim["metadata"]["uid"] != wanted.uid:
        raise ClaimRefused(str(wanted), f"it was replaced: its UID is {claim['metadata']['uid']}")
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        raise ClaimRefused(str(wanted), "nothing is allocated to it (any more)")
    devices = allocation.get("devices", {})
    results = tuple(
        Result(
            # With alternatives the name is `request/subrequest`; kubelets and containers use only
            # the name of the request.
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
    """Return the configuration of the claim and its DeviceClass for `driver`, by request.

    An entry without requests counts for all requests. Entries are merged key by key: the claim
    overrides the class, and within each of the two a later entry overrides an earlier entry. An
    entry with another `kind` or `apiVersion` replaces all before it: its keys have other meanings.
    """
    devices = claim["status"]["allocation"].get("devices", {})
    entries = [each for each in devices.get("config", []) if _driver_of(each) == driver]
    # Entries of the class come first. The sort is stable, so entries of one source keep their order
    # and a later entry overrides.
    entries.sort(key=lambda each: each.get("source") != "FromClass")
    found: dict[str, Configuration] = {}
    for each in devices.get("results", []):
        if each["driver"] == driver:
            name: str = each["request"]
            request = name.partition("/")[0]
            for entry in entries:
                if not entry.get("requests") or {name, request} & set(entry["requests"]):
                    parameters = entry["opaque"].get("parameters") or {}
                    found[request] = _merged(found.get(request, {}), parameters)
    return found


def _merged(earlier: Configuration, later: Configuration) -> Configuration:
    # An entry that does not say its kind or version has that of the entries before it.
    is_other = any(
        key in earlier and key in later and earlier[key] != later[key]
        for key in ("kind", "apiVersion")
    )
    return dict(later) if is_other else {**earlier, **later}


def _driver_of(entry: Mapping[str, Any]) -> str:
    return str((entry.get("opaque") or {}).get("driver", ""))


class ClaimHolder(NamedTuple):
    """A claim that holds devices, and its devices."""

    claim: ClaimReference
    results: tuple[Result, ...]


def holders_of(
    results: Iterable[Result], holders: Iterable[ClaimHolder]
) -> Mapping[str, ClaimReference]:
    """Return which of `holders` has a device of `results`, by the name of the device.

    Empty if a claim may have all `results`: several claims may have shares of one device, but no
    claim may have a device whole beside a share. Access of an administrator does not count.
    """
    whole: dict[str, ClaimReference] = {}
    shared: dict[str, ClaimReference] = {}
    for holder in holders:
        for each in holder.results:
            if not each.admin_access:
                (shared if each.share_id else whole)[each.device] = holder.claim
    found: dict[str, ClaimReference] = {}
    for each in results:
        taken = whole if each.share_id else {**shared, **whole}
        if not each.admin_access and each.device in taken:
            found[each.device] = taken[each.device]
    return found


def check_free(
    claim: ClaimReference, results: Iterable[Result], holders: Iterable[ClaimHolder]
) -> None:
    """Raise `DeviceStillHeld` if another claim, one of `holders`, has a device of `results`."""
    for device, holder in holders_of(results, holders).items():
        # The scheduler has allocated the device to both claims, one after the other: the first
        # claim is deallocated, but not unprepared yet.
        raise DeviceStillHeld(str(claim), str(holder), device)
