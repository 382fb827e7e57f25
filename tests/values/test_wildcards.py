"""Texts and IDs that match patterns."""

import pytest

from kubedevices.values.wildcards import Wanted, fits, fits_hex


@pytest.mark.parametrize(
    ("wanted", "is_fit"),
    [(None, True), ("e1000*", True), ("E1000*", False), (("x", "e100?e"), True), ((), False),
     ("", False)],
)  # fmt: skip
def test_a_text_matches_one_of_several_patterns(wanted: Wanted, is_fit: bool) -> None:
    """Case matters, and None asks for nothing."""
    assert fits("e1000e", wanted) is is_fit


@pytest.mark.parametrize(
    ("wanted", "prefix", "is_fit"),
    [(None, False, True), ("0x10DE", False, True), ("10", False, False), ("10", True, True),
     (["8086", "10d*"], False, True), ([], True, False)],
)  # fmt: skip
def test_a_hexadecimal_id_may_be_written_in_several_ways(
    wanted: Wanted, prefix: bool, is_fit: bool
) -> None:
    """With or without 0x, in upper or lower case; `prefix` takes the beginning of an ID too."""
    assert fits_hex("10de", wanted, prefix=prefix) is is_fit
