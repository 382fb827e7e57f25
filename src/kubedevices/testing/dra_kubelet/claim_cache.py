"""The prepared claims with their pods, as values and as JSON; the check of a driver's answer. Pure.

The JSON is that of a kubelet's checkpoint. It does not say which claims are prepared: after its
start a kubelet calls Prepare again.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubedevices.config.documents.json_text import read_json
from kubedevices.values.allocation import ClaimDevice, ClaimReference

ClaimKey = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass
class ClaimInfo:
    """A claim that a pod on this node uses; `devices` are the drivers' answers, by driver."""

    reference: ClaimReference
    devices: dict[str, tuple[ClaimDevice, ...]]
    pods: set[str] = field(default_factory=set)
    is_prepared: bool = False

    def cdi_ids(self, request: str = "") -> tuple[str, ...]:
        """Return the CDI IDs for a container that names `request`; without a name, all CDI IDs."""
        return tuple(cdi_id for _, each in self.devices_for(request) for cdi_id in each.cdi_ids)

    def devices_for(self, request: str = "") -> Iterator[tuple[str, ClaimDevice]]:
        """Yield driver and device of a request. A device without request names is in all requests.

        An empty `request` means all requests.
        """
        request = request.partition("/")[0]
        for driver, devices in self.devices.items():
            for each in devices:
                if not request or not each.requests or request in each.requests:
                    yield driver, each


class ClaimCache:
    """The claims of this node, by namespace and name."""

    def __init__(self, claims: Iterable[ClaimInfo] = ()) -> None:
        self._claims = {_key(each.reference): each for each in claims}

    def __iter__(self) -> Iterator[ClaimInfo]:
        return iter([*self._claims.values()])

    def get(self, namespace: str, name: str) -> ClaimInfo | None:
        """Return the claim with this name."""
        return self._claims.get((namespace, name))

    def add(self, claim: ClaimInfo) -> None:
        """Add a claim, or replace the claim of the same name."""
        self._claims[_key(claim.reference)] = claim

    def remove(self, claim: ClaimInfo) -> None:
        """Remove a claim, unless another claim of the same name has replaced it."""
        if self._claims.get(_key(claim.reference)) is claim:
            del self._claims[_key(claim.reference)]

    def to_document(self) -> dict[str, Any]:
        """Return the claims as the checkpoint of a kubelet, for its next start."""
        data = json.dumps(
            {
                "kind": "DRACheckpoint",
                "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
                "ClaimInfoStateList": [_entry_of(each) for each in self],
            }
        )
        return {"Data": data, "Checksum": zlib.crc32(data.encode())}

    @classmethod
    def from_document(cls, document: Any) -> "ClaimCache":
        """Return the claims of a checkpoint; raises an error of Python if it has another form."""
        data = document["Data"].encode()
        if zlib.crc32(data) != document["Checksum"]:
            raise ValueError("its checksum is wrong")
        found = read_json(data, limit=len(data))
        return cls(map(_claim_of, found["ClaimInfoStateList"] or ()))


def _entry_of(claim: ClaimInfo) -> dict[str, Any]:
    return {
        "ClaimUID": claim.reference.uid,
        "ClaimName": claim.reference.name,
        "Namespace": claim.reference.namespace,
        "PodUIDs": {uid: {} for uid in sorted(claim.pods)},
        "DriverState": {
            driver: {
                "Devices": [
                    {
                        "PoolName": each.pool,
                        "DeviceName": each.device,
                        "ShareID": each.share_id or None,
                        "RequestNames": [*each.requests],
                        "CDIDeviceIDs": [*each.cdi_ids],
                    }
                    for each in devices
                ]
            }
            for driver, devices in claim.devices.items()
        },
    }


def _claim_of(content: Mapping[str, Any]) -> ClaimInfo:
    devices = {
        driver: tuple(
            ClaimDevice(
                tuple(each["RequestNames"]),
                each["PoolName"],
                each["DeviceName"],
                tuple(each["CDIDeviceIDs"]),
                each["ShareID"] or "",
            )
            for each in found["Devices"]
        )
        for driver, found in content["DriverState"].items()
    }
    reference = ClaimReference(content["Namespace"], content["ClaimUID"], content["ClaimName"])
    return ClaimInfo(reference, devices, set(content["PodUIDs"]))


def _key(claim: ClaimReference) -> ClaimKey:
    return claim.namespace, claim.name


def answer_problem(method: str, asked: Iterable[ClaimReference], errors: Mapping[str, str]) -> str:
    """Return what is wrong with a driver's answer, with the kubelet's text; empty if correct.

    `method` is `NodePrepareResources` or `NodeUnprepareResources`. `errors` has the driver's error
    by UID, empty for a success.
    """
    names = {each.uid: each.name for each in asked}
    for uid, error in errors.items():
        if uid not in names:
            return f"{method} returned result for unknown claim UID {uid}"
        if error:
            return f"{method} failed for ResourceClaim {names[uid]}: {error}"
    if skipped := len(names) - len(errors):
        return f"{method} skipped {skipped} ResourceClaims"
    return ""
