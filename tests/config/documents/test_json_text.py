"""Reading JSON that a stranger may have written."""

import json
import random
import time

import pytest

from kubedevices.config.documents.json_text import (
    DEPTH_LIMIT,
    read_json,
    read_json_object,
    read_json_stream,
)
from kubedevices.errors import NotJson

LIMIT = 2**20


def nested(levels: int, opening: str = "[", closing: str = "]", inner: str = "") -> str:
    return opening * levels + inner + closing * levels


@pytest.mark.parametrize(
    "text",
    [
        "0",
        '"[[[["',
        r'"\\\"[{"',
        '{"a": [1, -2.5e3, true, null, "\\ud83d\\ude00 \\\\ud800"]}',
        nested(DEPTH_LIMIT),
        nested(DEPTH_LIMIT // 2, '{"a":[', "]}"),
        f"[{','.join(['[]'] * 1000)}]",
        json.dumps(["[" * 500, "\\" * 7, '"' * 9]),
    ],
)
def test_reads_what_the_standard_library_reads(text: str) -> None:
    """A text within the limits has the value that `json.loads` returns, as text and as bytes."""
    assert read_json(text, limit=LIMIT) == json.loads(text)
    assert read_json(text.encode(), limit=LIMIT) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        nested(DEPTH_LIMIT + 1),
        nested(DEPTH_LIMIT + 1, '{"a":', "}", "0"),
        "[" * 25_000,
        '{"a":' + "[" * 2**19,
        "[" * 200 + '"' + "]" * 200,
        "[]" * 200 + "[" * 200,
        '{"a":' * 100_000,
        '["\\"]",' * 50_000,
    ],
)
def test_refuses_a_text_that_is_nested_too_deep(text: str) -> None:
    """A text of more than 100 levels is refused, whether its brackets match or not."""
    with pytest.raises(NotJson, match="nested more than 100 levels"):
        read_json(text, limit=LIMIT)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "Expecting value"),
        (b"[" * 50, "Expecting value"),
        (b"]" * 5000 + b"[" * 5, "Expecting value"),
        (b"\xff", "utf-8"),
        (b'"\xed\xa0\x80"', "utf-8"),
        (b'["\\ud800"]', "half of a surrogate pair"),
        (b'["\\\\\\uDC00"]', "half of a surrogate pair"),
        (b'["\\ud800\\ud800"]', "half of a surrogate pair"),
        (b"NaN", "NaN is not a value of JSON"),
        (b"[-Infinity]", "-Infinity is not a value of JSON"),
        (b"1" * 5000, "4300 digits"),
        (b" " * LIMIT + b"0", "more than 1048576 bytes"),
    ],
)
def test_every_fault_of_a_text_is_the_same_error(text: bytes, problem: str) -> None:
    """Each fault raises `NotJson`, which is a `ValueError` with the reason."""
    with pytest.raises(NotJson, match=problem):
        read_json(text, limit=LIMIT)
    assert issubclass(NotJson, ValueError)


def test_refuses_a_text_with_too_many_values() -> None:
    """The number of values is limited before the parser creates them."""
    assert len(read_json(f"[{','.join('0' * 999)}]", limit=LIMIT, values=1000)) == 999
    assert read_json(json.dumps(["," * 2000]), limit=LIMIT, values=1000) == ["," * 2000]
    for text in ("[" + ",".join("0" * 1000) + "]", "[" + ",".join(["[]"] * 501) + "]"):
        with pytest.raises(NotJson, match="more than 1000 values"):
            read_json(text, limit=LIMIT, values=1000)


def test_an_object_is_asked_for_by_name() -> None:
    """`read_json_object` refuses every value that is no object."""
    assert read_json_object('{"a": 1}', limit=LIMIT) == {"a": 1}
    for text in ("[]", "null", '"{}"', "3"):
        with pytest.raises(NotJson, match="not a JSON object"):
            read_json_object(text, limit=LIMIT)


@pytest.mark.parametrize(
    "part", [b"[", b"]", b'"', b'\\"', b'"[', b"[]", b'["]",', b'{"a":', b"[" * 99 + b"]" * 99]
)
def test_no_text_is_slow_to_refuse(part: bytes) -> None:
    """A MiB of any pattern is read or refused within a second of CPU: no search is quadratic."""
    before = time.process_time()
    with pytest.raises(NotJson):
        read_json((part * (LIMIT // len(part)))[:LIMIT], limit=LIMIT)
    assert time.process_time() - before < 1


def test_random_texts_have_the_value_of_the_standard_library_or_are_refused() -> None:
    """No text of brackets, quotes and backslashes is read otherwise or raises another error."""
    choice = random.Random(7)
    for _ in range(3000):
        text = "".join(choice.choices('[]{}",:\\0u', k=choice.randrange(300)))
        try:
            wanted = json.loads(text)
        except ValueError:
            wanted = NotJson
        try:
            assert read_json(text, limit=LIMIT) == wanted
        except NotJson:
            assert wanted is NotJson


def test_a_stream_has_any_number_of_values() -> None:
    """With white space between them, or without."""
    assert read_json_stream(' {"a": 1}\n\n{"b": []}[2]"x" 3 ', limit=LIMIT) == [
        {"a": 1},
        {"b": []},
        [2],
        "x",
        3,
    ]
    assert read_json_stream(" \n", limit=LIMIT) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1} {', "Expecting"),
        ("{} NaN", "not a value of JSON"),
        ("{}\x0b{}", "Expecting"),
        (f"{{}} {nested(DEPTH_LIMIT + 1)}", "levels deep"),
        ('{} "\\ud800"', "surrogate"),
        (" " * (LIMIT + 1), "bytes"),
    ],
)
def test_a_fault_anywhere_in_a_stream_refuses_it(text: str, problem: str) -> None:
    """The values before it are not returned."""
    with pytest.raises(NotJson, match=problem):
        read_json_stream(text, limit=LIMIT)
