"""Durations in configurations and on the command line: `5s`, `500ms`, `1m`, `1h`. Pure."""

import re

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
