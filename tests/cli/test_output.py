"""Listings: a table for people, JSON and YAML for programs."""

import io
import json
import re
from argparse import ArgumentParser
from types import SimpleNamespace

import pytest
import yaml

from kubedevices.cli.shared.output import (
    Column,
    LiveListing,
    Row,
    add_output_argument,
    as_text,
    plain_table,
    print_document,
    print_listing,
)
from kubedevices.host import terminal as terminal_module

ROWS: list[Row] = [
    {"id": "w0", "health": "Healthy", "numa": (0, 1), "env": {"A": "1"}, "note": None},
    {"id": "w10", "health": "Unhealthy", "numa": (), "env": {}, "note": "x" * 150},
]
COLUMNS = [
    Column("id"),
    Column("health"),
    Column("numa", "NUMA", right=True),
    Column("env", text=lambda env: f"{len(env)} variables"),
    Column("note"),
]


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let stdout be a terminal of 80 columns that can show colours."""
    screen = Terminal()
    # Not sys.stdout itself: pytest puts its own there when the test begins.
    streams = SimpleNamespace(stdout=screen, stderr=io.StringIO())
    monkeypatch.setattr(terminal_module, "sys", streams)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_a_piped_table_is_plain_aligned_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    """No colour, no boxes, nothing cut off however long, no blanks at the end of a line."""
    print_listing(ROWS, COLUMNS, "table")
    assert capsys.readouterr().out == (
        "ID   HEALTH     NUMA  ENV          NOTE\n"
        "w0   Healthy     0,1  1 variables  -\n"
        f"w10  Unhealthy     -  0 variables  {'x' * 150}\n"
    )


def test_a_cell_never_breaks_its_line() -> None:
    """Whatever a foreign plugin puts into an ID: escape sequences stay text too."""
    shown = plain_table([{"id": "ä\nb\r\x1b[2J"}], [Column("id")])
    assert shown == "ID\nä\\nb\\r\\x1b[2J\n"


def test_a_table_on_a_terminal_has_colours(terminal: Terminal) -> None:
    """Green for healthy, red for unhealthy, and still nothing cut off."""
    print_listing(ROWS, COLUMNS, "table")
    shown = terminal.getvalue()
    assert "\x1b[32mHealthy" in shown
    assert "\x1b[1;31mUnhealthy" in shown
    assert shown.count("x") == 150


def test_a_table_that_is_too_wide_is_grouped(terminal: Terminal) -> None:
    """By its first column; every row stays one line, however long."""
    rows = [{"kind": kind, "id": f"d{i}", "note": "y" * 74} for kind in "ab" for i in range(2)]
    print_listing(rows, [Column("kind"), Column("id"), Column("note")], "table")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["a", "d0", "d1", "b", "d0", "d1"]
    assert max(map(len, lines[:2])) <= 80
    assert lines[3] == "  d0  " + "y" * 74


def test_a_narrow_terminal_gets_the_long_cells_below_their_row(terminal: Terminal) -> None:
    """Several columns become headings; what is empty in all rows is left out."""
    rows = [{"kind": "a", "driver": "g", "id": f"d{i}", "note": "y" * 78 * i} for i in range(2)]
    columns = [*map(Column, ("kind", "driver", "id", "none")), Column("note", below=True)]
    print_listing(rows, columns, "table", headings=2)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert lines == ["  ID", "  ──", "a  g", "  d0", "  d1", f"    note: {'y' * 78}"]


def test_a_last_column_of_prose_breaks_between_words(terminal: Terminal) -> None:
    """Below its first line; beside a wide ID, which becomes a heading, it has the room."""
    for id_, rest in (("id", 74), ("i" * 70, 78)):
        terminal.truncate(0)
        print_listing(
            [{"id": id_, "rule": "word " * 30}], [Column("id"), Column("rule", prose=True)], "table"
        )
        lines = re.sub(r"\x1b\[[0-9;]*m|\0", "", terminal.getvalue()).splitlines()
        assert max(map(len, lines)) <= 80
        assert sum(line.count("word") for line in lines) == 30
        assert sum(rest - 10 < len(line.strip()) <= rest for line in lines if "word" in line) >= 1


def test_control_characters_are_escaped(terminal: Terminal) -> None:
    """Escape sequences of a foreign plugin stay text."""
    print_listing([{"id": "a\x1b[2Jb"}], [Column("id")], "table")
    assert "a\\x1b[2Jb" in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()


def test_no_color_is_honoured(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://no-color.org"""
    monkeypatch.setenv("NO_COLOR", "1")
    print_listing(ROWS, COLUMNS, "table")
    assert "Healthy" in terminal.getvalue()
    assert "[32m" not in terminal.getvalue()
    assert "31m" not in terminal.getvalue()


@pytest.mark.parametrize(("term", "expected"), [("dumb", "ID\n"), ("xterm", "\x1b[1mID\x1b[0m\n")])
def test_a_dumb_terminal_gets_no_colour(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, term: str, expected: str
) -> None:
    """An editor's shell, for example, would show the codes."""
    monkeypatch.setenv("TERM", term)
    print_listing(ROWS, COLUMNS[:1], "table")
    assert terminal.getvalue().startswith(expected)


@pytest.mark.parametrize("format_", ["json", "yaml"])
def test_json_and_yaml_have_the_unchanged_rows(
    format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys in their order, no columns left out, also when there are none."""
    print_listing(ROWS, COLUMNS[:1], format_)
    shown = capsys.readouterr().out
    expected = json.loads(json.dumps(ROWS))
    assert yaml.safe_load(shown) == expected
    assert shown.index("id") < shown.index("health") < shown.index("note")
    print_listing([], COLUMNS, format_)
    assert yaml.safe_load(capsys.readouterr().out) == []


def test_a_document_replaces_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the data is not flat; text stays readable."""
    print_listing(ROWS, COLUMNS, "json", document={"räume": []})
    assert capsys.readouterr().out == '{\n  "räume": []\n}\n'
    print_document({"räume": ("a", 1)}, "yaml")
    assert capsys.readouterr().out == "räume:\n- a\n- 1\n"


def test_an_empty_table_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that reads stdout gets nothing."""
    print_listing([], COLUMNS, "table", empty="no devices here")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "no devices here\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), ("", "-"), ([], "-"), ({}, "-"), (0, "0"), (False, "False"), ("a", "a"),
        ((1, 2), "1,2"), ({"a": 1, "b": 2}, "a=1,b=2"),
    ],
)  # fmt: skip
def test_values_have_a_short_text(value: object, text: str) -> None:
    """A dash for nothing, but zero is something."""
    assert as_text(value) == text


def test_the_format_is_an_option() -> None:
    """`-o` with three choices."""
    parser = ArgumentParser()
    add_output_argument(parser)
    assert parser.parse_args([]).output == "table"
    assert parser.parse_args(["-o", "yaml"]).output == "yaml"


def test_a_piped_live_listing_appends_changed_states(capsys: pytest.CaptureFixture[str]) -> None:
    """A state that looks like the one before is not repeated."""
    with LiveListing([Column("id")], "table", empty="nobody here") as listing:
        for rows in ([], [], ROWS[:1], ROWS[:1], ROWS):
            listing.show(rows, caption=f"{len(rows)} devices")
    assert capsys.readouterr().out == (
        "# 0 devices\nnobody here\n\n# 1 devices\nID\nw0\n\n# 2 devices\nID\nw0\nw10\n"
    )


def test_a_live_listing_in_json_is_one_document_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For `jq` and the like."""
    with LiveListing([Column("id")], "json") as listing:
        listing.show([{"id": "a"}])
        listing.show([{"id": "a"}])
        listing.show([{"id": "b"}], document={"all": ["b"]})
    assert capsys.readouterr().out == '[{"id": "a"}]\n{"all": ["b"]}\n'


def test_a_live_listing_in_yaml_is_one_document_each(capsys: pytest.CaptureFixture[str]) -> None:
    """A stream that any YAML reader takes."""
    with LiveListing([Column("id")], "yaml") as listing:
        listing.show([{"id": "a"}])
        listing.show([{"id": "b"}])
    shown = capsys.readouterr().out
    assert list(yaml.safe_load_all(shown)) == [[{"id": "a"}], [{"id": "b"}]]


def test_a_live_listing_on_a_terminal_is_redrawn(terminal: Terminal) -> None:
    """The cursor goes up and the lines are overwritten, not appended."""
    with LiveListing(COLUMNS[:2], "table") as listing:
        listing.show([])
        listing.show(ROWS[:1], caption="one device")
        before = len(terminal.getvalue())
        listing.show(ROWS, caption="two devices")
        redrawn = terminal.getvalue()[before:]
    assert "nothing yet" in terminal.getvalue()
    assert redrawn.startswith("\x1b[1A\x1b[2K" * 4), "heading, rule, row and caption"
    assert redrawn.count("\x1b[1A") == 4
    assert "two devices" in redrawn
    assert terminal.getvalue().endswith("\x1b[?25h"), "the cursor is back"


def test_a_live_listing_stays_within_the_screen(terminal: Terminal) -> None:
    """What scrolled away could not be overwritten; a line that wraps takes two."""
    rows = [{"id": f"d{number}" + "x" * 100} for number in range(100)]
    with LiveListing([Column("id")], "table") as listing:
        listing.show(rows, caption="many")
        listing.show(rows[:1])
    shown = terminal.getvalue()
    assert "… and 83 more lines" in shown
    assert shown.count("\x1b[1A") == 38
