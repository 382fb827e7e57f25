"""Lays out a help for the width of the terminal. No word is broken, also no option.

Paragraphs are filled. Examples have two columns, a command and perhaps a remark. If a line of them
has no room, all remarks go below their commands, and a long command continues after a backslash, so
that a shell still takes it. Loaded only to print a help.
"""

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator

WIDEST = 100
"""No line is longer, in columns."""

_COMMAND_AND_REMARK = re.compile(r"^( +)(\S.*?)(?: {2,}(\S.*))?$")
_WORD = r"""(?:'[^']*'|"[^"]*"|\S)+"""
_WORDS = re.compile(rf"(?:[|>]|--?[\w-]*) (?!--?\w){_WORD}|{_WORD}")
"""A word of a command; an option together with its value, a pipe or `>` with its next word."""

_BELOW = "    "


class HelpFormatter(argparse.HelpFormatter):
    """Gives the names of options a third of the width, and one place of the usage to all."""

    def __init__(self, prog: str, columns: int) -> None:
        width = min(WIDEST, columns)
        super().__init__(prog, max_help_position=min(34, width // 3), width=width)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        """Show positional arguments, required options, and `[OPTIONS]` for all others."""
        groups = [each for each in groups if each.required]
        kept = {each for group in groups for each in group._group_actions}  # noqa: SLF001
        shown = [each for each in actions if each.required or not each.option_strings]
        shown += [each for each in actions if each in kept and each not in shown]
        if any(each.option_strings for each in actions):
            shown.insert(0, argparse.Action(["OPTIONS"], "options", nargs=0))
        super().add_usage(usage, shown, groups, prefix)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(f"{indent}{line}".rstrip() for line in filled(text, width - len(indent)))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(text, width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return `-o, --output {table,json}`: the values once, not after each name."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        values = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {values}"


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a paragraph; a word that is longer than `width` has its own line."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def filled(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a text: paragraphs filled, commands laid out, tables unchanged."""
    for number, paragraph in enumerate(re.split(r"\n[ \t]*\n", text.strip("\n"))):
        if number:
            yield ""
        lines = paragraph.splitlines()
        if lines[0].endswith(":") and any("kubedevices " in each for each in lines):
            yield from wrapped(lines[0], width)
            yield from example_lines(lines[1:], width)
        elif any(line.startswith(" ") for line in lines):
            yield from lines
        else:
            yield from wrapped(paragraph, width)


def example_lines(lines: Iterable[str], width: int) -> Iterator[str]:
    """Yield the lines of examples, in `width` columns unless a word is longer."""
    lines = list(lines)
    if max(map(len, lines)) <= width:
        yield from lines
        return
    for line in lines:
        if (found := _COMMAND_AND_REMARK.match(line)) is None:
            yield line
            continue
        indent, command, remark = found.groups()
        yield from _continued(command, width, indent)
        if remark is not None:
            yield from (indent + _BELOW + each for each in wrapped(remark, width - len(indent) - 4))


def _continued(command: str, width: int, indent: str) -> Iterator[str]:
    widest, line = width - len(f"{indent}{_BELOW} \\"), ""
    for words in _WORDS.findall(command):
        for word in [words] if len(words) <= widest else words.split(" ", 1):
            if line and len(f"{indent}{line} {word} \\") > width:
                yield f"{indent}{line} \\"
                line = f"{_BELOW}{word}"
            else:
                line = f"{line} {word}" if line else word
    yield indent + line
