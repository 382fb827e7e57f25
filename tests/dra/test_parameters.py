"""The configuration of a claim as an author's dataclass."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Literal

import pytest

from kubedevices.dra.parameters import ParametersInvalid, check_schema, decode
from kubedevices.errors import UsageError


class Mode(enum.Enum):
    FAST = "Fast"
    SAFE = "Safe"


@dataclass(frozen=True)
class Limits:
    watts: int
    share: float = 1.0


@dataclass(frozen=True)
class CardConfig:
    mode: Mode = Mode.SAFE
    log_level: Literal["info", "debug"] = "info"
    clock_mhz: int | None = None
    limits: Limits | None = None
    modules: list[str] = field(default_factory=list)
    lanes: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    extra: Any = None
    made: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if self.clock_mhz == 0:
            raise ValueError("clockMhz must not be 0")


def test_missing_parameters_have_their_defaults() -> None:
    """The defaults of the author's dataclass."""
    assert decode(CardConfig, {}) == CardConfig()


def test_every_kind_of_field_is_read() -> None:
    """By its name in camelCase; `kind` and `apiVersion` are allowed."""
    given = {
        "apiVersion": "example.com/v1",
        "kind": "CardConfig",
        "mode": "Fast",
        "logLevel": "debug",
        "clockMhz": 900,
        "limits": {"watts": 5, "share": 1},
        "modules": ["a"],
        "lanes": [1, 2],
        "labels": {"x": "y"},
        "extra": {"any": [1]},
    }
    assert decode(CardConfig, given) == CardConfig(
        Mode.FAST, "debug", 900, Limits(5, 1.0), ["a"], (1, 2), {"x": "y"}, {"any": [1]}
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"mod": "Fast"}, "mod: unknown, did you mean 'mode'?"),
        ({"log_level": "info"}, "log_level: unknown"),
        ({"made": "x"}, "made: unknown"),
        ({"kind": "Other"}, "kind: must be CardConfig, not 'Other'"),
        ({"mode": "fast"}, "mode: must be one of 'Fast', 'Safe', not 'fast'"),
        ({"mode": ["Fast"]}, "mode: must be one of 'Fast', 'Safe', not ['Fast']"),
        ({"logLevel": "warn"}, "logLevel: must be one of 'info', 'debug', not 'warn'"),
        ({"clockMhz": "1"}, "clockMhz: must be a whole number, not '1'"),
        ({"clockMhz": True}, "clockMhz: must be a whole number, not True"),
        ({"clockMhz": 1.5}, "clockMhz: must be a whole number, not 1.5"),
        ({"clockMhz": 0}, "clockMhz must not be 0"),
        ({"limits": {}}, "limits.watts: is missing"),
        ({"limits": {"watts": 1, "volts": 2}}, "limits.volts: unknown"),
        ({"limits": 5}, "limits: must be keys and values, not 5"),
        ({"modules": "a"}, "modules: must be a list, not 'a'"),
        ({"lanes": [1, "2"]}, "lanes[1]: must be a whole number, not '2'"),
        ({"labels": {"x": 1}}, "labels.x: must be text, not 1"),
        ({"mode": "x", "lanes": 3}, "mode: must be one of 'Fast', 'Safe', not 'x'; lanes: must be"),
    ],
    ids=str,
)
def test_an_error_names_its_key(given: dict[str, Any], problem: str) -> None:
    """One exception has all errors."""
    with pytest.raises(ParametersInvalid) as raised:
        decode(CardConfig, given)
    assert str(raised.value).startswith(problem)


@dataclass
class Odd:
    when: complex


ODD_KINDS: tuple[Any, ...] = (
    Odd,
    list[Odd],
    list[complex],
    tuple[complex, ...],
    dict[str, complex],
    Mapping[str, complex],
    complex | None,
    str | list[complex],
)


@pytest.mark.parametrize("kind", ODD_KINDS, ids=str)
def test_a_type_that_json_cannot_express_is_found_wherever_it_is(kind: Any) -> None:
    """The text names the field."""
    with pytest.raises(UsageError, match=r"(Nested\.parts|Odd\.when): a claim cannot contain a"):
        check_schema(make_dataclass("Nested", [("parts", kind)]))


@pytest.mark.parametrize("schema", [Odd, dict, CardConfig()], ids=str)
def test_a_type_that_json_cannot_express_is_refused(schema: Any) -> None:
    """At the start of the driver."""
    with pytest.raises(UsageError):
        check_schema(schema)
    check_schema(CardConfig)
