"""Resource names, against what a real kubelet accepts."""

import json
import re
from pathlib import Path

import pytest

from kubedevices.errors import InvalidResourceName
from kubedevices.values.resource_name import (
    ResourceName,
    explain_resource_name,
    is_resource_name,
    suggest_resource_name,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/resource_names.json").read_text())


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: repr(case["name"])[:40])
def test_the_verdict_is_the_kubelets(case: dict[str, object]) -> None:
    """Every recorded name is accepted or refused as kubelet 1.32 does, also by `parse`."""
    name, valid = str(case["name"]), case["valid"]
    assert is_resource_name(name) is valid
    assert (explain_resource_name(name) == "") is valid
    if valid:
        assert str(ResourceName.parse(name)) == name
    else:
        with pytest.raises(InvalidResourceName, match=re.escape(repr(name))):
            ResourceName.parse(name)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "it needs a domain and a slash, for example example.com/widget"),
        ("foo", "it needs a domain and a slash, for example example.com/foo"),
        ("example.com/a/b", "it must contain exactly one slash"),
        ("kubernetes.io/gpu", "domains ending in kubernetes.io are reserved"),
        ("requests.example.com/gpu", "it must not start with requests."),
        ("example.com/", "there must be something on both sides of the slash"),
        ("/gpu", "there must be something on both sides of the slash"),
        ("Example.com/gpu", "'Example.com' is not a domain of lower-case letters"),
        ("example.com/gpu-", "'gpu-' must be letters, digits, '-', '_' or '.'"),
        ("example.com/" + "a" * 64, "the part after the slash has 64 characters, at most 63"),
        ("a" * 245 + "/gpu", "the domain has 245 characters, at most 244 are allowed"),
    ],
)
def test_the_broken_rule_is_named(name: str, rule: str) -> None:
    """An error says which rule is broken, with the numbers."""
    assert explain_resource_name(name).startswith(rule)


def test_limits_are_inclusive() -> None:
    """244 characters of domain and 63 of device type are the longest name."""
    assert is_resource_name("a" * 244 + "/" + "b" * 63)


def test_an_instance_is_always_valid() -> None:
    """The constructor checks like `parse`."""
    assert ResourceName("example.com", "widget") == ResourceName.parse("example.com/widget")
    with pytest.raises(InvalidResourceName, match="exactly one slash"):
        ResourceName("example.com", "example.com/widget")
    with pytest.raises(InvalidResourceName, match="exactly one slash"):
        ResourceName("example.com/a", "b")


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("widget", "example.com/widget"),
        ("Example.COM/Widget", "example.com/Widget"),
        ("a.kubernetes.io/gpu", "a.example.com/gpu"),
        ("example.com/a/b c", "example.com/a-b-c"),
        ("ex_ample.com/-w-", "ex-ample.com/w"),
        ("requests.example.com/w", "example.com/w"),
        ("example.com/" + "w" * 70, "example.com/" + "w" * 63),
        ("/", ""),
        ("example.com/", ""),
    ],
)
def test_a_better_name_is_suggested(name: str, better: str) -> None:
    """One that a kubelet accepts, or none."""
    assert suggest_resource_name(name) == better
