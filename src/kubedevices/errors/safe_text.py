"""Makes texts of strangers harmless for a terminal, a log and the log of a CI job. Pure.

A plugin chooses device IDs, messages and the values of its answers. Such a text may contain escape
sequences of a terminal, characters that reverse the direction of the text, a line break followed by
a forged line, or a command to a CI server. `terminal` passes everything that we print through this
module. Each format has its own escapes, so that the reader of a format still gets the same text.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

_CI_COMMAND = re.compile(r"##(?=(?:vso|teamcity)?\[)")
"""A command to GitHub, Azure Pipelines or TeamCity, which they find anywhere in a line."""

_TOKENS = 10_000
"""Of JSON, in a part of a document."""

_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def one_line(text: str) -> str:
    r"""Return `text` as one line: control and bidi characters and line breaks are escaped.

    Also `::` at the start and `##[` anywhere, which are commands to CI servers:
    https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if "##" in text:
        text = _CI_COMMAND.sub(r"#\\x23", text)
    if text.lstrip().startswith("::"):
        text = text.replace(":", r"\x3a", 1)
    return text


def lines(text: str) -> str:
    """Return a text of several lines, each as by `one_line`; tabs are kept."""
    if (text.isascii() and text.isprintable()) and "::" not in text and "##" not in text:
        return text
    return "\n".join(
        "\t".join(map(one_line, line.split("\t"))) if "\t" in line else one_line(line)
        for line in text.split("\n")
    )


def json_text(document: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """Return `document` as JSON text without unprintable characters."""
    import json  # noqa: PLC0415 - a plugin prints no JSON

    return escaped_json(json.dumps(document, indent=indent, ensure_ascii=ascii_only))


def json_parts(document: Any, *, ascii_only: bool = False) -> Iterator[str]:
    """Yield the parts of an indented JSON text: the text of a large document takes much memory."""
    import json  # noqa: PLC0415 - a plugin prints no JSON

    tokens = json.JSONEncoder(indent=2, ensure_ascii=ascii_only).iterencode(document)
    while some := "".join(itertools.islice(tokens, _TOKENS)):
        yield escaped_json(some)  # each string is one token


def escaped_json(text: str) -> str:
    """Return the JSON `text`, with JSON escapes for characters that `one_line` escapes."""
    # Outside of its strings, JSON has only ASCII characters, line breaks, and no number sign.
    text = _UNPRINTABLE.sub(
        lambda found: found[0] if found[0] == "\n" or found[0].isprintable() else _u(found[0]), text
    )
    return _CI_COMMAND.sub(r"#\\u0023", text)


def _u(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def is_safe(text: str) -> bool:
    """Whether `text` needs no escape inside a line."""
    return text.isprintable() and _CI_COMMAND.search(text) is None


def escaped_yaml(text: str) -> str:
    """Return YAML whose strings that are not `is_safe` are in double quotes, without CI commands.

    The YAML library escapes unprintable characters in double quotes, but no number sign.
    """
    return _CI_COMMAND.sub(r"#\\x23", text)


def shell_line(words: list[str]) -> str:
    """Return `words` quoted for a shell, as one line.

    A word with a line break or an unprintable character is written as `$'…'` (POSIX 2024: bash,
    ksh, zsh, busybox), because no older quoting has escapes.
    """
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if is_safe(word) and not word.startswith("::"):
        import shlex  # noqa: PLC0415 - a plugin prints no command

        return shlex.quote(word)
    escaped = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\\'#:" else f"\\{byte:03o}"
        for byte in word.encode("utf-8", "surrogateescape")
    )
    return f"$'{escaped}'"
