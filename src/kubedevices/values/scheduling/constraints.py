"""Constraints between the devices of a claim: `matchAttribute` and `distinctAttribute`. Pure.

Rules of k8s.io/dynamic-resource-allocation 1.36, `structured/internal/incubating`.
"""

from collections.abc import Mapping
from typing import Any

_KINDS = ("matchAttribute", "distinctAttribute")


class Constraint:
    """One constraint, with the values of the devices that are chosen so far."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        kinds = [each for each in _KINDS if spec.get(each)]
        self.kind = kinds[0] if len(kinds) == 1 else ""
        self.attribute = spec[self.kind] if self.kind else ""
        self._requests = spec.get("requests") or ()
        self._values: list[Any] = []
        self._distinct: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self.kind} {self.attribute}"

    def add(self, request: str, driver: str, device: Mapping[str, Any]) -> bool:
        """Count a device for a request such as `gpu` or `gpu/big`; return False if it cannot be."""
        if not self._is_for(request):
            return True
        value = _value(self.attribute, driver, device)
        if value is None:
            return False
        if self.kind == "matchAttribute":
            fits = all(each == value for each in self._values)
        else:
            fits = not self._values or value not in self._distinct.values()
        if fits:
            self._values.append(value)
            # A scheduler 1.36 compares with the last device of each request only.
            self._distinct[request.partition("/")[0]] = value
        return fits

    def remove(self, request: str) -> None:
        """Take back the last device that was counted."""
        if self._is_for(request):
            self._values.pop()
            self._distinct.pop(request.partition("/")[0], None)

    def _is_for(self, request: str) -> bool:
        return not self._requests or bool(
            {request, request.partition("/")[0]}.intersection(self._requests)
        )


def _value(attribute: str, driver: str, device: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return kind and value of an attribute; its domain may be implied by the driver."""
    attributes = device.get("attributes") or {}
    domain, _, name = attribute.partition("/")
    found = attributes.get(attribute) or (attributes.get(name) if domain == driver else None)
    return next(iter(found.items())) if found else None
