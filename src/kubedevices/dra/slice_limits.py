"""The limits of the API server for a device of a ResourceSlice. Pure.

The driver checks each device before it sends a slice: for one bad device the API server refuses the
whole slice, and its message has only the index of the device. A bad attribute of an author costs
only this attribute (`slices`). Source of the limits: resource.k8s.io/v1 in Kubernetes 1.36.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubedevices.dra.names import LABEL
from kubedevices.values.cdi.names import SUBDOMAIN

DEVICES_PER_SLICE = 64
"""The number of devices in a full slice.

The API server accepts 128, but only 64 in a slice with a taint. With 128, a device that becomes
unhealthy would move devices to other slices, and the whole pool would be written again.
"""

TEXT_LIMIT = 64
"""Bytes of an attribute with a text or a version."""

_ENTRY_LIMIT, _TAINT_LIMIT, _DOMAIN_LIMIT = 32, 16, 63
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_QUANTITY = re.compile(
    r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?", re.ASCII
)
_NUMBER = r"(?:0|[1-9]\d*)"
_PART = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PART}(?:\.{_PART})*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
EFFECTS = ("None", "NoSchedule", "NoExecute")
"""The effects that a device taint can have."""


def device_problem(device: Mapping[str, Any]) -> str:
    """Return why an API server would refuse `device`, an item of `spec.devices`; empty if valid."""
    return next(_problems(device), "")


def attribute_problem(name: str, value: Mapping[str, Any]) -> str:
    """Return why an API server would refuse an attribute; empty if valid."""
    return _name_problem(name) or _value_problem(value)


def _problems(device: Mapping[str, Any]) -> Iterator[str]:
    if not LABEL.fullmatch(device["name"]):
        yield f"the name {device['name']!r} is no DNS label"
    attributes, capacity = device.get("attributes", {}), device.get("capacity", {})
    if len(attributes) + len(capacity) > _ENTRY_LIMIT:
        count = len(attributes) + len(capacity)
        yield f"{count} attributes and capacities, at most {_ENTRY_LIMIT} are allowed"
    for name, value in attributes.items():
        if problem := attribute_problem(name, value):
            yield f"the attribute {name!r}: {problem}"
    for name, value in capacity.items():
        if problem := _name_problem(name) or _quantity_problem(value["value"]):
            yield f"the capacity {name!r}: {problem}"
    taints = device.get("taints", ())
    if len(taints) > _TAINT_LIMIT:
        yield f"{len(taints)} taints, at most {_TAINT_LIMIT} are allowed"
    for taint in taints:
        if taint["effect"] not in EFFECTS:
            yield f"the effect {taint['effect']!r} of a taint is none of {', '.join(EFFECTS)}"


def _name_problem(name: str) -> str:
    domain, slash, identifier = name.rpartition("/")
    if slash and (len(domain) > _DOMAIN_LIMIT or not SUBDOMAIN.fullmatch(domain)):
        return f"{domain!r} is no DNS subdomain of at most {_DOMAIN_LIMIT} characters"
    if not _IDENTIFIER.fullmatch(identifier):
        return "a name has at most 32 letters, digits and '_', and no digit first"
    return ""


def _quantity_problem(value: str) -> str:
    return "" if _QUANTITY.fullmatch(value) else f"{value!r} is not a quantity such as 10Gi"


def _value_problem(value: Mapping[str, Any]) -> str:
    (kind, content), *others = value.items()
    if others:
        return "a value must have exactly one type"
    if kind == "int" and not -(2**63) <= content < 2**63:
        return f"{content} needs more than 64 bits"
    if kind in ("string", "version") and len(content.encode()) > TEXT_LIMIT:
        return f"{len(content.encode())} bytes of text, at most {TEXT_LIMIT} are allowed"
    if kind == "version" and not _SEMVER.fullmatch(content):
        return f"{content!r} is not a semantic version such as 1.0.0"
    return ""
