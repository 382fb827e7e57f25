"""What is kept of large values."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kubedevices.config.documents.kept import Kept

SHAPE = {"name!": str, "spec": {"labels": dict, "items": [{"key!": str, "any": dict}]}}


def test_only_what_the_shape_names_is_kept() -> None:
    """Whole objects only where the shape says so."""
    value = {
        "name": "a",
        "secret": "x",
        "spec": {"labels": {"b": "c"}, "items": [{"key": "k", "other": 1}], "more": {}},
    }
    assert Kept().of(value, SHAPE) == {
        "name": "a",
        "spec": {"labels": {"b": "c"}, "items": [{"key": "k"}]},
    }


def test_equal_parts_are_kept_once() -> None:
    """Texts, lists and objects, at any depth."""
    text = '{"items": [{"key": "ab c", "any": {"m": {"string": "A 1"}, "n": [1, {"x": "y"}]}}]}'
    kept, shape = Kept(), SHAPE["spec"]
    first, second = (kept.of(json.loads(text), shape)["items"][0] for _ in range(2))
    assert first == second
    assert first["key"] is second["key"]
    assert first["any"] is second["any"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.text(max_size=2), values, max_size=3), max_size=6))
def test_everything_stays_what_it_is(objects: list[dict[str, object]]) -> None:
    """Also 1, 1.0 and True, which Python calls equal."""
    kept = Kept()
    copies = [kept.of(json.loads(json.dumps(each)), dict) for each in objects]
    assert json.dumps(copies) == json.dumps(objects)
