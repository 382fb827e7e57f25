"""Durations in configurations and on the command line: `5s`, `500ms`, `1m`, `1h`. Pure."""

import dataclasses
import re
from typing import Any

from kubedevices.config.keys import key

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 366 * 24 * 3600.0


def parse_duration(text: str) -> float:
    """Return the seconds in `5s`, `500ms`, `1m`, `1h`; raises ValueError, also for over a year."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if not found:
        raise ValueError(f"{text!r} is not a duration")
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST:
        raise ValueError(f"{text} is longer than a year")
    return seconds


def duration(
    meaning: str,
    *,
    default: Any = dataclasses.MISSING,
    least: float = 0.0,
    hint: str = "for example 30s or 5m",
) -> Any:
    """Declare a key whose value is a duration in a file, and seconds in Python."""

    def check(seconds: float) -> str:
        if least and not seconds >= least:
            return f"shorter than {least * 1000:g}ms"
        is_right = 0 <= seconds <= _LONGEST
        return "" if is_right else f"must be from 0 s to a year, not {seconds:g} s"

    return key(meaning, default=default, parse=parse_duration, check=check, hint=hint)
