"""The last place before stdout and stderr. No other module prints.

What we print contains texts of strangers, so each line passes through `safe_text`. Only this module
writes control characters: colours, the cursor, and lines that change. A pipe gets none of these.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from kubedevices.errors.safe_text import lines, one_line

Part = str | tuple[str, str]
"""A text, or a text and its style."""

Line = Sequence[Part]

_CODES = {"green": "32", "yellow": "33", "bold red": "1;31", "dim": "2", "bold": "1"}
_UP_AND_CLEAR, _HIDE_CURSOR, _SHOW_CURSOR = "\x1b[1A\x1b[2K", "\x1b[?25l", "\x1b[?25h"
_CLEAR_LINE = "\r\x1b[K"


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def is_utf8(stream: TextIO | None = None) -> bool:
    """Whether `stream`, by default stdout, can encode all characters.

    A stream without an encoding can.
    """
    stream = stream or sys.stdout
    return (stream.encoding or "utf-8").lower().replace("-", "") == "utf8"


def size() -> tuple[int, int]:
    """Return columns and lines of the terminal."""
    from shutil import get_terminal_size  # noqa: PLC0415 - large, and plugins do not need it

    return get_terminal_size()


def wrap_width() -> int:
    """Return the width of the terminal; 0 if stdout is not a terminal."""
    return size()[0] if is_terminal() else 0


def wrapped(text: str, indent: int = 0, *, least: int = 20) -> list[str]:
    """Return one line of text as lines that fit into the terminal beside `indent` columns.

    They have at least `least` columns. No word is broken. A pipe gets one line.
    """
    from textwrap import wrap  # noqa: PLC0415 - plugins do not need it

    text, width = one_line(text), wrap_width()
    if not width:
        return [text]
    room = max(width - indent, least)
    return wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


# ---------------------------------------------------------------- lines and texts


def print_line(*parts: Part, flush: bool = False) -> None:
    """Print one line on stdout.

    A style is green, yellow, bold red, dim, bold, or nothing. Without a terminal, and with NO_COLOR
    (https://no-color.org), styles are left out.
    """
    print_lines([parts])
    if flush:
        sys.stdout.flush()


def print_lines(several: Iterable[Line]) -> None:
    """Print lines on stdout."""
    sys.stdout.write("".join(f"{_styled(line)}\n" for line in several))


def print_to_stderr(*parts: str) -> None:
    """Print one line on stderr."""
    sys.stderr.write(f"{one_line(''.join(parts))}\n")


def print_text(text: str, *, stderr: bool = False, flush: bool = False) -> None:
    """Print a text whose line breaks are ours, on stdout or stderr; adds no line break."""
    stream = sys.stderr if stderr else sys.stdout
    stream.write(lines(text))
    if flush:
        stream.flush()


def plain(line: Line) -> str:
    """Return a line without styles."""
    return "".join(part if isinstance(part, str) else part[0] for part in line)


def _styled(line: Line) -> str:
    text = plain(line)
    safe = one_line(text)
    has_styles = is_terminal() and not (
        os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    )
    # A line that had to be escaped loses its styles: the escapes are not where the parts are.
    if safe != text or not has_styles:
        return safe
    return "".join(
        part if isinstance(part, str) else _with_code(part[0], _CODES.get(part[1], ""))
        for part in line
    )


def _with_code(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


# ---------------------------------------------------------------- what changes on a terminal


def redraw(before: int, several: Iterable[Line]) -> None:
    """Replace the last `before` lines on the terminal by these."""
    sys.stdout.write(_UP_AND_CLEAR * before)
    print_lines(several)
    sys.stdout.flush()


def hide_cursor() -> None:
    """Hide the cursor while lines change."""
    sys.stdout.write(_HIDE_CURSOR)


def show_cursor() -> None:
    """Show the cursor again."""
    sys.stdout.write(_SHOW_CURSOR)
    sys.stdout.flush()


def stderr_is_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr.isatty()


def draw_status(text: str) -> None:
    """Replace the last line on stderr, which must be a terminal, by `text` without a line break."""
    sys.stderr.write(_CLEAR_LINE + one_line(text))
    sys.stderr.flush()
