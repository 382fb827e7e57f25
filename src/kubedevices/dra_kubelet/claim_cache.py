"""Which claims are prepared, for which pods, with which devices; and that as JSON. Pure.

A kubelet that starts does not believe that a claim is still prepared: it asks the driver again.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubedevices.allocation import ClaimDevice, ClaimReference

ClaimKey = tuple[str, str]
"""Namespace and name."""


@dataclass
class ClaimInfo:
    """A claim that some pod on this node uses; `devices` by driver, as the drivers answered."""

    reference: ClaimReference
    devices: dict[str, tuple[ClaimDevice, ...]]
    pods: set[str] = field(default_factory=set)
    is_prepared: bool = False

    def cdi_ids(self, request: str = "") -> tuple[str, ...]:
        """Return what a container gets that names `request` of the claim, or names none."""
        return tuple(cdi_id for _, each in self.devices_for(request) for cdi_id in each.cdi_ids)

    def devices_for(self, request: str = "") -> Iterator[tuple[str, ClaimDevice]]:
        """Yield driver and device; a device without request names belongs to all requests."""
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
        """Take in a claim."""
        self._claims[_key(claim.reference)] = claim

    def remove(self, claim: ClaimInfo) -> None:
        """Forget a claim, unless another one of the same name is here by now."""
        if self._claims.get(_key(claim.reference)) is claim:
            del self._claims[_key(claim.reference)]

    def to_json(self) -> str:
        """Return what a kubelet that starts has to know."""
        return json.dumps(
            [
                {
                    "reference": each.reference,
                    "devices": each.devices,
                    "pods": sorted(each.pods),
                }
                for each in self
            ]
        )

    @classmethod
    def from_json(cls, text: str) -> "ClaimCache":
        """Return what the kubelet before knew; raises `ValueError` and its like for other text."""
        return cls(_claim_of(each) for each in json.loads(text))


def _claim_of(content: Mapping[str, Any]) -> ClaimInfo:
    devices = {
        driver: tuple(
            ClaimDevice(tuple(requests), pool, device, tuple(cdi_ids), share_id)
            for requests, pool, device, cdi_ids, share_id in found
        )
        for driver, found in content["devices"].items()
    }
    return ClaimInfo(ClaimReference(*content["reference"]), devices, set(content["pods"]))


def _key(claim: ClaimReference) -> ClaimKey:
    return claim.namespace, claim.name
