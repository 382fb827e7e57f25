"""The walker that checks a YAML file against dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubedevices.config.keys import Complain, key, key_names
from kubedevices.config.yaml_config import load_config
from kubedevices.errors import CannotRead, ConfigError


def _no_spaces(text: str) -> str:
    return "no spaces allowed" if " " in text else ""


@dataclass(frozen=True, kw_only=True)
class Pet:
    HINT: ClassVar[str] = "write 'petName: ...'"

    pet_name: str = key(check=_no_spaces)
    legs: int = key(default=4)

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        if values.get("pet_name") == "snake" and values.get("legs", 4):
            complain(("legs",), "a snake has none", "write 0")


@dataclass(frozen=True, kw_only=True)
class Zoo:
    title: str = key(hint="any text")
    pets: tuple[Pet, ...] = key(default=(), unique="petName")
    sizes: Mapping[str, float] = key(default_factory=dict)
    open: bool = key(default=False)
    words: tuple[str, ...] | Mapping[int, str] = key(default=(), not_empty=True)
    age: float = key(default=0.0, parse=lambda text: float(text.removesuffix("y")), name="AGE")


def load(tmp_path: Path, text: str, *, lenient: bool = False) -> Zoo:
    file = tmp_path / "zoo.yaml"
    file.write_text(text)
    return load_config(file, Zoo, lenient=lenient)[0]


def mistakes(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    prefix = f"{tmp_path}/zoo.yaml:"
    return [str(problem).removeprefix(prefix) for problem in caught.value.problems]


def test_a_file_becomes_instances_with_defaults(tmp_path: Path) -> None:
    """Keys are camelCase, absent ones get their default, unions follow the shape of the value."""
    text = "title: a\npets: [{petName: tom}]\nsizes: {big: 2, small: .5}\nopen: yes\nwords: {1: x}"
    zoo = load(tmp_path, text)
    assert zoo == Zoo(
        title="a",
        pets=(Pet(pet_name="tom"),),
        sizes=zoo.sizes,
        open=True,
        words=zoo.words,
    )
    assert dict(zoo.sizes) == {"big": 2.0, "small": 0.5}
    assert isinstance(zoo.words, Mapping)
    assert dict(zoo.words) == {1: "x"}
    assert load(tmp_path, "title: a\nwords: [x, y]\nAGE: 3y\n").words == ("x", "y")
    assert load(tmp_path, "title: a\nAGE: 3y\n").age == 3.0


def test_all_mistakes_are_reported_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Each has line, column, key and what to do."""
    text = """\
titel: my zoo
pets:
- petName: tom
- petName: a b
- petName: snake
- petName: tom
  legs: four
- {petName: rat, chip: 7}
- rex
sizes: {big: huge}
open: maybe
words: []
elephant: 1
"""
    assert mistakes(tmp_path, text) == [
        "1:1: titel: unknown key (did you mean 'title'?)",
        "4:12: pets[1].petName: no spaces allowed",
        "5:3: pets[2].legs: a snake has none (write 0)",
        "6:12: pets[3].petName: 'tom' is there already (first: line 3)",
        "7:9: pets[3].legs: must be a whole number, not text",
        "8:18: pets[4].chip: unknown key (known: petName, legs)",
        "9:3: pets[5]: must be keys and values, not text (write 'petName: ...')",
        "10:14: sizes.big: must be a number, not text",
        "11:7: open: must be true or false, not text",
        "12:8: words: this list is empty",
        "13:1: elephant: unknown key (known: title, pets, sizes, open, words, AGE)",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pets: []", "1:1: title: this key is missing (any text)"),
        ("title:", "1:7: title: this key has no value (any text)"),
        ("title: a\npets: [{petName: x, legs: 08}]", "not text (write 8)"),
        ("title: a\npets: [{petName: x, legs: 010}]", "pets[0].legs: YAML reads 010 as 8 (write a"),
        ("title: a\npets: [{petName: x, legs: 1:30}]", "pets[0].legs: YAML reads 1:30 as 90 (wri"),
        ('title: a\n"b\\nc": 5', "2:1: 'b\\nc': unknown key"),
        ("title: a\nx: " + "[" * 5000, "2:103: this is nested more than 100 levels deep"),
        ("- " * 3000, "1:201: this is nested more than 100 levels deep"),
        ("&zoo\n<<: {<<: *zoo, title: b}", "2:10: an anchor contains itself"),
        ("title: 5", "1:8: title: must be text, not a number (any text)"),
        ("title: [a]", "1:8: title: must be text, not a list (any text)"),
        ("title: a\npets: x", "2:7: pets: must be a list, not text"),
        ("title: a\npets: {a: b}", "2:7: pets: must be a list, not keys and values"),
        ("title: a\nwords: [no]", 'must be text, not true or false (write "no" in quotes)'),
        ("title: a\npets: [{petName: x, legs: '4'}]", "2:27: pets[0].legs: must be a whole number"),
        ("title: a\npets: [{petName: x, legs: '4'}]", "not text (remove the quotes)"),
        ("title: a\ntitle: b", "2:1: title: this key stands twice (first: line 1)"),
        ("title: a\n? [x]\n: y", "2:3: a key must be text"),
        ("title: a\nwords: {x: y}", "2:9: words.x: must be a whole number, not text"),
        ("title: a\nAGE: old", "2:6: AGE: could not convert string to float: 'old'"),
        ("title: !secret a", "1:8: title: must be text, not a secret (any text)"),
        ("- a", "1:1: must be keys and values, not a list"),
        ("", "1:1: the file is empty"),
        ("title: 'a", "not valid YAML"),
        ("title: a\n\tb: c", "not valid YAML"),
        ("title: a\n---\ntitle: b", "not valid YAML"),
        ("title: *nobody", "not valid YAML"),
        ("title: \x01", "not valid YAML"),
    ],
)  # fmt: skip
def test_a_mistake_gives_one_message(tmp_path: Path, text: str, expected: str) -> None:
    """With its place, even where the text is no YAML at all."""
    (found,) = mistakes(tmp_path, text)
    assert found == expected or expected in found


def test_text_that_is_not_utf_8_is_reported_with_its_place(tmp_path: Path) -> None:
    """A Latin-1 umlaut in line 2."""
    file = tmp_path / "zoo.yaml"
    file.write_bytes(b"title: a\nwords: [\xfc]\n")
    with pytest.raises(ConfigError, match=r"zoo\.yaml:2:9: this is not UTF-8 text"):
        load_config(file, Zoo)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_no_config_error(tmp_path: Path, name: str) -> None:
    """Missing, or a directory: the question was never answered."""
    with pytest.raises(CannotRead, match="cannot read"):
        load_config(tmp_path / name, Zoo)


def test_lenient_warns_about_unknown_keys_and_accepts_numbers_as_text(tmp_path: Path) -> None:
    """As a Go decoder does."""
    file = tmp_path / "zoo.yaml"
    file.write_text("titel: x\ntitle: 12\npets: \nwords: [true, 1.5]\n")
    zoo, report = load_config(file, Zoo, lenient=True)
    assert (zoo.title, zoo.pets, zoo.words) == ("12", (), ("true", "1.5"))
    assert [str(warning) for warning in report.warnings] == [
        f"{file}:1:1: titel: unknown key, ignored (did you mean 'title'?)"
    ]
    assert report.place(("title",)).line == 2


def test_anchors_are_merged_beneath_own_keys(tmp_path: Path) -> None:
    """`<<` works, also with several anchors."""
    text = """\
title: a
pets:
- &tom {petName: tom, legs: 3}
- {<<: *tom, petName: tim}
- {<<: [*tom], legs: 5, petName: tam}
"""
    pets = load(tmp_path, text).pets
    assert pets[1:] == (Pet(pet_name="tim", legs=3), Pet(pet_name="tam", legs=5))


def test_keys_are_known_by_their_spelling_in_the_file() -> None:
    """Field names and keys, both ways of naming them."""
    assert key_names(Zoo)["age"] == "AGE"
    assert key_names(Pet) == {"pet_name": "petName", "legs": "legs"}


YAML_LIKE = st.lists(
    st.sampled_from([*"titlepsx: -\n[]{},&*<!'\"0123\t#|>?", "pets", "title: ", "\n- ", "<<: "]),
    max_size=40,
).map("".join)


def is_judged(tmp_path: Path, content: bytes) -> bool:
    """Whether the file gives a value, or mistakes that each have a place in it."""
    file = tmp_path / "zoo.yaml"
    file.write_bytes(content)
    try:
        load_config(file, Zoo)
    except ConfigError as error:
        return all(problem.line >= 1 and problem.column >= 1 for problem in error.problems)
    return True


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(YAML_LIKE)
def test_no_text_raises_anything_else(tmp_path: Path, text: str) -> None:
    """Whatever looks like YAML is judged."""
    assert is_judged(tmp_path, text.encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_else(tmp_path: Path, content: bytes) -> None:
    """The same for files that are not even text."""
    assert is_judged(tmp_path, content)
