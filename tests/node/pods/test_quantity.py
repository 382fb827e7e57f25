"""Kubernetes quantities as whole numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.node.pods.quantity import BadQuantity, whole_units


@pytest.mark.parametrize(
    ("value", "units"),
    [
        (2, 2), (0, 0), ("2", 2), ("+2", 2), ("0", 0), ("-0", 0), ("1000m", 1),
        ("2000000u", 2), (".5k", 500), ("5.", 5), (2.0, 2), ("1k", 1000), ("1Ki", 1024),
        ("2M", 2 * 10**6), ("1Mi", 2**20), ("1G", 10**9), ("1Gi", 2**30), ("1T", 10**12),
        ("1Ti", 2**40), ("1P", 10**15), ("1Pi", 2**50), ("1E", 10**18), ("1Ei", 2**60),
        ("1e3", 1000), ("1E3", 1000), ("1000e-3", 1), ("12e+1", 120), (1e3, 1000),
        ("9223372036854775807", 2**63 - 1),
    ],
)  # fmt: skip
def test_every_form_of_a_quantity(value: object, units: int) -> None:
    """All suffixes, exponents and signs of Kubernetes are accepted if the result is a
    whole number.
    """
    assert whole_units(value) == units


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "'' is not a quantity such as 2"),
        ("two", "'two' is not a quantity such as 2"),
        ("1 k", "'1 k' is not a quantity such as 2"),
        ("1K", "'1K' is not a quantity such as 2"),
        ("1ki", "'1ki' is not a quantity such as 2"),
        ("0x10", "'0x10' is not a quantity such as 2"),
        ("٣", "'٣' is not a quantity such as 2"),
        (None, "None is not a quantity such as 2"),
        (True, "True is not a quantity such as 2"),
        ([1], "[1] is not a quantity such as 2"),
        (float("nan"), "nan is not a quantity such as 2"),
        (-1, "-1 must not be negative"),
        (1.5, "1.5 is a fraction, but only whole devices can be allocated"),
        ("1500m", "'1500m' is a fraction, but only whole devices can be allocated"),
        ("1n", "'1n' is a fraction, but only whole devices can be allocated"),
        ("-1m", "'-1m' must not be negative"),
        ("8Ei", "'8Ei' is too large, at most 9223372036854775807 fit"),
        (2**63, "9223372036854775808 is too large, at most 9223372036854775807 fit"),
        (1 << 20_000, "a number of 20001 bits is not a quantity such as 2"),
    ],
    ids=lambda value: "" if isinstance(value, int) else None,
)
def test_an_invalid_quantity_is_an_error(value: object, message: str) -> None:
    """The message is one short line with the value and the reason."""
    with pytest.raises(BadQuantity) as caught:
        whole_units(value)
    assert str(caught.value) == message


@given(st.text(max_size=200))
def test_any_text_is_a_number_or_a_bad_quantity(text: str) -> None:
    """No other exception is raised, and the length of the message is limited."""
    try:
        said = str(whole_units(text))
    except BadQuantity as error:
        said = str(error)
    assert len(said) < 200
