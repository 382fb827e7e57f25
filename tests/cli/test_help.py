"""`kubedevices help`."""

import os
import re

import pytest

from kubedevices.cli.look_closer.help import verbs
from kubedevices.cli.verbs import VERBS
from tests.command_line import CommandLine


def test_help_prints_the_same_as_the_option_of_the_verb(cli: CommandLine) -> None:
    """`help scan` prints what `scan --help` prints, `help` what `--help` prints."""
    for words in ((), ("scan",)):
        shown = cli("help", *words).out
        assert shown == cli(*words, "--help").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["scna"], "did you mean 'scan'?"), (["scan", "--man"], "leave the verb out")],
)
def test_help_reports_wrong_usage(arguments: list[str], words: str, cli: CommandLine) -> None:
    """One line and exit code 2."""
    assert words in cli("help", *arguments, code=2).err


def test_the_man_page_has_every_verb_and_option(cli: CommandLine) -> None:
    """And no line that roff would take for a command of its own."""
    page = cli("help", "--man").out
    known = (".TH ", ".SH ", ".SS ", ".PP", ".TP", ".nf", ".fi", ".B ")
    for line in page.splitlines():
        assert not line.startswith("'")
        assert line.startswith(known) or not line.startswith("."), line
    for verb in verbs():
        section = page.partition(f"\n.SS {verb.name}\n")[2].partition("\n.SS ")[0]
        for option in verb.options:
            for name in option.names:
                assert name.replace("-", "\\-") in section, (verb.name, name)
    assert page.count("\n.SS ") == len(VERBS)


def help_in(columns: int, cli: CommandLine, *words: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        return cli(*words, "--help").lines


def words_of(lines: list[str]) -> list[str]:
    """Return the words, without the backslash of a command that continues."""
    return sorted(word for line in lines for word in line.split() if word != "\\")


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_the_help_has_the_width_of_the_terminal(verb: str, columns: int, cli: CommandLine) -> None:
    """No word of a help is broken, and a line is longer than the terminal only if it is a word."""
    words = [verb] if verb else []
    lines = help_in(columns, cli, *words)
    assert [each for each in lines if len(each) > columns and " " in each.strip()] == []
    assert words_of(lines) == words_of(help_in(100, cli, *words))


def test_a_long_example_can_still_be_pasted(cli: CommandLine) -> None:
    """A command that continues in the next line ends with a backslash, and its remark is below."""
    text = "\n".join(help_in(60, cli, "check"))
    assert "./my-dra-driver \\\n      --kubeconfig {kubeconfig} --node-name {node}\n" in text
    assert (
        "  kubedevices check --explain life.stream-cancelled\n      what a check is about" in text
    )


def test_the_usage_shows_only_what_a_verb_needs(cli: CommandLine) -> None:
    """Options that a verb does not need are `[OPTIONS]` in the usage."""
    usage, *_ = help_in(80, cli, "run")
    assert usage == "usage: kubedevices run [OPTIONS] --domain DOMAIN MODULE:CLASS"


@pytest.mark.parametrize("verb", VERBS)
def test_long_lists_of_options_are_grouped(verb: str, cli: CommandLine) -> None:
    """No group of options has more than a dozen entries."""
    text = "\n".join(help_in(100, cli, verb))
    for part in re.split(r"\n(?=\S.*:\n)", text):
        assert len(re.findall(r"^  -", part, re.MULTILINE)) <= 12, part


def test_the_width_counts_also_in_a_pipe(monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    """With `| less` only stdin and stderr are the terminal."""

    def size(stream: int) -> os.terminal_size:
        if stream == 1:
            raise OSError("not a terminal")
        return os.terminal_size((60, 20))

    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", size)
    lines = cli("check", "--help").out.splitlines()
    assert 50 < max(map(len, lines)) <= 60
