"""The command line: one file per verb, loaded when the verb is used.

The module of a verb has `NAME`, `HELP` (`kubedevices --help` prints its first line, `kubedevices
VERB --help` prints all of it), `add_arguments(parser)` and `run(args) -> int`. It may also have

EXAMPLES             text below the help
LOG_LEVEL            the verb's default of `--log-level`; without it "warning". Verbs that keep
                     running use "info"
TAKES_COMMAND        `args.command` is the list of words after `--`; a second `--` stays in it
keeps_running(args)  whether the process must continue even if nobody reads its output

`main` turns a `KubedevicesError` from `run` into one message on stderr and an exit code. No other
function does this. Any other exception is a bug and keeps its traceback. A plugin process imports
this file, so nothing heavy is imported here.

The folders are the groups of `kubedevices --help`, which `verbs` lists; `shared` has what several
verbs use.
"""

import argparse
import contextlib
import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from kubedevices import __version__
from kubedevices.cli.shared.log_options import add_log_options, log_options
from kubedevices.cli.verbs import FOLDER_OF, GROUPS, PAGES, VERBS
from kubedevices.errors import ConfigError, KubedevicesError
from kubedevices.errors.safe_text import one_line
from kubedevices.errors.words import did_you_mean
from kubedevices.host.terminal import print_text, print_to_stderr

Run = Callable[[list[str], contextlib.ExitStack], int]
"""Runs the words of a command line; what it adds to the stack ends after the last line."""


_MODULE_OF = {"with": "with_devices"}
"""Verbs whose name cannot be the name of a module."""

_WITHOUT_TLS = frozenset({"simulate", "expose", "node", "proxy"})
"""Verbs that keep running, use only Unix sockets and plain HTTP, and run no code of others."""

WHAT = (
    "kubedevices tests, explains and repairs Kubernetes device plugins and DRA drivers, and writes "
    "new ones in ten lines."
)

EXAMPLES = """\
examples:
  kubedevices check -- ./my-plugin
  kubedevices explain pod train-0
  kubedevices devices --cluster
  kubedevices expose --profile sound
  kubedevices scan widgets.py:Widgets
  kubedevices node --socket-dir ~/kd
  kubedevices allocate example.com/gpu=1 --socket-dir ~/kd
"""

_INTERRUPTED = 130  # 128 + SIGINT
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_READER_GONE = 141  # 128 + SIGPIPE: what a shell reports for any filter whose reader left


class Parser(argparse.ArgumentParser):
    """An argument parser that prints an error as one line, without the usage before it."""

    def __init__(self, **given: Any) -> None:
        # argparse makes a formatter for each argument. Without a width it would load four modules.
        plain: Any = partial(argparse.HelpFormatter, width=80)
        super().__init__(**{"formatter_class": plain, "allow_abbrev": False, **given})

    def format_help(self) -> str:
        """Return the help with one line break at its end, as other commands print it."""
        self.formatter_class = _formatter
        return super().format_help().rstrip("\n") + "\n"

    def format_usage(self) -> str:
        """Return the usage line."""
        self.formatter_class = _formatter
        return super().format_usage()

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            print_text(message, stderr=file is not sys.stdout)

    def error(self, message: str) -> NoReturn:
        """Print the error and the command that prints the help; exit with code 2."""
        self.exit(2, f"kubedevices: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None, run: Run | None = None) -> int:
    """Run one command; return its exit code. `run` is for commands with another name.

    0 success, 1 the answer is no, 2 wrong usage, 3 the question could not be asked.
    """
    if sys.stdout is None:  # the caller closed it, for example with `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until the end
    _escape_missing_characters()
    with contextlib.ExitStack() as output:
        words = sys.argv[1:] if argv is None else list(argv)
        return _run_and_flush(run or _run_verb, words, output)


def _run_and_flush(run: Run, argv: list[str], output: contextlib.ExitStack) -> int:
    try:
        try:
            return run(argv, output)
        finally:
            sys.stdout.flush()  # raises BrokenPipeError here, and not when the interpreter exits
    except SystemExit as exit_:
        return _code_of(exit_)
    except KubedevicesError as error:
        logging.getLogger(__name__).debug("this led to the message below", exc_info=error)
        _print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return _READER_GONE
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        _discard_stdout()
        print_to_stderr(f"kubedevices: cannot write the output: {error.strerror}")
        return 3


def _escape_missing_characters() -> None:
    """Print characters that the encoding does not have as backslash escapes, like stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    """Replace stdout by /dev/null: Python flushes stdout once more when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(error: KubedevicesError) -> None:
    """Print the error on stderr; as a log line if the log is JSON, for the collector of the log."""
    from kubedevices.plugin.log_lines import writes_json

    if not writes_json():
        print_text(f"{describe(error)}\n", stderr=True)
        return
    for problem in error.problems if isinstance(error, ConfigError) else [error]:
        logging.getLogger(__name__).error("%s", problem)


def describe(error: KubedevicesError) -> str:
    """Return the message for `error`: one line, or one line per mistake in a configuration."""
    if isinstance(error, ConfigError) and len(error.problems) > 1:
        lines = "\n".join(f"  {one_line(str(problem))}" for problem in error.problems)
        return f"kubedevices: {len(error.problems)} mistakes\n{lines}"
    # A text of a stranger in the message may have line breaks: no line of it looks like ours.
    return "\n  ".join(map(one_line, f"kubedevices: {error}".split("\n")))


def _code_of(exit_: SystemExit) -> int:
    """Return the exit code, as Python does: a text is printed as an error, None means success."""
    if exit_.code is None or isinstance(exit_.code, int):
        return exit_.code or 0
    print_to_stderr(exit_.code)
    return 1


def _run_verb(argv: list[str], output: contextlib.ExitStack) -> int:
    parser = top_parser()
    # Words after "--" belong to the verb. Cut them off first: argparse would remove the "--".
    cut = argv.index("--") if "--" in argv else len(argv)
    top = parser.parse_args(argv[:cut])
    if top.verb is None:
        parser.print_help(sys.stderr)
        return 2
    if top.verb not in VERBS:
        parser.error(f"unknown verb {top.verb!r}{did_you_mean(top.verb, VERBS)}")
    if top.verb in _WITHOUT_TLS and not any(each.startswith("--mode") for each in top.arguments):
        _load_asyncio_without_tls()
    verb = load_verb(top.verb)
    takes_command = getattr(verb, "TAKES_COMMAND", False)
    arguments = top.arguments if takes_command else top.arguments + argv[cut:]
    args = parse_words(verb, arguments, log_options(top, verb))
    if takes_command:
        args.command = argv[cut + 1 :]
    if getattr(verb, "keeps_running", lambda _: False)(args):
        from kubedevices.host.unblocked_output import unblocked_output

        output.enter_context(unblocked_output())
    from kubedevices.plugin.log_lines import configure_logging

    configure_logging(args.log_level, args.log_format)
    code: int = verb.run(args)
    return code


def load_verb(name: str) -> ModuleType:
    """Return the module of a verb."""
    return import_module(f"{__name__}.{FOLDER_OF[name]}.{_MODULE_OF.get(name, name)}")


def _load_asyncio_without_tls() -> None:
    """Import asyncio as on a Python without OpenSSL. This saves 2.6 MB and 10 ms."""
    if "asyncio" not in sys.modules and "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # `import ssl` fails
        try:
            import_module("asyncio")
        finally:
            del sys.modules["ssl"]


def top_parser() -> Parser:
    """Return the parser of the words up to the verb."""
    parser = Parser(
        prog="kubedevices",
        usage="kubedevices VERB ...",
        description="\n".join(_lines_of_help(min(100, _columns()))),
        epilog=f"{EXAMPLES}\nkubedevices VERB --help: options, pages. docs/which-verb.md: wishes",
    )
    parser.add_argument("--version", action="version", version=f"kubedevices {__version__}")
    add_log_options(parser)
    parser.add_argument("verb", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _lines_of_help(columns: int) -> Iterator[str]:
    """Yield what this is and the verbs by group; no line is longer than `columns`."""
    import textwrap

    yield from textwrap.wrap(WHAT, columns)
    width = max(map(len, VERBS)) + 4
    for title, group in GROUPS.items():
        yield from ("", f"{title}:")
        for name, summary in group.verbs.items():
            first, *others = textwrap.wrap(summary, max(columns - width, 20))
            yield f"  {name:{width - 2}}{first}"
            yield from (f"{'':{width}}{line}" for line in others)


def parse_words(
    verb: ModuleType, words: list[str], defaults: argparse.Namespace, called: str = ""
) -> argparse.Namespace:
    """Parse the words after a verb; `called` is as for `verb_parser`."""
    is_mixed = getattr(verb, "OPTIONS_BETWEEN_WORDS", False)  # as in `explain pod -o json NAME`
    parser = verb_parser(verb, called)
    return (parser.parse_intermixed_args if is_mixed else parser.parse_args)(words, defaults)


def verb_parser(verb: ModuleType, called: str = "") -> Parser:
    """Return the parser of the words after a verb; `verb` is the module of the verb.

    `called` is the command that runs the verb if it has another name.
    """
    usual = f"kubedevices {verb.NAME}"
    parser = Parser(
        prog=called or usual,
        description=verb.HELP,
        epilog=getattr(verb, "EXAMPLES", "").replace(usual, called or usual) + _pages(verb.NAME),
    )
    verb.add_arguments(parser)
    add_log_options(parser)
    return parser


def _pages(verb: str) -> str:
    pages = ", ".join(f"docs/{each}.md" for each in PAGES.get(verb, ()))
    return f"\npages: {pages}" if pages else ""


def _formatter(prog: str) -> argparse.HelpFormatter:
    from kubedevices.cli.shared.help_text import HelpFormatter

    return HelpFormatter(prog, _columns())


def _columns() -> int:
    """Return the columns of the terminal, also if stdout is a pipe, such as to `less`."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    for stream in (1, 2, 0):
        with contextlib.suppress(OSError):
            if columns := os.get_terminal_size(stream).columns:
                return columns
    return 80
