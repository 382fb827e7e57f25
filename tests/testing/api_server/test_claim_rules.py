"""What the stand-in for an API server says of claims and DeviceClasses."""

from typing import Any

import pytest

from kubedevices.testing.api_server.claim_rules import (
    claim_problems,
    class_problems,
    set_claim_defaults,
)

MATCH = {"matchAttribute": "d/a"}


def request(**more: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": "c", **more}}


def selector(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        ({"requests": [request()]}, ""),
        ({"requests": [request(), request()]}, "requests[0].name: Duplicate value"),
        ({"requests": [{"name": "r"}]}, "exactly one of exactly and firstAvailable"),
        ({"requests": [request(count=0)]}, "exactly.count: Invalid value: 0"),
        ({"requests": [request(allocationMode="All", count=1)]}, "must not be specified"),
        ({"requests": [request(selectors=[selector("true")])]}, ""),
        ({"requests": [request(selectors=[selector("1")])]}, "must evaluate to bool"),
        ({"requests": [request(selectors=[selector("a")])]}, "cel.expression: Invalid value: 'a'"),
        ({"requests": [request(selectors=[selector('["a"].join() == "a"')])]}, "Forbidden: too"),
        ({"requests": [request(selectors=[{}])]}, "selectors[0].cel: Required value"),
        ({"requests": [request()], "constraints": [{"matchAttribute": "d/a"}]}, ""),
        ({"requests": [request()], "constraints": [{"matchAttribute": "a"}]}, "a domain"),
        ({"requests": [request()], "constraints": [{}]}, "constraints[0]: Required value"),
        (
            {
                "requests": [request()],
                "constraints": [{"matchAttribute": "d/a", "requests": ["x"]}],
            },
            "constraints[0].requests[0]: Invalid value: 'x'",
        ),
        ({"requests": [request()], "config": [{"requests": ["x"]}]}, "config[0].requests[0]"),
    ],
    ids=str,
)
def test_a_claim_is_checked(devices: dict[str, Any], problem: str) -> None:
    """The text names the field."""
    found = "; ".join(claim_problems({"spec": {"devices": devices}}))
    assert problem in found
    assert bool(found) == bool(problem)


def test_a_selector_of_a_class_is_checked() -> None:
    """So a wrong class cannot be created."""
    (problem,) = class_problems({"spec": {"selectors": [selector("device.name == 1")]}})
    assert problem.startswith("spec.selectors[0].cel.expression: Invalid value:")


def test_a_server_fills_in_the_defaults() -> None:
    """A driver reads the count, also where the user wrote none."""
    devices = {"requests": [request(tolerations=[{"key": "a"}]), request(allocationMode="All")]}
    set_claim_defaults(devices)
    first, second = (each["exactly"] for each in devices["requests"])
    assert (first["allocationMode"], first["count"]) == ("ExactCount", 1)
    assert first["tolerations"] == [{"key": "a", "operator": "Equal"}]
    assert "count" not in second
