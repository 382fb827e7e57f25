"""How lists are printed: a table for people, JSON and YAML for programs. For every listing verb.

On a terminal a table is drawn by rich, with health in colour; into a pipe it is plain aligned
text, never shortened. JSON and YAML print the rows as they are, so the keys of a row are a
promise: each verb documents its own. rich and PyYAML are imported when they are needed.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

FORMATS = ("table", "json", "yaml")

Row = Mapping[str, Any]

_NOTHING = "-"
_UNLIMITED = 10_000
_TRAILING_BLANKS = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$")
_STYLES = {"Healthy": "green", "Unhealthy": "bold red"}


class Column(NamedTuple):
    """One column: the key of the row, its heading, how its value becomes text.

    A cell whose text is `Healthy` or `Unhealthy` gets its colour by itself; `style` is rich's word
    for anything else.
    """

    key: str
    title: str = ""
    text: Callable[[Any], str] | None = None
    style: str = ""
    right: bool = False

    @property
    def heading(self) -> str:
        """The title, by default the key in capitals."""
        return self.title or self.key.replace("_", " ").upper()

    def cell(self, row: Row) -> str:
        """Return the text of this column in `row`."""
        value = row.get(self.key)
        return self.text(value) if self.text else as_text(value)


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """Add `-o table|json|yaml` as `args.output`."""
    parser.add_argument(
        "-o", "--output", choices=FORMATS, default="table", help="table (default), json or yaml"
    )


def as_text(value: Any) -> str:
    """Return what stands in a table for `value`: lists with commas, nothing as a dash."""
    if value is None or value in ("", (), [], {}):
        return _NOTHING
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(map(str, value))
    return str(value)


def print_listing(
    rows: Iterable[Row],
    columns: Sequence[Column],
    output: str,
    *,
    document: Any = None,
    empty: str = "nothing to list",
) -> None:
    """Print `rows`: as a table of `columns`, or as the list of `rows` in JSON or YAML.

    `document` replaces the list of rows in JSON and YAML, where the data is not flat. `empty` is
    said on stderr when a table would have no row.
    """
    rows = [*rows]
    if output != "table":
        sys.stdout.write(dump(rows if document is None else document, output))
    elif not rows:
        print(empty, file=sys.stderr)
    elif is_terminal():
        _print_on_terminal(rows, columns)
    else:
        sys.stdout.write(plain_table(rows, columns))


def print_document(document: Any, output: str) -> None:
    """Print one value as JSON or YAML."""
    sys.stdout.write(dump(document, output))


def dump(document: Any, output: str) -> str:
    """Return `document` as indented JSON or as YAML, keys in the order they were given."""
    if output == "json":
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    import yaml

    plain = json.loads(json.dumps(document))  # tuples and read-only mappings become YAML's own
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text


def plain_table(rows: Iterable[Row], columns: Sequence[Column]) -> str:
    """Return aligned columns without any decoration; a cell with a line break stays in its line."""
    table = [[column.heading for column in columns]]
    table += [[one_line(column.cell(row)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    lines = []
    for line in table:
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


class LiveListing:
    """A listing that changes: redrawn on a terminal, appended when piped.

    Use it as a context manager and call `show` with every new state. Piped, a state that prints
    like the one before is not repeated; JSON comes one document per line, YAML one document each.
    """

    def __init__(
        self, columns: Sequence[Column], output: str, *, empty: str = "nothing yet"
    ) -> None:
        self._columns, self._output, self._empty = columns, output, empty
        self._live: Live | None = None
        self._last = ""

    def __enter__(self) -> Self:
        if self._output == "table" and is_terminal():
            from rich.live import Live

            self._live = Live(console=_console(), auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    def show(self, rows: Iterable[Row], *, document: Any = None, caption: str = "") -> None:
        """Show this state; `caption` stands under the table on a terminal, above it in a pipe."""
        rows = [*rows]
        if self._live:
            from rich.text import Text

            shown = _rich_table(rows, self._columns, caption) if rows else Text(self._empty)
            self._live.update(shown, refresh=True)
            return
        state = self._render(rows, document)
        if state == self._last:
            return
        heading = f"# {caption}\n" if caption and self._output == "table" else ""
        gap = "\n" if self._last and self._output == "table" else ""
        sys.stdout.write(gap + heading + state)
        sys.stdout.flush()
        self._last = state

    def _render(self, rows: list[Row], document: Any) -> str:
        document = rows if document is None else document
        if self._output == "json":
            return json.dumps(document, ensure_ascii=False) + "\n"
        if self._output == "yaml":
            return "---\n" + dump(document, "yaml")
        return plain_table(rows, self._columns) if rows else f"{self._empty}\n"


def _print_on_terminal(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Draw the table; one that is too wide says its first column as headings between the rows.

    If that is not narrow enough, the terminal wraps whole lines, which can be read and copied
    where a table with wrapped cells can not.
    """
    room = _console().width
    if len(columns) > 1 and _natural_width(rows, columns) > room:
        heading, rule, *lines = _draw(rows, columns[1:])
        shown = [f"  {heading}", f"  {rule[: room - 2]}"]
        above = None
        for row, line in zip(rows, lines, strict=True):
            title = one_line(columns[0].cell(row))
            if title != above:
                shown.append(title)
            above = title
            shown.append(f"  {line}")
    else:
        shown = _draw(rows, columns)
    sys.stdout.write("".join(line + "\n" for line in shown))


def _natural_width(rows: Sequence[Row], columns: Sequence[Column]) -> int:
    console = _console()
    options = console.options.update(width=_UNLIMITED)
    width: int = console.measure(_rich_table(rows, columns), options=options).maximum
    return width


def _draw(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """Return a line per row after two for the heading, as wide as they need to be."""
    console = _console(width=_natural_width(rows, columns))
    with console.capture() as drawn:
        console.print(_rich_table(rows, columns))
    # Blanks at the end would make a narrow terminal wrap a line for nothing.
    return [_TRAILING_BLANKS.sub(r"\1", line) for line in drawn.get().splitlines()]


def is_terminal() -> bool:
    """Whether a person reads along; where rich was left out, as in our image, nothing is drawn."""
    return sys.stdout.isatty() and find_spec("rich") is not None


def print_styled(*parts: str | tuple[str, str]) -> None:
    """Print one line of texts and of (text, style); the styles are for a terminal only."""
    if is_terminal():
        from rich.text import Text

        _console().print(Text.assemble(*parts), soft_wrap=True)
        return
    sys.stdout.write("".join(part if isinstance(part, str) else part[0] for part in parts) + "\n")


def _console(width: int | None = None) -> Any:
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)


def _rich_table(rows: Iterable[Row], columns: Sequence[Column], caption: str = "") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
        caption=caption or None,
    )
    table.caption_justify = "left"
    for column in columns:
        # "fold" wraps a long cell: nothing is ever cut off
        table.add_column(
            column.heading, overflow="fold", justify="right" if column.right else "left"
        )
    above = ""
    for row in rows:
        cells = [one_line(column.cell(row)) for column in columns]
        styles = [
            _STYLES.get(cell, column.style) for cell, column in zip(cells, columns, strict=True)
        ]
        if cells[0] == above:  # what is said again steps back
            styles[0] = styles[0] or "dim"
        above = cells[0]
        table.add_row(*map(Text, cells, styles))
    return table


def one_line(text: str) -> str:
    """Return `text` with escapes for what would break the line or play tricks on a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
