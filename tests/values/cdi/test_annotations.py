"""CDI names in annotations."""

import pytest

from kubedevices.errors import InvalidCdiAnnotation, InvalidCdiName
from kubedevices.values.cdi import (
    annotation_key,
    annotation_value,
    annotations_for,
    parse_annotations,
)


def test_a_key_joins_plugin_and_id() -> None:
    """A slash in the ID becomes an underscore."""
    assert annotation_key("vendor.class", "card/0") == "cdi.k8s.io/vendor.class_card_0"


@pytest.mark.parametrize(
    ("plugin", "request_id", "rule"),
    [
        ("", "0", "must be given"),
        ("vendor.class", "", "must be given"),
        ("v" * 40, "i" * 23, "64 characters"),
        ("vendor.class", "0000:3b:00.0", "letters, digits"),
        ("-vendor", "0", "both ends"),
        ("vendor", "0-", "both ends"),
    ],
)
def test_a_key_that_runtimes_refuse_is_refused(plugin: str, request_id: str, rule: str) -> None:
    """Length, edges and characters follow the readers' rules."""
    with pytest.raises(InvalidCdiAnnotation, match=rule):
        annotation_key(plugin, request_id)


def test_the_longest_key_is_accepted() -> None:
    """63 characters after the slash are allowed."""
    assert len(annotation_key("v" * 40, "i" * 22)) == len("cdi.k8s.io/") + 63


def test_a_value_is_names_with_commas() -> None:
    """No blanks, and nothing that is not a qualified name."""
    assert annotation_value(["v.com/c=a", "v.com/c=b"]) == "v.com/c=a,v.com/c=b"
    with pytest.raises(InvalidCdiName, match="must read"):
        annotation_value(["v.com/c=a", "b"])


def test_any_request_finds_a_key() -> None:
    """Long kinds and PCI addresses fit, and different requests of one kind differ in the key."""
    kind = f"{'sub.' * 20}vendor.com/{'c' * 60}"
    one = annotations_for(kind, [f"{kind}=0000:3b:00.0"])
    two = annotations_for(kind, [f"{kind}=0000:3c:00.0"])
    assert not one.keys() & two.keys()
    assert parse_annotations(one | two)[1] == (f"{kind}=0000:3b:00.0", f"{kind}=0000:3c:00.0")


def test_reading_takes_every_annotation_of_the_prefix() -> None:
    """Other annotations are ignored."""
    keys, names = parse_annotations(
        {"cdi.k8s.io/a_1": "v/c=a,v/c=b", "other": "v/c=x", "cdi.k8s.io/b_1": "w/c=d"}
    )
    assert keys == ("cdi.k8s.io/a_1", "cdi.k8s.io/b_1")
    assert names == ("v/c=a", "v/c=b", "w/c=d")


@pytest.mark.parametrize("value", ["v/c=a, v/c=b", "", "v/c=a,", "/dev/kvm"])
def test_one_invalid_name_makes_the_set_invalid(value: str) -> None:
    """Blanks around commas and anything but qualified names are refused."""
    with pytest.raises(InvalidCdiAnnotation, match="is not a CDI name") as caught:
        parse_annotations({"cdi.k8s.io/a_1": "v/c=a", "cdi.k8s.io/b_1": value})
    assert caught.value.key == "cdi.k8s.io/b_1"
