"""The checks of a ResourceSlice. Pure.

The rules and limits of resource.k8s.io/v1 in Kubernetes 1.36,
`pkg/apis/resource/validation/validation.go`. They share no code with the driver's own checks in
`dra.slice_limits`, so that tests find a mistake there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubedevices.values.cdi.names import SUBDOMAIN
from kubedevices.values.quantities import canonical
from kubedevices.values.scheduling.capacities import policy_problems
from kubedevices.values.scheduling.kinds import Object
from kubedevices.values.selectors.kubernetes import SEMVER

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_EFFECTS = ("None", "NoSchedule", "NoExecute")
_NODE_FIELDS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_TYPES = {"int": "int", "bool": "bool", "string": "str", "version": "str"}
"""The Python type of a JSON value for each attribute type; a bool is not an int."""


def slice_problems(made: Object, before: Object | None = None) -> list[str]:
    """Return the errors of a slice, also as an update of `before`; each begins with its field."""
    return [*_spec(made["spec"]), *(_changes(made["spec"], before["spec"]) if before else ())]


def _changes(spec: Object, before: Object) -> Iterator[str]:
    pairs = {
        "spec.driver": (spec["driver"], before["driver"]),
        "spec.nodeName": (spec.get("nodeName"), before.get("nodeName")),
        "spec.pool.name": (spec["pool"]["name"], before["pool"]["name"]),
    }
    for field, (now, then) in pairs.items():
        if now != then:
            yield f"{field}: Invalid value: {now!r}: field is immutable"


def _spec(spec: Object) -> Iterator[str]:
    driver, pool = spec.get("driver", ""), spec.get("pool", {})
    if len(driver) > 63 or not SUBDOMAIN.fullmatch(driver):
        yield f"spec.driver: Invalid value: {driver!r}: a lowercase RFC 1123 subdomain, at most 63"
    name = pool.get("name", "")
    if len(name) > 253 or not all(map(SUBDOMAIN.fullmatch, name.split("/"))):
        yield f"spec.pool.name: Invalid value: {name!r}: DNS subdomains separated by /"
    if pool.get("resourceSliceCount", 0) <= 0:
        yield "spec.pool.resourceSliceCount: Invalid value: must be greater than zero"
    if pool.get("generation", 0) < 0:
        yield "spec.pool.generation: Invalid value: must be greater than or equal to zero"
    chosen = [each for each in _NODE_FIELDS if spec.get(each)]
    if len(chosen) != 1:
        yield f"spec: Invalid value: exactly one of {', '.join(_NODE_FIELDS)} is required"
    yield from _devices(spec)


def _devices(spec: Object) -> Iterator[str]:
    devices = spec.get("devices") or []
    if devices and spec.get("sharedCounters"):
        yield "spec: Invalid value: only one of devices and sharedCounters may be set"
    is_heavy = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    limit = 64 if is_heavy else 128
    if len(devices) > limit:
        yield f"spec.devices: Too many: {len(devices)}: must have at most {limit} items"
    names: set[str] = set()
    for i, each in enumerate(devices):
        for problem in _device(each):
            yield f"spec.devices[{i}].{problem}"
        if each.get("name") in names:
            yield f"spec.devices[{i}].name: Duplicate value: {each['name']!r}"
        names.add(each.get("name", ""))
    sets = spec.get("sharedCounters") or []
    if len(sets) > 8:
        yield f"spec.sharedCounters: Too many: {len(sets)}: must have at most 8 items"
    for i, each in enumerate(sets):
        if not _is_label(each.get("name")) or not 0 < len(each.get("counters") or {}) <= 32:
            yield f"spec.sharedCounters[{i}]: Invalid value: a label and 1 to 32 counters"


def _device(device: Mapping[str, Any]) -> Iterator[str]:
    if not _is_label(device.get("name")):
        yield f"name: Invalid value: {device.get('name')!r}: a lowercase RFC 1123 label"
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > 32:
        yield f"attributes: Invalid value: {len(attributes) + len(capacity)}: at most 32 in total"
    for name, value in attributes.items():
        yield from _at(f"attributes[{name}]", [*_name(name), *_value(value)])
    is_divided = bool(device.get("allowMultipleAllocations"))
    for name, value in capacity.items():
        yield from _at(f"capacity[{name}]", [*_name(name), *_capacity(value, is_divided)])
    taints = device.get("taints") or []
    if len(taints) > 16:
        yield f"taints: Too many: {len(taints)}: must have at most 16 items"
    for i, each in enumerate(taints):
        yield from _at(f"taints[{i}]", _taint(each))
    if len(device.get("consumesCounters") or []) > 2:
        yield "consumesCounters: Too many: must have at most 2 items"
    for key in ("bindingConditions", "bindingFailureConditions"):
        if len(device.get(key) or []) > 4:
            yield f"{key}: Too many: must have at most 4 items"


def _at(field: str, problems: Iterable[str]) -> Iterator[str]:
    for each in problems:
        yield f"{field}: Invalid value: {each}"


def _name(name: str) -> Iterator[str]:
    domain, slash, identifier = name.rpartition("/")
    if slash and (len(domain) > 63 or not SUBDOMAIN.fullmatch(domain)):
        yield f"{domain!r}: a lowercase RFC 1123 subdomain, at most 63"
    if not _IDENTIFIER.fullmatch(identifier):
        yield f"{identifier!r}: a C identifier of at most 32 characters"


def _value(value: Mapping[str, Any]) -> Iterator[str]:
    if len(value) != 1:
        yield "exactly one value must be specified"
        return
    kind, content = next(iter(value.items()))
    wanted = _TYPES.get(kind)
    if wanted is None:
        yield f"{kind}: unknown field"
    elif type(content).__name__ != wanted:
        yield f"{content!r} is no {kind}"
    elif kind == "int" and not -(2**63) <= content < 2**63:
        yield f"{content} does not fit into 64 bits"
    elif isinstance(content, str) and len(content.encode()) > 64:
        yield "Too long: may not be more than 64 bytes"
    elif kind == "version" and not SEMVER.fullmatch(content):
        yield f"{content!r} is not a semantic version 2.0.0"


def _capacity(value: Mapping[str, Any], is_divided: bool) -> Iterator[str]:
    text, policy = value.get("value"), value.get("requestPolicy")
    if not isinstance(text, str) or canonical(text) is None:
        yield f"{text!r} is not a quantity"
    if policy is not None and not is_divided:
        yield "requestPolicy must not be set without allowMultipleAllocations"
    elif policy is not None and isinstance(text, str) and canonical(text) is not None:
        yield from policy_problems(text, policy)


def _taint(taint: Mapping[str, Any]) -> Iterator[str]:
    if taint.get("effect") not in _EFFECTS:
        yield f"effect {taint.get('effect')!r} is none of {', '.join(_EFFECTS)}"
    key = taint.get("key", "")
    domain, slash, name = key.rpartition("/")
    if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", name) or (
        slash and (len(domain) > 253 or not SUBDOMAIN.fullmatch(domain))
    ):
        yield f"key {key!r} is not a qualified name"


def _is_label(name: Any) -> bool:
    return isinstance(name, str) and bool(_LABEL.fullmatch(name))
