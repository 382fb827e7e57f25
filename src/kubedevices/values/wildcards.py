"""Texts and hexadecimal IDs that match a pattern with wildcards. Pure."""

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

Wanted = str | Collection[str] | None
"""One pattern, or several of which one must match; None matches all. `*` and `?` are wildcards."""


def fits(text: str, wanted: Wanted) -> bool:
    """Whether `text` matches `wanted`."""
    return wanted is None or any(fnmatchcase(text, each) for each in _words(wanted))


def fits_hex(text: str, wanted: Wanted, *, prefix: bool = False) -> bool:
    """Whether a hexadecimal ID matches `wanted`, which may have upper case letters and 0x."""
    if wanted is None:
        return True
    patterns = [each.lower().removeprefix("0x") for each in _words(wanted)]
    return any(fnmatchcase(text, each + "*" * prefix) for each in patterns)


def _words(wanted: str | Collection[str]) -> Iterable[str]:
    return [wanted] if isinstance(wanted, str) else wanted
