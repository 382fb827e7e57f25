"""A claim object says whether a pod can still use a prepared claim."""

from typing import Any

import pytest

from kubedevices.dra.abandoned_verdict import Answer, why_abandoned
from kubedevices.dra.claims import Result
from kubedevices.errors import ApiRefused, ApiUnreachable
from kubedevices.values.allocation import ClaimReference

CLAIM = ClaimReference("lab", "uid-1", "one")
RESULTS = (Result("gpu", "node1", "gpu-0"),)
USED = {"driver": "a.com", "pool": "node1", "device": "gpu-0"}


def found(uid: object = "uid-1", name: str = "one", **status: Any) -> dict[str, Any]:
    metadata = {"namespace": "lab", "name": name, "uid": uid}
    return {"metadata": metadata, "status": status}


def reserved(*results: Any, **more: Any) -> dict[str, Any]:
    allocation = {"devices": {"results": list(results)}}
    return found(reservedFor=[{"uid": "pod"}], allocation=allocation, **more)


def refused(status: int, reason: str, message: str) -> ApiRefused:
    return ApiRefused("get resourceclaims", status, reason, message)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refused(404, "NotFound", 'resourceclaims.resource.k8s.io "one" not found'), "deleted"),
        (found("uid-2"), "another claim has its name"),
        (found(), "no pod has reserved it"),
        (found(reservedFor=[]), "no pod has reserved it"),
        (reserved(USED | {"device": "gpu-1"}), "other devices"),
        (reserved(USED | {"pool": "node2"}), "other devices"),
        (reserved(), "other devices"),
    ],
)
def test_no_pod_can_use_a_claim_that_is_gone_or_not_reserved(answer: Answer, reason: str) -> None:
    """The reason is for the log."""
    assert reason in why_abandoned(CLAIM, RESULTS, answer, "a.com")


@pytest.mark.parametrize(
    "answer",
    [
        reserved(USED),
        reserved(USED | {"device": "gpu-1"}, USED),
        ApiUnreachable("here", "gone"),
        refused(404, "", "404 page not found"),
        refused(404, "NotFound", "the server could not find the requested resource"),
        refused(404, "NotFound", 'resourceclaims.resource.k8s.io "other" not found'),
        refused(410, "NotFound", '"one" not found'),
        refused(403, "Forbidden", '"one" not found'),
        refused(503, "", "busy"),
        {},
        {"metadata": None},
        {"metadata": {"namespace": "lab", "name": "one"}},
        found(""),
        found(7),
        found(name="another"),
        {"kind": "Status", "metadata": {}},
        reserved(7),
        reserved(USED) | {"status": ["nonsense"]},
    ],
    ids=str,
)
def test_an_api_server_that_is_away_or_answers_nonsense_is_no_reason(answer: Answer) -> None:
    """Nor is a claim that a pod has reserved."""
    assert not why_abandoned(CLAIM, RESULTS, answer, "a.com")
