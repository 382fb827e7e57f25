"""Builds parts of messages: a suggestion for a misspelt word, a count, a shortened list."""

from collections.abc import Iterable


def closest(word: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """Return the known word that was probably meant by `word`, or an empty string.

    Upper and lower case are equal. `alike` is the least similarity, from 0 to 1 (equal).
    """
    from difflib import get_close_matches  # noqa: PLC0415 -- a serving plugin does not need it

    by_lower_case = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=alike)
    return by_lower_case[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """Return `, did you mean 'scan'?` if a known word is close to `word`, or an empty string."""
    found = closest(word, known, alike=alike)
    return f", did you mean {found!r}?" if found else ""


def counted(number: int, thing: str) -> str:
    """Return `1 device`, `2 devices`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def some_of(words: Iterable[str], limit: int = 5) -> str:
    """Return words with commas; of more than `limit` words, the first and the number of others."""
    listed = list(words)
    more = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" and {more} more" if more > 0 else "")
