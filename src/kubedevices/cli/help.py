"""`kubedevices help`: the help of a verb, or the help of all verbs as a man page."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kubedevices import __version__
from kubedevices.errors import UsageError

if TYPE_CHECKING:
    from kubedevices.cli.option_table import Option

NAME = "help"
HELP = """\
print the help of a verb, or the help of all verbs as a man page
"""
EXAMPLES = """\
examples:
  kubedevices help scan
  kubedevices help --man > /usr/local/share/man/man1/kubedevices.1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("topic", nargs="?", metavar="VERB")
    parser.add_argument("--man", action="store_true", help="print a man page in roff")


def run(args: argparse.Namespace) -> int:
    """Print what is asked for."""
    from kubedevices.cli import VERBS, load_verb, top_parser, verb_parser
    from kubedevices.words import did_you_mean

    if args.man and args.topic:
        raise UsageError("--man is a page about every verb: leave the verb out")
    if args.man:
        sys.stdout.writelines(f"{line}\n" for line in manual())
    elif args.topic is None:
        top_parser().print_help()
    elif args.topic not in VERBS:
        raise UsageError(f"unknown verb {args.topic!r}{did_you_mean(args.topic, VERBS)}")
    else:
        verb_parser(load_verb(args.topic)).print_help()
    return 0


def manual() -> Iterator[str]:
    """Yield the lines of the man page."""
    from kubedevices.cli import EXAMPLES as SOME
    from kubedevices.cli.option_table import verbs

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
    yield from _verbatim(SOME)


def _term(option: "Option") -> str:
    names = ", ".join(f"\\fB{_roff(name)}\\fR" for name in option.names)
    return names + (f" \\fI{_roff(option.value)}\\fR" if option.value else "")


def _verbatim(text: str) -> Iterator[str]:
    yield ".PP"
    yield ".nf"
    yield from map(_roff, text.rstrip().splitlines())
    yield ".fi"


def _roff(text: str) -> str:
    """Return text that roff prints as it is: a line must not begin like a command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped
