"""Texts with placeholders."""

import pytest

from kubedevices.config.placeholders import fill, placeholders


def test_placeholders_are_filled() -> None:
    """Braces that are doubled stand for themselves."""
    text = "{n}:{name}:{{n}}"
    assert placeholders(text) == ("n", "name")
    assert fill(text, {"n": "1", "name": "ttyS1"}) == "1:ttyS1:{n}"


@pytest.mark.parametrize("text", ["{n", "n}", "{{n}", "{a{b}"])
def test_a_single_brace_is_refused(text: str) -> None:
    """It is a placeholder somebody mistyped."""
    with pytest.raises(ValueError, match=r"a single '[{}]': write it twice"):
        placeholders(text)
