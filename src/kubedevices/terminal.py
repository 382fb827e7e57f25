"""Colours and the width of lines for a terminal; a pipe gets neither. The encoding of streams."""

import os
import sys
from typing import TextIO

_CODES = {"green": "32", "yellow": "33", "bold red": "1;31", "dim": "2", "bold": "1"}


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def is_utf8(stream: TextIO) -> bool:
    """Whether `stream` can encode all characters; a stream without an encoding can."""
    return (stream.encoding or "utf-8").lower().replace("-", "") == "utf8"


def size() -> tuple[int, int]:
    """Return columns and lines of the terminal."""
    from shutil import get_terminal_size  # noqa: PLC0415 - large, and plugins do not need it

    return get_terminal_size()


def wrap_width() -> int:
    """Return the width of the terminal; 0 if stdout is not a terminal."""
    return size()[0] if is_terminal() else 0


def styled(text: str, style: str) -> str:
    """Return `text` as `style`: green, yellow, bold red, dim, bold, or nothing.

    Without a terminal, and with NO_COLOR (https://no-color.org), it is the text alone.
    """
    code = _CODES.get(style)
    if not code or not text or not is_terminal():
        return text
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{code}m{text}\x1b[0m"
