"""What is wrong with a text that is no JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubedevices.node.json_syntax import explain


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unexpected end of JSON input"),
        ("  ", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ('{"a', "unexpected end of JSON input"),
        ('{"a":tru', "unexpected end of JSON input"),
        ('["\\u12', "unexpected end of JSON input"),
        ("-", "unexpected end of JSON input"),
        ("1.", "unexpected end of JSON input"),
        ("1e+", "unexpected end of JSON input"),
        ("hello", "invalid character 'h' looking for beginning of value"),
        ("NaN", "invalid character 'N' looking for beginning of value"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("[}", "invalid character '}' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{1:2}", "invalid character '1' looking for beginning of object key string"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("01", "invalid character '1' after top-level value"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("nul!", "invalid character '!' in literal null (expecting 'l')"),
        ('"\n"', "invalid character '\\n' in string literal"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ('"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        ("'", "invalid character '\\'' looking for beginning of value"),
        ("\\", "invalid character '\\\\' looking for beginning of value"),
        ("\x00", "invalid character '\\x00' looking for beginning of value"),
        ("\ufeff{}", "invalid character 'ï' looking for beginning of value"),
        ('{"a": [1, {"b": null}], "c": -0.5e+7, "\\u00e9": "é"} ', ""),
    ],
)
def test_the_first_mistake_is_named(text: str, reason: str) -> None:
    """Character and place are those that the kubelet's parser names."""
    assert explain(text.encode()) == reason


pieces = st.sampled_from(
    [*'{}[],:"\\ ', '"a"', "1", "-0.5e3", "true", "null", '{"a":1}', "[]", "\\u00e9", "x", "01"]
)


@given(st.lists(pieces, max_size=12).map("".join))
def test_it_finds_a_mistake_exactly_where_there_is_one(text: str) -> None:
    """An explanation exists for every text that Python's parser refuses, and for no other."""
    try:
        json.loads(text)
    except ValueError:
        assert explain(text.encode())
    else:
        assert not explain(text.encode())
