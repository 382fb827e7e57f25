"""Capacities that several allocations of one device consume (KEP-5075). Pure.

Rules of `pkg/apis/resource/validation/validation.go` and of the scheduler's allocator in Kubernetes
1.36.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from kubedevices.values.quantities import amount, canonical
from kubedevices.values.scheduling.kinds import Object

Key = tuple[str, str, str]
"""Driver, pool and name of a device."""


class Consumed:
    """How much of its capacities each device has given to claims."""

    def __init__(self, results: Iterable[Object]) -> None:
        self._sums: dict[Key, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for each in results:
            key = each["driver"], each["pool"], each["device"]
            self.add(key, each.get("consumedCapacity") or {})

    def add(self, key: Key, consumed: Mapping[str, str]) -> None:
        """Consume capacities of a device."""
        for name, text in consumed.items():
            self._sums[key][name] += amount(text)

    def remove(self, key: Key, consumed: Mapping[str, str]) -> None:
        """Give capacities back to a device."""
        for name, text in consumed.items():
            self._sums[key][name] -= amount(text)
        if not any(self._sums[key].values()):
            del self._sums[key]

    def is_shared(self, key: Key) -> bool:
        """Whether claims have parts of a device."""
        return key in self._sums

    def of_request(
        self, key: Key, device: Mapping[str, Any], request: Mapping[str, Any]
    ) -> dict[str, str] | None:
        """Return what a request would consume of a device; None if the rest is too little."""
        wanted = (request.get("capacity") or {}).get("requests") or {}
        capacities = device.get("capacity") or {}
        if not wanted.keys() <= capacities.keys():
            return None
        taken = {}
        for name, capacity in capacities.items():
            consumed = _consumed(capacity, wanted.get(name))
            if consumed is None:
                return None
            held = self._sums.get(key, {}).get(name, Fraction(0))
            if held + amount(consumed) > amount(capacity["value"]):
                return None
            taken[name] = consumed
        return taken


def _consumed(capacity: Mapping[str, Any], wanted: str | None) -> str | None:
    """Return what a request consumes of one capacity; None if the policy does not allow it."""
    policy = capacity.get("requestPolicy") or {}
    if wanted is None:
        return str(policy.get("default", capacity["value"]))
    asked, limits = amount(wanted), policy.get("validRange")
    if values := policy.get("validValues"):
        return next((str(each) for each in values if amount(each) >= asked), None)
    if limits is None:
        return wanted
    least, text = amount(limits["min"]), wanted
    if asked <= least:
        text = str(limits["min"])
    elif "step" in limits:
        step = amount(limits["step"])
        number = int(least + -(-(asked - least) // step) * step)
        is_binary = str(limits["min"]).endswith("i") and number % 1024 == 0
        text = f"{number // 1024}Ki" if is_binary else str(number)  # the form is that of `min`
    if "max" in limits and amount(text) > amount(limits["max"]):
        return None
    return canonical(text)


def policy_problems(value: str, policy: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors in the policy of a capacity `value` of a shared device."""
    values, limits = policy.get("validValues") or [], policy.get("validRange")
    default = policy.get("default")
    if values and limits is not None:
        yield "requestPolicy: only one of validValues and validRange may be set"
        return
    if (values or limits is not None) and default is None:
        yield "requestPolicy.default: Required value"
        return
    if len(values) > 10:
        yield "requestPolicy.validValues must have at most 10 items"
    amounts = [amount(each) for each in values]
    if amounts != sorted(amounts):
        yield "requestPolicy.validValues must be sorted in ascending order"
    if any(each > amount(value) for each in amounts):
        yield f"requestPolicy.validValues: option is larger than capacity value: {value}"
    if values and amount(str(default)) not in amounts:
        yield "requestPolicy.default is not valid according to the requestPolicy"
    if limits is not None:
        yield from _range_problems(amount(value), amount(str(default)), limits)


def _range_problems(value: Fraction, default: Fraction, limits: Mapping[str, Any]) -> Iterator[str]:
    if "min" not in limits:
        yield "requestPolicy.validRange.min: Required value"
        return
    least = amount(limits["min"])
    most = amount(limits["max"]) if "max" in limits else value
    if not least <= default <= most <= value:
        yield "requestPolicy.validRange: min <= default <= max <= value is needed"
    if "step" in limits:
        step = amount(limits["step"])
        if step <= 0 or least + step > value:
            yield "requestPolicy.validRange.step: one step is larger than capacity value"
        elif (default - least) % step:
            yield "requestPolicy.validRange.step: default is not a multiple of the step"
