"""Texts for people: suggestions for a misspelt word, counts, and shortened lists."""

from collections.abc import Iterable


def closest(word: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """Return the known word that `word` was probably meant to be, or an empty string.

    Case does not count. `alike` is how similar both must be, from 0 to 1 (equal).
    """
    from difflib import get_close_matches  # noqa: PLC0415 -- no plugin misspells while it serves

    by_lower_case = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=alike)
    return by_lower_case[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `, did you mean 'scan'?` if a known word is close to `word`, or an empty string."""
    found = closest(word, known)
    return f", did you mean {found!r}?" if found else ""


def counted(number: int, thing: str) -> str:
    """Return `1 device`, `2 devices`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def some_of(words: Iterable[str], limit: int = 5) -> str:
    """Return words with commas, or the first of them and how many more there are."""
    listed = list(words)
    more = len(listed) - limit
    return ", ".join(listed[:limit]) + (f" and {more} more" if more > 0 else "")
