"""The checks of a ResourceClaim or DeviceClass. Pure.

Rules and limits of resource.k8s.io/v1 in Kubernetes 1.36, as far as they matter for a driver.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kubedevices.testing.api_server.kinds import Object

_MODES = ("ExactCount", "All")


def claim_problems(made: Object, before: Object | None = None) -> list[str]:
    """Return the errors of a claim, also as an update of `before`; each begins with its field."""
    problems = [*_requests(made.get("spec", {}).get("devices") or {})]
    if before is not None and made.get("spec") != before.get("spec"):
        problems.append("spec: Invalid value: field is immutable")
    status = made.get("status") or {}
    if len(status.get("reservedFor") or []) > 256:
        problems.append("status.reservedFor: Too many: must have at most 256 items")
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    if len(results) > 32:
        problems.append(f"status.allocation.devices.results: Too many: {len(results)}: at most 32")
    return problems


def class_problems(made: Object) -> list[str]:
    """Return the errors of a DeviceClass."""
    selectors = made.get("spec", {}).get("selectors") or []
    return ["spec.selectors: Too many: must have at most 32 items"] if len(selectors) > 32 else []


def _requests(devices: Mapping[str, Any]) -> Iterator[str]:
    requests = devices.get("requests") or []
    if len(requests) > 32:
        yield f"spec.devices.requests: Too many: {len(requests)}: must have at most 32 items"
    names = [each.get("name") for each in requests]
    for i, request in enumerate(requests):
        field = f"spec.devices.requests[{i}]"
        if names.count(request.get("name")) > 1:
            yield f"{field}.name: Duplicate value: {request.get('name')!r}"
        exactly, choices = request.get("exactly"), request.get("firstAvailable")
        if (exactly is None) == (not choices):
            yield f"{field}: Invalid value: exactly one of exactly and firstAvailable is required"
        elif choices and len(choices) > 8:
            yield f"{field}.firstAvailable: Too many: {len(choices)}: must have at most 8 items"
        for each in choices or [exactly or {}]:
            yield from _request(field, each)


def _request(field: str, request: Mapping[str, Any]) -> Iterator[str]:
    mode = request.get("allocationMode", "ExactCount")
    if mode not in _MODES:
        yield f"{field}.allocationMode: Unsupported value: {mode!r}"
    if mode == "All" and request.get("count"):
        yield f"{field}.count: Invalid value: must not be specified with allocationMode All"
    if not request.get("deviceClassName"):
        yield f"{field}.deviceClassName: Required value"
