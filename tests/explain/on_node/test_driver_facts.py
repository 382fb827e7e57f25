"""Which resources may be those of a DRA driver."""

import pytest

from kubedevices.explain.on_node.driver_facts import DriverFacts


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("example.com/gpu", True),
        ("gpu.example.com/gpu", True),
        ("other.com/gpu", False),
        ("ample.com/gpu", False),
        ("example.com", False),
        ("cpu", False),
    ],
)
def test_a_driver_serves_resources_of_its_domain(resource: str, expected: bool) -> None:
    """Many drivers put the kind of device before the domain of the vendor."""
    assert DriverFacts("gpu.example.com").serves(resource) is expected
