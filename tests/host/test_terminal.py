"""The last place before stdout and stderr."""

import pytest

from kubedevices.host import terminal
from tests.strangers import PLANT, assert_harmless


def test_no_way_to_print_lets_a_harmful_text_through(capsys: pytest.CaptureFixture[str]) -> None:
    """A line, several lines, a text, a line on stderr, and a line that changes."""
    terminal.print_line(PLANT, (PLANT, "bold"))
    terminal.print_lines([(PLANT,)])
    terminal.print_to_stderr(PLANT)
    terminal.print_text(f"{PLANT.splitlines()[0]}\n")
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 3
    assert printed.err.count("\n") == 1
    assert_harmless(printed.out + printed.err)


def test_a_changing_line_shows_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the codes that erase the last line are ours."""
    terminal.draw_status(PLANT)
    assert_harmless(capsys.readouterr().err.removeprefix("\r\x1b[K"))


def test_a_harmful_line_has_no_style(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that is escaped as a whole has no place for codes; a usual line has its style."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal.print_line((PLANT, "bold"))
    assert_harmless(capsys.readouterr().out)
    terminal.print_line("a ", ("b", "bold"))
    assert capsys.readouterr().out == "a \x1b[1mb\x1b[0m\n"
