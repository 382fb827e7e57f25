"""A device that the API server would refuse is refused before it is sent."""

from typing import Any

import pytest

from kubedevices.dra.slice_limits import device_problem


def device(**fields: Any) -> dict[str, Any]:
    return {"name": "gpu-0", **fields}


def attributes(**values: Any) -> dict[str, Any]:
    return device(attributes={name.replace("__", "/"): value for name, value in values.items()})


@pytest.mark.parametrize(
    "good",
    [
        device(),
        attributes(a={"string": "x" * 64}, _b={"int": 2**63 - 1}, c={"bool": False}),
        device(attributes={"resource.kubernetes.io/numaNode": {"int": 0}}),
        {"name": "x" * 63},
        attributes(**{"x" * 32: {"int": -(2**63)}, "x" * 63 + "__a": {"int": 0}}),
        attributes(v={"version": "1.0.0-rc.1+build.5"}),
        device(attributes={f"a{i}": {"int": i} for i in range(31)}, capacity={"m": {"value": "1"}}),
        device(capacity={"memory": {"value": "10Gi"}, "half": {"value": "500m"}}),
        device(taints=[{"key": "a", "effect": "NoExecute"}] * 16),
    ],
    ids=str,
)
def test_a_device_within_the_limits_passes(good: dict[str, Any]) -> None:
    """The limits themselves are allowed."""
    assert device_problem(good) == ""


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"name": "0000:3b:00.0"}, "label"),
        ({"name": "x" * 64}, "label"),
        ({"name": "gpu-0\n"}, "label"),
        (attributes(a={"string": "x" * 65}), "65 bytes"),
        (attributes(a={"string": "é" * 33}), "66 bytes"),
        (attributes(a={"int": 2**63}), "64 bits"),
        (attributes(a={"int": -(2**63) - 1}), "64 bits"),
        (attributes(a={"version": "1.0"}), "semantic version"),
        (attributes(a={"version": "1.0.0-01"}), "semantic version"),
        (attributes(a={"int": 1, "bool": True}), "one type"),
        (device(attributes={"a-b": {"int": 1}}), "letters"),
        (device(attributes={"1a": {"int": 1}}), "letters"),
        (device(attributes={"x" * 33: {"int": 1}}), "at most 32"),
        (device(attributes={"Bad_Domain/a": {"int": 1}}), "subdomain"),
        (device(attributes={"/a": {"int": 1}}), "subdomain"),
        (device(attributes={f"{'x' * 62}.x/a": {"int": 1}}), "at most 63"),
        (device(attributes={f"a{i}": {"int": i} for i in range(33)}), "33 attributes"),
        (device(capacity={"memory": {"value": "10GB"}}), "quantity"),
        (device(capacity={"a-b": {"value": "1"}}), "letters"),
        (device(taints=[{"key": "a", "effect": "NoSchedule"}] * 17), "17 taints"),
        (device(taints=[{"key": "a", "effect": "Sometimes"}]), "Sometimes"),
    ],
    ids=str,
)
def test_a_device_beyond_a_limit_is_refused(bad: dict[str, Any], word: str) -> None:
    """The text names the limit."""
    assert word in device_problem(bad)
