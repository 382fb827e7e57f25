"""Capacities of shared devices: what a slice may say, and what a request consumes."""

from typing import Any

import pytest

from kubedevices.values.scheduling.capacities import Consumed, policy_problems

KEY = ("example.com", "node1", "card0")


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({"default": "0"}, ""),
        ({"default": "1", "validValues": ["1", "2"]}, ""),
        ({"validValues": ["1"]}, "default: Required"),
        ({"default": "1", "validValues": ["2", "1"]}, "ascending order"),
        ({"default": "1", "validValues": ["1", "5"]}, "larger than capacity value"),
        ({"default": "3", "validValues": ["1"]}, "default is not valid"),
        ({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}, "only one of"),
        ({"default": "1", "validRange": {"max": "2"}}, "min: Required"),
        ({"default": "1", "validRange": {"min": "1", "step": "1"}}, ""),
        ({"default": "1", "validRange": {"min": "1", "step": "4"}}, "one step is larger"),
        ({"default": "2", "validRange": {"min": "1", "step": "2"}}, "not a multiple"),
        ({"default": "0", "validRange": {"min": "1"}}, "min <= default"),
    ],
    ids=str,
)
def test_a_policy_follows_the_rules_of_the_api(policy: dict[str, Any], problem: str) -> None:
    """With a capacity of four."""
    found = "; ".join(policy_problems("4", policy))
    assert problem in found
    assert bool(found) == bool(problem)


def in_range(**limits: str) -> dict[str, Any]:
    return {"value": "9", "requestPolicy": {"default": "1", "validRange": limits}}


@pytest.mark.parametrize(
    ("capacity", "wanted", "consumed"),
    [
        ({"value": "4"}, None, "4"),
        ({"value": "4"}, "3", "3"),
        ({"value": "4", "requestPolicy": {"default": "1"}}, None, "1"),
        ({"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "4"]}}, "2", "4"),
        ({"value": "4", "requestPolicy": {"default": "1", "validValues": ["1"]}}, "2", None),
        (in_range(min="1", step="2"), "4", "5"),
        (in_range(min="10Gi", step="10Gi") | {"value": "80Gi"}, "35Gi", "40Gi"),
        (in_range(min="1", max="2"), "3", None),
    ],
    ids=str,
)
def test_a_request_consumes_by_the_policy(
    capacity: dict[str, Any], wanted: str | None, consumed: str | None
) -> None:
    """None: the device does not fit."""
    request = {} if wanted is None else {"capacity": {"requests": {"x": wanted}}}
    found = Consumed(()).of_request(KEY, {"capacity": {"x": capacity}}, request)
    assert found == (None if consumed is None else {"x": consumed})


def test_the_rest_of_a_capacity_counts() -> None:
    """What earlier results consumed is gone."""
    driver, pool, device = KEY
    result = {"driver": driver, "pool": pool, "device": device, "consumedCapacity": {"x": "3"}}
    offered = {"capacity": {"x": {"value": "4"}}}
    ask = {"capacity": {"requests": {"x": "2"}}}
    assert Consumed([result]).of_request(KEY, offered, ask) is None
    assert Consumed([]).of_request(KEY, offered, ask) == {"x": "2"}
