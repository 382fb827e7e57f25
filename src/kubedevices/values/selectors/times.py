"""Durations and points in time, with nanoseconds as in Go. Pure.

Rules of cel-go 0.27, `common/types/duration.go` and `timestamp.go`.
"""

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

from kubedevices.values.selectors.cel_types import DURATION, TIMESTAMP
from kubedevices.values.selectors.cel_values import fail

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(" + "|".join(_UNITS) + ")")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT)(\d{1,2})(:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST, _LAST = -62135596800, 253402300799
"""Seconds of the years 1 and 9999."""


class Duration:
    """A duration; `nanoseconds` fit into 64 bits."""

    type_name = DURATION

    def __init__(self, nanoseconds: int) -> None:
        if not -(2**63) <= nanoseconds < 2**63:
            raise fail("integer overflow")
        self.nanoseconds = self.value = nanoseconds

    @property
    def text(self) -> str:
        """The duration in seconds, as `string` returns it."""
        whole, part = divmod(abs(self.nanoseconds), 10**9)
        return f"{'-' if self.nanoseconds < 0 else ''}{whole}{_fraction(part)}s"

    def part(self, unit: str) -> int:
        """Return all hours, minutes, seconds or milliseconds."""
        size = {"Hours": 3600, "Minutes": 60, "Seconds": 1}.get(unit)
        count = abs(self.nanoseconds) // (size * 10**9 if size else 10**6)
        return -count if self.nanoseconds < 0 else count


class Timestamp:
    """A point in time; `nanoseconds` count from 1970 in UTC, `offset` is in minutes.

    Only `string` shows the offset of the time zone.
    """

    type_name = TIMESTAMP

    def __init__(self, nanoseconds: int, offset: int = 0) -> None:
        if not _FIRST <= nanoseconds // 10**9 <= _LAST:
            raise fail("timestamp overflow")
        self.nanoseconds = self.value = nanoseconds
        self.offset = offset

    def at(self, zone: str) -> dt.datetime:
        """Return date and time in a time zone, without parts of a second."""
        moment = _EPOCH + dt.timedelta(seconds=self.nanoseconds // 10**9)
        try:
            return moment.astimezone(_zone(zone))
        except OverflowError:
            raise fail("the year is not evaluated here", "unsupported") from None

    @property
    def text(self) -> str:
        """The time as `string` returns it."""
        hours, minutes = divmod(abs(self.offset), 60)
        zone = f"{'-' if self.offset < 0 else '+'}{hours:02}:{minutes:02}"
        whole = f"{self.at(zone):%Y-%m-%dT%H:%M:%S}".zfill(19)
        return whole + _fraction(self.nanoseconds % 10**9) + (zone if self.offset else "Z")


def _fraction(nanoseconds: int) -> str:
    return f".{nanoseconds:09}".rstrip("0") if nanoseconds else ""


def _zone(name: str) -> dt.tzinfo:
    if ":" not in name:
        # Imported here: the module reads the build settings of Python, which selectors do not need.
        import zoneinfo  # noqa: PLC0415

        try:
            return zoneinfo.ZoneInfo(name or "UTC")
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise fail(f"unknown time zone {name}") from None
    hours, _, minutes = name.partition(":")
    if not re.fullmatch(r"[+-]?\d+", hours) or not re.fullmatch(r"[+-]?\d+", minutes):
        raise fail(f"unknown time zone {name}")
    sign = -1 if hours.startswith("-") else 1
    offset = dt.timedelta(minutes=int(hours) * 60 + sign * int(minutes))
    if abs(offset) >= dt.timedelta(days=1):
        raise fail(f"the time zone {name} is not evaluated here", "unsupported")
    return dt.timezone(offset)


def duration(value: Any) -> Duration:
    """Return the duration of a text such as `1h30m`."""
    if isinstance(value, Duration):
        return value
    text = value.lstrip("+-") if isinstance(value, str) and value[1:2] not in "+-" else value
    if not isinstance(value, str) or not re.fullmatch(rf"({_PART.pattern})+|0", text):
        raise fail(f"type conversion error from {value!r} to '{DURATION}'")
    total = 0
    for number, unit in _PART.findall(text):
        whole, _, part = number.partition(".")
        size = _UNITS[unit]
        total += int(whole or 0) * size + int(part or 0) * size // 10 ** len(part)
    return Duration(-total if value.startswith("-") else total)


def timestamp(value: Any) -> Timestamp:
    """Return the time of a text as in RFC 3339, or of seconds since 1970."""
    if isinstance(value, Timestamp):
        return value
    if type(value) is int:
        return Timestamp(value * 10**9)
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    try:
        if match is None:
            raise ValueError(value)
        date, hour, rest, fraction, zone = match.groups()
        seconds = dt.datetime.fromisoformat(f"{date}{int(hour):02}{rest}")
        offset = dt.timedelta(0)
        if zone != "Z":
            offset = dt.timedelta(hours=int(zone[1:3]), minutes=int(zone[4:]))
            if int(zone[1:3]) > 24 or int(zone[4:]) > 60:
                raise ValueError(value)
        moment = seconds.replace(tzinfo=dt.UTC) - _EPOCH
        moment += offset if zone.startswith("-") else -offset
    except ValueError:
        raise fail(f"type conversion error from {value!r} to '{TIMESTAMP}'") from None
    part = int((fraction or "").ljust(9, "0")[:9])
    minutes = offset // dt.timedelta(minutes=1) * (-1 if zone.startswith("-") else 1)
    return Timestamp((moment.days * 86400 + moment.seconds) * 10**9 + part, minutes)


_PARTS: dict[str, Callable[[dt.datetime], int]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDate": lambda at: at.day,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
}


def _part(name: str) -> Callable[..., int]:
    def answer(value: Duration | Timestamp, zone: str = "UTC") -> int:
        if isinstance(value, Duration):
            return value.part(name[3:])
        if name == "getMilliseconds":
            return value.nanoseconds % 10**9 // 10**6
        return _PARTS[name](value.at(zone))

    return answer


FUNCTIONS = {name: _part(name) for name in (*_PARTS, "getMilliseconds")}
"""The functions by name. A receiver is the first argument."""
