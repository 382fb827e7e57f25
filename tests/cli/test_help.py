"""`kubedevices help`."""

import pytest

from kubedevices.cli import VERBS, main
from kubedevices.cli.look_closer.help import verbs


def test_help_prints_the_same_as_the_option_of_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """`help scan` prints what `scan --help` prints, `help` what `--help` prints."""
    for words in ((), ("scan",)):
        assert main(["help", *words]) == 0
        shown = capsys.readouterr().out
        assert main([*words, "--help"]) == 0
        assert shown == capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["scna"], "did you mean 'scan'?"), (["scan", "--man"], "leave the verb out")],
)
def test_help_reports_wrong_usage(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and exit code 2."""
    assert main(["help", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_man_page_has_every_verb_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    """And no line that roff would take for a command of its own."""
    assert main(["help", "--man"]) == 0
    page = capsys.readouterr().out
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
