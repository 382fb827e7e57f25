"""Every verb with its options, as its parser has them: for completion and the man page."""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from kubedevices.cli import VERBS, load_verb, verb_parser


class Option(NamedTuple):
    """One option of a verb; `value` is its metavar or "", `choices` what may stand there."""

    names: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...]


class Verb(NamedTuple):
    """One verb: `choices` are what its first argument may be, if it is one of a few words."""

    name: str
    help: str
    epilog: str
    usage: str
    choices: tuple[str, ...]
    options: tuple[Option, ...]


def verbs() -> Iterator[Verb]:
    """Yield every verb, in the order of `kubedevices --help`."""
    for name in VERBS:
        module = load_verb(name)
        parser = verb_parser(module)
        actions = parser._actions  # noqa: SLF001 - argparse has no public list of them
        positional = next((each for each in actions if not each.option_strings), None)
        yield Verb(
            name,
            module.HELP,
            getattr(module, "EXAMPLES", ""),
            " ".join(parser.format_usage().split()),
            _choices(positional) if positional else (),
            tuple(_option(parser, each) for each in actions if each.option_strings),
        )


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    value = ""
    if action.nargs != 0:
        named = action.metavar or "|".join(_choices(action)) or action.dest.upper()
        value = named if isinstance(named, str) else " ".join(named)
    formatter = parser._get_formatter()  # noqa: SLF001 - fills in %(default)s as --help does
    text = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
    return Option(tuple(action.option_strings), value, text, _choices(action))
