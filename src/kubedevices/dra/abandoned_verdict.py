"""Judges whether a pod can still use a prepared claim, by the claim object. Pure.

A kubelet unprepares the claims of its pods. But a kubelet that has lost its state file forgets the
claims of pods that are deleted meanwhile: nobody would unprepare them, and no other claim would get
their devices.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kubedevices.dra.claims import Result
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.values.allocation import ClaimReference

Answer = Mapping[str, Any] | ApiRefused | ApiUnreachable
"""The answer of the API server to the question for a claim object."""


def why_abandoned(
    claim: ClaimReference, results: Iterable[Result], answer: Answer, driver: str
) -> str:
    """Return why no pod can use a claim that is prepared with the devices `results`; else empty.

    Only an answer that an API server gives about exactly this claim counts. An API server that is
    away, does not serve the API, or answers nonsense is no reason.
    """
    if isinstance(answer, ApiRefused):
        return "it is deleted" if is_deleted(claim, answer) else ""
    if isinstance(answer, ApiUnreachable):
        return ""
    try:
        return _why_unused(claim, results, answer, driver)
    except (KeyError, TypeError, AttributeError):  # not a ResourceClaim
        return ""


def is_deleted(claim: ClaimReference, answer: ApiRefused) -> bool:
    """Whether the API server says that a claim does not exist.

    A server without resource.k8s.io answers 404 too, but without the name of the claim.
    """
    is_missing = answer.status == 404 and answer.reason == "NotFound"
    return is_missing and f'"{claim.name}" not found' in answer.message


def _why_unused(
    claim: ClaimReference, results: Iterable[Result], found: Mapping[str, Any], driver: str
) -> str:
    metadata = found["metadata"]
    if (metadata["namespace"], metadata["name"]) != (claim.namespace, claim.name):
        return ""
    if not isinstance(metadata["uid"], str) or not metadata["uid"]:
        return ""
    if metadata["uid"] != claim.uid:
        return "another claim has its name now"
    status = found.get("status") or {}
    if not status.get("reservedFor"):
        return "no pod has reserved it"
    devices = (status.get("allocation") or {}).get("devices") or {}
    allocated = {
        (each["driver"], each["pool"], each["device"]) for each in devices.get("results") or ()
    }
    if not allocated & {(driver, each.pool, each.device) for each in results}:
        return "other devices are allocated to it now"
    return ""
