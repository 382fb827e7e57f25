"""Expressions of smarter-device-manager, and the globs that stand for them."""

import re

import pytest

from kubedevices.expose.foreign_smarter import globs_of
from kubedevices.expose.path_patterns import PathPattern

NAMES = (
    "mmcblk", "mmcblk0", "mmcblk0p1", "mmcblk0boot0", "mmcblk12",
    "vcs", "vcs1", "vcs63", "vcsa1", "vcsu",
    "tty", "tty1", "tty1x", "tty128", "ttyS0", "ttyUSB0", "ttyUSB0.bak", "ttyUSBx",
    "nvme0", "nvme0n1", "nvme0n1p1", "nvme10n2", "sda", "sdb1", "i2c-1", "a.b", "a-b", "snd/timer",
)  # fmt: skip

EXPRESSIONS = (
    "^mmcblk[0-9]*$", "^mmcblk[0-9]+$", "^mmcblk[0-9]", "^vcs[0-9]*$", "^vcs[0-9]?$", "^vcs[^0-9]$",
    "^vcs[au][0-9]$", "^tty[0-9]+$", r"^tty\d{1,2}$", "^tty[0-9]{2,}$", "^ttyUSB.*$", "^ttyUSB.+$",
    "^ttyUSB", "^ttyS?0$", "^ttyUSB.$", "^nvme[0-9]+$", "^nvme[0-9]+n[0-9]+$", "^nvme[0-9]*n[0-9]*",
    "^sd[a-z]$", r"^a\.b$", "^a.b$", "^snd/timer$", "^i2c-[0-9]*$",
)  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_globs_match_what_the_expression_matched(expression: str) -> None:
    """No partition or boot sector that it left out, and nothing less either."""
    translated = globs_of(expression)
    assert translated is not None
    patterns = [PathPattern(f"/dev/{glob}") for glob in translated.globs]
    found = {name for name in NAMES if any(each.match(f"/dev/{name}") for each in patterns)}
    found |= {name for name in NAMES if any(each.text == f"/dev/{name}" for each in patterns)}
    assert found == {name for name in NAMES if re.search(expression, name)}


@pytest.mark.parametrize(
    ("expression", "globs"),
    [
        ("^vcs[0-9]*$", ("vcs", "vcs[0-9]", "vcs[0-9][0-9]", "vcs[0-9][0-9][0-9]")),
        ("^x[0-9]{5,}$", ("x" + "[0-9]" * 5,)),
        ("^vcsm", ("vcsm*",)),
        ("^vcsm.*", ("vcsm*",)),
    ],
)
def test_each_number_of_digits_is_a_glob_of_its_own(
    expression: str, globs: tuple[str, ...]
) -> None:
    """Up to three, for no driver of such devices gives larger numbers."""
    translated = globs_of(expression)
    assert translated is not None
    assert translated.globs == globs


@pytest.mark.parametrize(
    "expression",
    [
        "^a|b$",
        "^sd[a-z]+$",
        "^ab*$",
        r"^a\w$",
        "^a[[:digit:]]$",
        "^a[!x]$",
        r"^a\$",
        "^[0-9]+-[0-9]+-[0-9]+-[0-9]+$",
        "^a{5,2}$",
        "^a[9-0]$",
        "^a//b$",
    ],
)
def test_an_expression_without_equivalent_globs_has_none(expression: str) -> None:
    """Also what would need too many of them, and what is no expression at all."""
    assert globs_of(expression) is None
