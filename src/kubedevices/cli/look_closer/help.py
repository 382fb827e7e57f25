"""`kubedevices help`: prints the help of a verb, or the help of all verbs as a man page.

`verbs` returns every verb with its options, also for `kubedevices completion`.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from kubedevices import __version__
from kubedevices.cli import EXAMPLES as TOP_EXAMPLES
from kubedevices.cli import load_verb, top_parser, verb_parser
from kubedevices.cli.verbs import VERBS
from kubedevices.errors import UsageError
from kubedevices.errors.words import did_you_mean
from kubedevices.host.terminal import print_text

NAME = "help"
HELP = """\
print the help of a verb, or the help of all verbs as a man page
"""
EXAMPLES = """\
examples:
  kubedevices help scan
  kubedevices help --man > /usr/local/share/man/man1/kubedevices.1
"""


class Option(NamedTuple):
    """One option of a verb; `value` is its metavar or "", `choices` are its allowed values."""

    names: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...]


class Verb(NamedTuple):
    """One verb; `choices` are the words for its first argument, if the parser lists them."""

    name: str
    help: str
    epilog: str
    usage: str
    choices: tuple[str, ...]
    options: tuple[Option, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("topic", nargs="?", metavar="VERB")
    parser.add_argument("--man", action="store_true", help="print a man page in roff")


def run(args: argparse.Namespace) -> int:
    """Print the help of a verb, the man page, or the list of verbs."""
    if args.man and args.topic:
        raise UsageError("--man prints every verb: leave the verb out")
    if args.man:
        print_text("".join(f"{line}\n" for line in manual()))
    elif args.topic is None:
        top_parser().print_help()
    elif args.topic not in VERBS:
        raise UsageError(f"unknown verb {args.topic!r}{did_you_mean(args.topic, VERBS)}")
    else:
        verb_parser(load_verb(args.topic)).print_help()
    return 0


def manual() -> Iterator[str]:
    """Yield the lines of the man page."""
    yield f'.TH KUBEDEVICES 1 "" "kubedevices {__version__}" "User Commands"'
    yield ".SH NAME"
    yield "kubedevices \\- Kubernetes device plugins: write, run, test and debug them"
    yield ".SH SYNOPSIS"
    yield ".B kubedevices"
    yield "VERB [OPTION ...] [ARGUMENT ...]"
    yield ".SH VERBS"
    for verb in verbs():
        yield f".SS {verb.name}"
        yield _roff(verb.usage.removeprefix("usage: "))
        for paragraph in verb.help.strip().split("\n\n"):
            yield ".PP"
            yield from map(_roff, paragraph.splitlines())
        for option in verb.options:
            yield ".TP"
            yield _term(option)
            yield _roff(option.help)
        yield from _verbatim(verb.epilog)
    yield ".SH EXIT STATUS"
    for code, meaning in (
        ("0", "success"),
        ("1", "the answer is no: a plugin failed, a kubelet refused, a timeout"),
        ("2", "wrong usage, configuration, module or YAML"),
        ("3", "the question could not be asked: a socket, a file or a permission"),
    ):
        yield ".TP"
        yield f".B {code}"
        yield meaning
    yield ".SH EXAMPLES"
    yield from _verbatim(TOP_EXAMPLES)


def _term(option: Option) -> str:
    names = ", ".join(f"\\fB{_roff(name)}\\fR" for name in option.names)
    return names + (f" \\fI{_roff(option.value)}\\fR" if option.value else "")


def _verbatim(text: str) -> Iterator[str]:
    yield ".PP"
    yield ".nf"
    yield from map(_roff, text.rstrip().splitlines())
    yield ".fi"


def _roff(text: str) -> str:
    """Return text that roff prints unchanged: escaped, and not beginning like a roff command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


# ---------------------------------------------------------------- verbs with their options


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
    formatter = parser._get_formatter()  # noqa: SLF001 - it replaces %(default)s
    text = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
    return Option(tuple(action.option_strings), value, text, _choices(action))
