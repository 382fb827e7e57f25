"""CDI names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.errors import InvalidCdiName, UsageError
from kubedevices.values.cdi import (
    CdiName,
    device_name_of,
    explain_device_name,
    explain_kind,
    explain_name,
)


@pytest.mark.parametrize(
    "kind",
    ["vendor.com", "vendor.com/", "/x", "vendor.com/a/b", "1vendor.com/x", "vendor.com/-x", ""],
)
def test_a_bad_kind_is_refused(kind: str) -> None:
    """A kind needs a vendor and a class, each starting with a letter, and one slash."""
    assert explain_kind(kind)


@pytest.mark.parametrize("kind", ["vendor.com/foo-bar123.B_az", "v/c", "Vendor_1/x"])
def test_a_good_kind_is_accepted(kind: str) -> None:
    """Letters, digits, dots, dashes and underscores may stand inside a vendor and a class."""
    assert explain_kind(kind) == ""


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("Vendor.com/x", "DNS subdomain in lower case"),
        ("ven_dor.com/x", "DNS subdomain"),
        (f"{'a' * 254}/x", "at most 253 characters"),
        (f"vendor.com/{'a' * 64}", "the class has 64 characters, at most 63"),
    ],
)
def test_the_strict_limits_hold_for_kinds_we_write(kind: str, rule: str) -> None:
    """The specification's limits are applied on request only, since no reader checks them."""
    assert explain_kind(kind) == ""
    assert rule in explain_kind(kind, strict=True)


@pytest.mark.parametrize("name", ["0", "0000:3b:00.0", "a:b", "all", "a" * 300, "A.b_c-d"])
def test_a_good_device_name_is_accepted(name: str) -> None:
    """PCI addresses are device names, and so is a single digit."""
    assert explain_device_name(name) == ""


@pytest.mark.parametrize("name", ["-a", "a-", "a b", "ä", "", "a=b", "a/b", "a\n"])
def test_a_bad_device_name_is_refused(name: str) -> None:
    """Device names are ASCII with a letter or digit at both ends."""
    assert explain_device_name(name)


def test_the_longest_kind_is_accepted() -> None:
    """253 and 63 characters are within the limits."""
    assert explain_kind(f"{'a' * 253}/{'c' * 63}", strict=True) == ""


def test_a_qualified_name_splits_at_the_first_signs() -> None:
    """The first '=' ends the kind, its first '/' ends the vendor."""
    name = CdiName.parse("vendor.com/gpu=all")
    assert name == ("vendor.com", "gpu", "all")
    assert name.kind == "vendor.com/gpu"
    assert str(name) == "vendor.com/gpu=all"
    assert CdiName.of("vendor.com/gpu", "all") == name


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "empty"),
        ("/dev/kvm", "a path"),
        ("/dev/a=b", "a path"),
        ("vendor.com/gpu", "must read vendor/class=name"),
        ("=x", "must read"),
        ("vendor.com/gpu=", "must read"),
        ("a.com/b/c=d", "the class 'b/c'"),
        ("a.com/b=c=d", "the device name 'c=d'"),
        ("gpu=0", "must read vendor/class"),
    ],
)
def test_an_unqualified_name_is_refused_with_the_rule(text: str, rule: str) -> None:
    """The error says which rule is broken, and a path is never a name."""
    assert rule in explain_name(text)
    with pytest.raises(InvalidCdiName, match="is invalid") as caught:
        CdiName.parse(text)
    assert isinstance(caught.value, UsageError)
    assert (caught.value.name, caught.value.rule) == (text, explain_name(text))


@pytest.mark.parametrize("device_id", ["0000:3b:00.0", "c4a1a3d6-9a6f-4d0e-8a7c-0a6f0f2f8a11", "7"])
def test_an_id_that_is_a_device_name_stays(device_id: str) -> None:
    """Nothing is added to an ID that CDI can carry."""
    assert device_name_of(device_id) == device_id


def test_a_cleaned_id_carries_its_hash() -> None:
    """Two IDs that look the same once cleaned remain two names."""
    names = {device_name_of(text) for text in ("a b", "a_b ", "a/b", "a_b")}
    assert len(names) == 4
    assert device_name_of("a b") == "a_b-c8687a08"


def test_an_id_without_any_usable_character_is_its_hash() -> None:
    """There is a name for every ID."""
    assert device_name_of("--") == "d8156bae"


@given(st.text(min_size=1))
def test_every_id_has_a_valid_name(device_id: str) -> None:
    """For any ID the name is valid, and always the same."""
    name = device_name_of(device_id)
    assert explain_device_name(name) == ""
    assert name == device_name_of(device_id)


@given(st.sets(st.text(alphabet="aA0_-. :/é", min_size=1, max_size=4), max_size=50))
def test_names_do_not_collide(device_ids: set[str]) -> None:
    """Different IDs have different names."""
    assert len({device_name_of(each) for each in device_ids}) == len(device_ids)
