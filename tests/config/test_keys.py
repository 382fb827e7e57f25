"""A declaration checks the values of Python code as `yaml_config` checks those of a file."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from kubedevices.config.durations import duration
from kubedevices.config.keys import (
    Complain,
    Declared,
    choice_problem,
    key,
    key_names,
    schema_fields,
    varied_key,
)
from kubedevices.config.yaml_config import load_config
from kubedevices.errors import ConfigError, UsageError


class Sound(enum.StrEnum):
    LOUD = "loud"
    QUIET = "quiet"


@dataclass(frozen=True)
class Point:
    """A class that knows nothing of keys."""

    x: int
    y: int


@dataclass(frozen=True, kw_only=True)
class WrittenPoint:
    across: int = key("from left to right")
    down: int = key("from top to bottom", default=0)

    def value(self) -> Point:
        return Point(self.across, self.down)


@dataclass(frozen=True, kw_only=True)
class Collar(Declared):
    HINT: ClassVar[str] = "write 'collar: {color: red}'"
    ANY_OF: ClassVar[tuple[str, ...]] = ("color", "bells")

    color: Literal["red", "blue"] | None = key("its color", default=None)
    bells: int = key("how many", default=0, check=lambda n: "" if n < 9 else "too loud")


@dataclass(frozen=True, kw_only=True)
class Cat(Declared):
    name: str = key("what it listens to")
    sound: Sound = key("how it is", default=Sound.QUIET)
    naps: tuple[int, ...] = key("hours", default=(), not_empty=True)
    friends: Mapping[str, float] = key(
        "and how much it likes them",
        default_factory=dict,
        check_key=lambda name: "" if name else "a friend has a name",
    )
    collar: Collar | None = key("what it wears", default=None, without=("bells",))
    place: Point | None = key("where it lies", default=None, written=WrittenPoint)
    patience: float = duration("how long it waits", default=1.0, least=0.5)
    lives: int = key("so many are left", default=9)

    @classmethod
    def validate(cls, values: Mapping[str, Any], complain: Complain) -> None:
        if values.get("lives") == 0 and "naps" in values:
            complain(("naps",), "a dead cat has none", "remove the key")


def from_file(directory: Path, text: str) -> Cat:
    file = directory / "cat.yaml"
    file.write_text(text)
    return load_config(file, Cat)[0]


def test_the_same_value_comes_from_a_file_and_from_python(tmp_path: Path) -> None:
    """With an enum, a duration, and a value that a file writes in another form."""
    text = (
        "{name: Tom, sound: loud, naps: [1, 2], friends: {Jerry: 0.5}, collar: {color: red}, "
        "place: {across: 3}, patience: 2s, lives: 7}"
    )
    assert from_file(tmp_path, text) == Cat(
        name="Tom",
        sound=Sound.LOUD,
        naps=(1, 2),
        friends={"Jerry": 0.5},
        collar=Collar(color="red"),
        place=Point(3, 0),
        patience=2.0,
        lives=7,
    )


@pytest.mark.parametrize(
    ("wrong", "problem", "text"),
    [
        ({"name": 5}, "Cat.name: must be text, not 5", "name: 5"),
        ({"sound": "meow"}, "Cat.sound: must be a Sound, not 'meow'", "sound: meow"),
        ({"naps": "12"}, "Cat.naps: must be a list, not '12'", "naps: '12'"),
        ({"naps": (1, "2")}, "Cat.naps: must be a whole number, not '2'", "naps: [1, '2']"),
        ({"naps": [True]}, "Cat.naps: must be a whole number, not True", "naps: [true]"),
        ({"friends": ["a"]}, "Cat.friends: must be keys and values", "friends: [a]"),
        ({"friends": {"": 1.0}}, "Cat.friends: a friend has a name", "friends: {'': 1.0}"),
        ({"friends": {"a": "b"}}, "Cat.friends: must be a number", "friends: {a: b}"),
        ({"collar": "red"}, "Cat.collar: must be a Collar, not 'red'", "collar: red"),
        ({"place": (3, 0)}, "Cat.place: must be a Point, not (3, 0)", "place: [3, 0]"),
        ({"patience": 0.1}, "Cat.patience: shorter than 500ms", "patience: 100ms"),
        ({"lives": 0, "naps": (1,)}, "Cat.naps: a dead cat has none", "lives: 0\nnaps: [1]"),
    ],
)
def test_a_wrong_value_is_refused(
    wrong: dict[str, Any], problem: str, text: str, tmp_path: Path
) -> None:
    """The error of Python names class and field; a file has its line as well."""
    with pytest.raises(UsageError) as refused:
        Cat(**{"name": "Tom", **wrong})
    assert str(refused.value).startswith(problem)
    first = "" if "name" in wrong else "name: Tom\n"
    with pytest.raises(ConfigError) as of_file:
        from_file(tmp_path, first + text)
    assert len(of_file.value.problems) == 1


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, "Collar: one of color, bells is needed"),
        ({"color": "rot"}, "Collar.color: 'rot' is not known, must be red or blue"),
        ({"bells": 9}, "Collar.bells: too loud"),
    ],
)
def test_a_schema_refuses_wrong_keys_together_and_alone(keys: dict[str, Any], problem: str) -> None:
    """`ANY_OF`, words and checks."""
    with pytest.raises(UsageError, match=problem):
        Collar(**keys)


def test_a_place_may_have_fewer_keys(tmp_path: Path) -> None:
    """In a file it is an unknown key; Python names the key."""
    with pytest.raises(UsageError, match=r"Cat\.collar: bells is not possible here"):
        Cat(name="Tom", collar=Collar(bells=1))
    with pytest.raises(ConfigError, match=r"collar\.bells: unknown key \(known: color\)"):
        from_file(tmp_path, "name: Tom\ncollar: {bells: 1}\n")


def test_what_a_constructor_says_further_has_the_line_of_its_object(tmp_path: Path) -> None:
    """A `__post_init__` may check more than a key can declare."""

    @dataclass(frozen=True, kw_only=True)
    class Sleepy(Declared):
        hours: int = key("of sleep", default=0)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.hours > 24:
                self._refuse("a day is over")

    file = tmp_path / "sleepy.yaml"
    file.write_text("\nhours: 25\n")
    with pytest.raises(ConfigError) as refused:
        load_config(file, Sleepy)
    assert str(refused.value) == f"{file}:2:1: a day is over"


def test_a_varied_key_keeps_the_rest() -> None:
    """Its meaning and hint, and its default unless another is given."""

    @dataclass(frozen=True, kw_only=True)
    class Kitten:
        first_nap: tuple[int, ...] = varied_key(Cat, "naps", name="nap")
        lives: int | None = varied_key(Cat, "lives", default=None)

    assert key_names(Kitten) == {"first_nap": "nap", "lives": "lives"}
    assert schema_fields(Kitten)["nap"].rules.not_empty
    assert (Kitten().first_nap, Kitten().lives) == ((), None)


def test_a_word_that_is_not_known() -> None:
    """The word that was probably meant, or all; an empty word is allowed but not proposed."""
    assert choice_problem("", ("", "red")) == ""
    assert choice_problem("reed", ("", "red")) == "'reed' is not known, did you mean 'red'?"
    assert choice_problem("x", ("", "red", "blue")) == "'x' is not known, must be red or blue"
