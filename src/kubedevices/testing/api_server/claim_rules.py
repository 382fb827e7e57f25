"""The checks of a ResourceClaim, its template or a DeviceClass. Pure.

Rules and limits of resource.k8s.io/v1 in Kubernetes 1.36, `pkg/apis/resource/validation`, as far as
they matter for a driver. Without the extra `kubedevices[cel]` selectors are not checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kubedevices.errors import BadSelector, UsageError
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.selectors import Selector

_MODES = ("ExactCount", "All")
_KINDS = ("matchAttribute", "distinctAttribute")


def set_claim_defaults(devices: Mapping[str, Any]) -> None:
    """Write what a server writes into the requests of a claim."""
    for request in devices.get("requests") or ():
        for each in request.get("firstAvailable") or [request.get("exactly") or {}]:
            if each.setdefault("allocationMode", "ExactCount") == "ExactCount":
                each.setdefault("count", 1)
            for toleration in each.get("tolerations") or ():
                toleration.setdefault("operator", "Equal")


def claim_problems(made: Object, before: Object | None = None) -> list[str]:
    """Return the errors of a claim, also as an update of `before`; each begins with its field."""
    problems = [] if before else [*_devices(made.get("spec", {}).get("devices") or {})]
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
    return [*_selectors("spec.selectors", made.get("spec", {}).get("selectors") or ())]


def _devices(devices: Mapping[str, Any]) -> Iterator[str]:
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
        for number, each in enumerate(choices or [exactly or {}]):
            inner = f"{field}.firstAvailable[{number}]" if choices else f"{field}.exactly"
            yield from _request(inner, each)
    known = {
        *names,
        *(
            f"{request.get('name')}/{each.get('name')}"
            for request in requests
            for each in request.get("firstAvailable") or ()
        ),
    }
    for i, each in enumerate(devices.get("constraints") or ()):
        yield from _constraint(f"spec.devices.constraints[{i}]", each, known)
    for i, each in enumerate(devices.get("config") or ()):
        yield from _names(f"spec.devices.config[{i}]", each, known)


def _request(field: str, request: Mapping[str, Any]) -> Iterator[str]:
    mode, count = request.get("allocationMode", "ExactCount"), request.get("count", 1)
    if mode not in _MODES:
        yield f"{field}.allocationMode: Unsupported value: {mode!r}"
    if mode == "All" and request.get("count"):
        yield f"{field}.count: Invalid value: must not be specified with allocationMode All"
    if mode == "ExactCount" and count <= 0:
        yield f"{field}.count: Invalid value: {count}: must be greater than zero"
    if not request.get("deviceClassName"):
        yield f"{field}.deviceClassName: Required value"
    yield from _selectors(f"{field}.selectors", request.get("selectors") or ())


def _selectors(field: str, selectors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if len(selectors) > 32:
        yield f"{field}: Too many: {len(selectors)}: must have at most 32 items"
    for i, each in enumerate(selectors):
        inner = f"{field}[{i}].cel"
        if "cel" not in each:
            yield f"{inner}: Required value"
            continue
        expression = each["cel"].get("expression", "")
        with suppress(UsageError):
            try:
                Selector.compiled(expression)
            except BadSelector as error:
                if error.kind == "compilation":
                    problem = f"Invalid value: {expression!r}: compilation failed: {error.problem}"
                    yield f"{inner}.expression: {problem}"
                elif error.kind != "unsupported":  # the scheduler says that it cannot evaluate it
                    kind = "Forbidden: " if error.kind == "cost" else ""
                    yield f"{inner}.expression: {kind}{error.problem}"


def _constraint(field: str, constraint: Mapping[str, Any], known: set[Any]) -> Iterator[str]:
    kinds = [each for each in _KINDS if constraint.get(each)]
    if len(kinds) != 1:
        yield f"{field}: Required value: exactly one of {' and '.join(_KINDS)} is required"
    for kind in kinds:
        if "/" not in constraint[kind]:
            yield f"{field}.{kind}: Invalid value: {constraint[kind]!r}: must include a domain"
    yield from _names(field, constraint, known)


def _names(field: str, entry: Mapping[str, Any], known: set[Any]) -> Iterator[str]:
    for i, name in enumerate(entry.get("requests") or ()):
        if name not in known:
            yield (
                f"{field}.requests[{i}]: Invalid value: {name!r}: must be the name of a request "
                "in the claim or the name of a request and a subrequest separated by '/'"
            )
