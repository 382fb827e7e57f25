"""Reading YAML that a stranger may have written."""

import random
import time
from typing import Any

import pytest
import yaml

from kubedevices.config.documents.yaml_text import (
    DEPTH_LIMIT,
    STRANGER,
    USER,
    YamlLimits,
    compose,
    compose_all,
    construct,
    load_yaml,
)
from kubedevices.errors import NotYaml

SIZE = STRANGER.size


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: [x, 'y', \"z\", ~, 2.5, true]\n",
        "- |\n  text [[[[\n- >\n  more\n",
        "? a\n: b\n",
        "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\nf: &s [1]\ng: [*s, *s]\n",
        "!!set {a, b}",
        "--- {a: 2001-01-01}\n...\n",
        "%TAG ! tag:yaml.org,2002:\n---\n!int '3'\n",
        "'" + "[" * 5000 + "'",
        "[" * DEPTH_LIMIT + "]" * DEPTH_LIMIT,
    ],
)
def test_reads_what_pyyaml_reads(text: str) -> None:
    """A text within the limits has the value that PyYAML returns."""
    assert load_yaml(text, USER) == yaml.safe_load(text)


def test_nodes_are_those_of_pyyaml() -> None:
    """Tags, values, styles and places are the same."""
    text = "a: &x [1, 'b']\nc: *x\n"
    assert described(compose(text, USER)) == described(yaml.compose(text, yaml.CSafeLoader))
    texts = "a: 1\n---\n- b\n---\n"
    wanted = [*yaml.compose_all(texts, yaml.CSafeLoader)]
    assert [*map(described, compose_all(texts, USER))] == [*map(described, wanted)]
    assert construct(compose(text, USER)) == {"a": [1, "b"], "c": [1, "b"]}
    assert compose("# nothing", USER) is None
    assert load_yaml("", USER) is None


def described(node: Any) -> object:
    marks = [(each.line, each.column) for each in (node.start_mark, node.end_mark)]
    value: object = node.value
    if isinstance(node, yaml.SequenceNode):
        value = [described(each) for each in node.value]
    elif isinstance(node, yaml.MappingNode):
        value = [(described(name), described(each)) for name, each in node.value]
    style = node.style if isinstance(node, yaml.ScalarNode) else node.flow_style
    return type(node).__name__, node.tag, value, marks, style


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
MERGES = "a0: &a0 {k: v, l: v}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
CHAIN = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}}}\n" for n in range(1, 300))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 25_000, "nested more than 100 levels deep"),
        ("[" * SIZE, "nested more than 100 levels deep"),
        ("{a: " * (SIZE // 4), "nested more than 100 levels deep"),
        ("- " * (SIZE // 2), "nested more than 100 levels deep"),
        ("? " * (SIZE // 2), "nested more than 100 levels deep"),
        ("{?" * (SIZE // 2), "nested more than 100 levels deep"),
        ("\n".join(" " * n + "a:" for n in range(1400)), "nested more than 100 levels deep"),
        (CHAIN, "nested more than 100 levels deep"),
        (LAUGHS, "more than 300000 values"),
        (MERGES, "more than 300000 values"),
        ("!!int '" + "1" * 5000 + "'", "a number has more than 100 characters"),
        ("".join(f"%TAG !{n}! x\n" for n in range(SIZE // 14)) + "--- a", "100 %TAG directives"),
        ("&a [*a]", "an anchor contains itself"),
        ("&a {<<: *a}", "an anchor contains itself"),
        ("x" * (USER.size + 1), "more than 16777216 characters"),
    ],
)
def test_a_text_beyond_the_limits_is_refused_soon(text: str, problem: str) -> None:
    """Whatever the pattern is, the time does not grow with its depth."""
    before = time.process_time()
    with pytest.raises(NotYaml, match=problem) as refused:
        load_yaml(text, USER)
    assert refused.value.is_beyond_limits
    assert time.process_time() - before < 15


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: b: c", (1, 5)),
        ("a: *b", (1, 4)),
        ("a: &b 1\nc: &b 2", (2, 4)),
        ("a: 1\n---\nb: 2", (3, 1)),
        ("a: !!python/object:os.system x", (1, 4)),
        ("a: 0x_", (1, 1)),
        ("a: !!bool perhaps", (1, 1)),
        ("a: 2001-99-99", (1, 1)),
        ("? [a]\n: b", (1, 3)),
        ("a: \x00", (1, 1)),
    ],
)
def test_every_fault_of_a_text_is_the_same_error(text: str, place: tuple[int, int]) -> None:
    """Each fault raises `NotYaml`, with line and column as far as PyYAML knows them."""
    with pytest.raises(NotYaml) as found:
        load_yaml(text, USER)
    assert not found.value.is_beyond_limits
    assert (found.value.line, found.value.column) == place


def test_a_long_plain_text_is_no_number() -> None:
    """To the base of 60, a number of a MiB would take minutes."""
    text = "1" + ":1" * (SIZE // 2)
    assert load_yaml(text, USER) == text
    assert load_yaml("1:1", USER) == 61


def test_the_number_of_values_is_limited() -> None:
    """Lists, mappings and their members count."""
    assert load_yaml("[a, {b: c}]", YamlLimits(100, 5)) == ["a", {"b": "c"}]
    with pytest.raises(NotYaml, match="more than 4 values"):
        load_yaml("[a, {b: c}]", YamlLimits(100, 4))


def test_a_stranger_may_use_no_alias() -> None:
    """An anchor alone does no harm."""
    assert load_yaml("&a [1]", STRANGER) == [1]
    with pytest.raises(NotYaml, match="an alias is not allowed"):
        load_yaml("[&a 1, *a]", STRANGER)
    assert load_yaml("[&a 1, *a]", USER) == [1, 1]


def test_a_text_like_json_has_no_dates_and_no_duplicate_keys() -> None:
    """Both would differ from what a JSON reader finds."""
    assert load_yaml("a: 2001-01-01", USER, like_json=True) == {"a": "2001-01-01"}
    for text in ("a: 1\na: 2", "1: a\n0x1: b"):
        assert load_yaml(text, USER)
        with pytest.raises(NotYaml, match="duplicate key"):
            load_yaml(text, USER, like_json=True)


def test_random_texts_have_the_value_of_pyyaml_or_are_refused() -> None:
    """No text of indicators is read otherwise than by PyYAML, or raises another error."""
    choice = random.Random(11)
    parts = [*"[]{}:,-?&*!|>'\"#%a1 \n", "- ", ": ", "? ", "&a ", "*a", "<<", "\n  ", "---\n"]
    limits = YamlLimits(10_000, 1000)
    for _ in range(2000):
        text = "".join(choice.choices(parts, k=choice.randrange(40)))
        try:
            found = load_yaml(text, limits)
        except NotYaml:
            continue
        assert repr(found) == repr(yaml.load(text, yaml.CSafeLoader))
