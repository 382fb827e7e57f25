"""Checks of single values that several files of users have. Pure.

A check gets a value and returns what is wrong with it, or an empty string.
"""

import re
from collections.abc import Callable

from kubedevices.config.placeholders import placeholders
from kubedevices.errors.words import closest

_LAST_NUMA_NODE = 1023  # the kernel's limit
_OF_A_WILDCARD = re.compile("[1-9]")
_WHOLE_PATH = re.compile(r"\{(path|container_path)\}")


def at_least(least: int) -> Callable[[int], str]:
    """Return a check for a number."""
    return lambda count: "" if count >= least else f"must be {least} or more, not {count}"


def within(least: int, most: int) -> Callable[[int], str]:
    """Return a check for a number between two others, which are allowed too."""
    return lambda count: (
        "" if least <= count <= most else f"must be from {least} to {most}, not {count}"
    )


replicas = within(1, 1000)
"""Check how many containers may have a device."""

times = within(1, 1000)
"""Check how many results in a row are needed."""


def numa_node(number: int) -> str:
    """Check the number of a NUMA node."""
    if number < 0:
        return f"{number} is negative; a NUMA node is 0 or more"
    return "" if number <= _LAST_NUMA_NODE else f"{number}: NUMA nodes go up to {_LAST_NUMA_NODE}"


def some_text(text: str) -> str:
    """Check that a text is not empty."""
    return "" if text else "this text is empty"


def absolute(path: str) -> str:
    """Check that a path is absolute."""
    return "" if path.startswith("/") else f"{path!r} must be an absolute path"


def file_path(path: str) -> str:
    """Check the path of a file."""
    if not path.startswith("/"):
        return f"{path!r} must be an absolute path" if path else "a path must not be empty"
    if path.endswith("/"):
        return f"{path!r} is a directory, but a file is needed"
    if {"", ".", ".."} & set(path.split("/")[1:]):
        return f"{path!r} must not contain '//', '.' or '..'"
    return "" if path.isprintable() else f"{path!r} contains characters that cannot be printed"


def template(*known: str) -> Callable[[str], str]:
    """Return a check: are all placeholders among `known`? `"1"` stands for `{1}` to `{9}`."""

    def check(text: str) -> str:
        if "\0" in text:
            return f"{text!r} contains a NUL character, which no text may contain"
        try:
            names = placeholders(text)
        except ValueError as error:
            return str(error)
        for name in names:
            if name not in known and not ("1" in known and _OF_A_WILDCARD.fullmatch(name)):
                meant = closest(name, known)
                listed = ", ".join(f"{{{each}}}" for each in known)
                hint = f"did you mean {{{meant}}}?" if meant else f"known: {listed}"
                return f"unknown placeholder {{{name}}}, {hint}"
        return ""

    return check


def path_template(*known: str) -> Callable[[str], str]:
    """Return a check for a path with placeholders."""

    def check(text: str) -> str:
        if problem := template(*known)(text):
            return problem
        return file_path("/" + text if _WHOLE_PATH.match(text) else text)

    return check
