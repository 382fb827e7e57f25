"""Prints the listings of all verbs: as a table for people, as JSON or YAML for programs.

On a terminal, a table has a line below its heading, and colours. In a pipe, it is aligned text that
is never shortened. JSON and YAML print the rows unchanged, so the keys of a row must stay stable:
each verb documents its keys. PyYAML is imported only when it is needed.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from kubedevices.errors import safe_text
from kubedevices.errors.safe_text import one_line
from kubedevices.host import terminal
from kubedevices.host.terminal import Line, print_lines, print_text, print_to_stderr

FORMATS = ("table", "json", "yaml")

Row = Mapping[str, Any]

_NOTHING = "-"
_GAP = "  "
_STYLES = {"Healthy": "green", "Unhealthy": "bold red"}


class Column(NamedTuple):
    """One column: the key in a row, the heading, and a function that returns a value as text.
    On a terminal a cell whose text is `Healthy` or `Unhealthy` has a colour. If the terminal is too
    narrow, a cell of a column with `below` is a line below its row, and a last column of `prose`
    has several lines.
    """

    key: str
    title: str = ""
    text: Callable[[Any], str] | None = None
    right: bool = False
    below: bool = False
    prose: bool = False

    @property
    def heading(self) -> str:
        """The title, by default the key in capitals."""
        return self.title or self.key.replace("_", " ").upper()

    def cell(self, row: Row) -> str:
        """Return the text of this column in `row`."""
        value = row.get(self.key)
        return self.text(value) if self.text else as_text(value)


def add_output_argument(parser: argparse._ActionsContainer) -> None:
    """Add `-o table|json|yaml` as `args.output`."""
    parser.add_argument(
        "-o", "--output", choices=FORMATS, default="table", help="table (default), json or yaml"
    )


def option_lines(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a container gets: the kind and the text of each variable, device and mount."""
    for name, value in options["env"].items():
        yield "env", f"{name}={value}"
    for device in options["devices"]:
        path = path_as_text(device["host_path"], device["container_path"])
        yield "device", f"{path} ({device['permissions']})"
    for mount in options["mounts"]:
        path = path_as_text(mount["host_path"], mount["container_path"])
        yield "mount", f"{path} ({'ro' if mount['read_only'] else 'rw'})"


def as_text(value: Any) -> str:
    """Return `value` as text for a table: lists with commas, an empty value as a dash."""
    if value is None or value in ("", (), [], {}):
        return _NOTHING
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(map(str, value))
    return str(value)


def joined(texts: Iterable[str]) -> str:
    """Return texts with commas between them, a dash for none."""
    return ", ".join(texts) or _NOTHING


def path_as_text(host_path: str, container_path: str) -> str:
    """Return a path of the host, with the path in the container if that is different."""
    return host_path if container_path == host_path else f"{host_path} -> {container_path}"


def print_listing(
    rows: Iterable[Row],
    columns: Sequence[Column],
    output: str,
    *,
    document: Any = None,
    empty: str = "nothing to list",
    headings: int = 1,
) -> None:
    """Print `rows`: as a table of `columns`, or as the list of `rows` in JSON or YAML.

    `document` replaces the list of rows in JSON and YAML if the data is nested. `empty` is printed
    on stderr instead of a table without rows. The first columns, at most `headings`, become
    headings between the rows if a terminal is too narrow.
    """
    rows = [*rows]
    if output != "table":
        print_document(rows if document is None else document, output)
    elif not rows:
        print_to_stderr(empty)
    elif terminal.is_terminal():
        print_lines(_laid_out(rows, columns, headings))
    else:
        print_text(plain_table(rows, columns))


def print_document(document: Any, output: str) -> None:
    """Print one value as JSON or YAML."""
    if output != "json":
        print_text(dump(document, output))
        return
    for part in safe_text.json_parts(document, ascii_only=not terminal.is_utf8()):
        print_text(part)
    print_text("\n")


def dump(document: Any, output: str) -> str:
    """Return `document` as indented JSON or as YAML, keys in the order they were given."""
    if output == "json":
        return json_text(document, indent=2) + "\n"
    import yaml

    as_json = json.dumps(document, ensure_ascii=False)
    dumped: str = yaml.dump(
        json.loads(as_json),  # tuples and read-only mappings become YAML's own
        Dumper=_yaml_dumper(lambda text: None if safe_text.is_safe(text) else '"'),
        sort_keys=False,
        # The library would print some characters as they are that are no letters.
        allow_unicode=terminal.is_utf8() and as_json.isprintable(),
        default_flow_style=False,
        # A text that is folded could have any word at the start of a line.
        width=float("inf"),
    )
    return safe_text.escaped_yaml(dumped)


def print_schema(kind: type, title: str) -> None:
    """Print the JSON schema of a file of the user, for editors."""
    from kubedevices.config.json_schema import make_schema

    print_text(dump(make_schema(kind, title), "json"))


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Return `document` as JSON. Characters that stdout cannot encode become JSON escapes."""
    return safe_text.json_text(document, indent=indent, ascii_only=not terminal.is_utf8())


def manifest_yaml(documents: list[dict[str, Any]]) -> str:
    """Return Kubernetes objects as one YAML text that kubectl and Helm read like PyYAML.

    Strings of several lines become block scalars, which people can read.
    """
    import yaml

    dumper = _yaml_dumper(
        lambda text: "|" if "\n" in text else "'" if _is_ambiguous(text) else None
    )
    dumped = [
        yaml.dump(each, Dumper=dumper, sort_keys=False, default_flow_style=False)
        for each in documents
    ]
    return "---\n".join(dumped)


def _yaml_dumper(style_of: Callable[[str], str | None]) -> Any:
    """Return a dumper that writes no aliases, and each text in the style that it gets."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style_of(value))

    Dumper.add_representer(str, text)
    return Dumper


def _is_ambiguous(text: str) -> bool:
    """Whether kubectl or Helm read a text as true, false or a number, and PyYAML as text.

    For kubectl and Helm, `y` is true (YAML 1.1) and `1e3` is 1000 (YAML 1.2).
    """
    if text in ("y", "Y", "n", "N"):
        return True
    number = "[-+]?([0-9][0-9_]*)?[.]?[0-9_]*([eE][-+]?[0-9]+)?|0o[0-7]+"
    return re.fullmatch(number, text) is not None


def plain_table(rows: Iterable[Row], columns: Sequence[Column]) -> str:
    """Return aligned columns as plain text; a line break in a cell is escaped."""
    return "".join(_GAP.join(cells).rstrip() + "\n" for cells in _aligned(rows, columns))


def _aligned(rows: Iterable[Row], columns: Sequence[Column]) -> list[list[str]]:
    """Return the cells of the heading and of each row, each as wide as its column."""
    table = [[column.heading for column in columns]]
    table += [[one_line(column.cell(row)) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    return [
        [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(cells, widths, columns, strict=True)
        ]
        for cells in table
    ]


class LiveListing:
    """A listing that changes: a terminal shows the last state, a pipe gets every state.

    Use it as a context manager and call `show` with every new state. In a pipe, a state with the
    same text as the state before is not repeated; JSON is one line per state, YAML one document.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        output: str,
        *,
        empty: str = "nothing yet",
        headings: int = 0,
    ) -> None:
        self._columns, self._output, self._empty = columns, output, empty
        self._headings = headings
        self._is_live, self._drawn = output == "table" and terminal.is_terminal(), 0
        self._last = ""

    def __enter__(self) -> Self:
        if self._is_live:
            terminal.hide_cursor()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_live:
            terminal.show_cursor()

    def show(self, rows: Iterable[Row], *, document: Any = None, caption: str = "") -> None:
        """Show this state; `caption` stands under the table on a terminal, above it in a pipe."""
        rows = [*rows]
        if self._is_live:
            lines = _laid_out(rows, self._columns, self._headings) if rows else [(self._empty,)]
            self._redraw(lines, caption)
            return
        state = self._render(rows, document)
        if state == self._last:
            return
        heading = f"# {one_line(caption)}\n" if caption and self._output == "table" else ""
        gap = "\n" if self._last and self._output == "table" else ""
        print_text(gap + heading + state, flush=True)
        self._last = state

    def _redraw(self, lines: Sequence[Line], caption: str) -> None:
        """Replace the last drawn lines by `lines`; without room, the last line counts the rest."""
        columns, height = terminal.size()

        def rows_of(*several: Line) -> int:
            return sum(-(-_width_of(each) // columns) or 1 for each in several)

        room, shown = height - 2 - rows_of((caption,)), list[Line]()
        for number, line in enumerate(lines):
            room -= rows_of(line)
            if room < 0:
                shown.append(((f"… and {len(lines) - number} more lines", "dim"),))
                break
            shown.append(line)
        shown += [((one_line(caption), "dim"),)] if caption else []
        terminal.redraw(self._drawn, shown)
        self._drawn = rows_of(*shown)

    def _render(self, rows: list[Row], document: Any) -> str:
        document = rows if document is None else document
        if self._output == "json":
            return json_text(document) + "\n"
        if self._output == "yaml":
            return "---\n" + dump(document, "yaml")
        return plain_table(rows, self._columns) if rows else f"{one_line(self._empty)}\n"


def _laid_out(rows: Sequence[Row], columns: Sequence[Column], headings: int) -> list[Line]:
    """Return the table for a terminal.

    If it is too wide, its first columns become headings between the rows, and then columns with
    `below` lines below the rows. If it is still too wide, the terminal wraps whole lines. Such
    lines can be read and copied; a table with wrapped cells cannot.
    """
    room, _ = terminal.size()
    shown = _wrapped(_draw(rows, columns), columns)
    if max(map(_width_of, shown)) > room:
        columns = [
            each
            for at, each in enumerate(columns)
            if at < headings or any(each.cell(row) != _NOTHING for row in rows)
        ]
        shown = _draw(rows, columns)
    for number in range(1, min(headings, len(columns) - 1) + 1):
        if max(map(_width_of, shown)) > room:
            shown = _draw_below_headings(rows, columns[:number], columns[number:])
    if max(map(_width_of, shown)) > room and any(each.below for each in columns):
        shown = _draw_below_headings(rows, columns[:headings], columns[headings:], is_narrow=True)
    return _wrapped(shown, columns)


def _wrapped(lines: list[Line], columns: Sequence[Column]) -> list[Line]:
    """Wrap a last column of prose: its other lines stand below the first."""
    if not columns[-1].prose:
        return lines
    shown = list[Line]()
    for *before, last in lines:
        indent = _width_of(before)
        first, *others = terminal.wrapped(terminal.plain([last]), indent)
        shown += [(*before, first if others else last), *((" " * indent, one) for one in others)]
    return shown


def _draw_below_headings(
    rows: Sequence[Row],
    above: Sequence[Column],
    columns: Sequence[Column],
    *,
    is_narrow: bool = False,
) -> list[Line]:
    below = [each for each in columns if each.below] if is_narrow else []
    heading, rule, *lines = _draw(rows, [each for each in columns if each not in below])
    room, _ = terminal.size()
    shown: list[Line] = [("  ", *heading), (f"  {terminal.plain(rule)[: room - 2]}",)]
    last = None
    for row, line in zip(rows, lines, strict=True):
        title = one_line(_GAP.join(each.cell(row) for each in above))
        if title != last:
            shown.append((title,))
        last = title
        shown.append(("  ", *line))
        cells = ((each.heading.lower(), one_line(each.cell(row))) for each in below)
        shown += [(f"    {name}: {cell}",) for name, cell in cells if cell != _NOTHING]
    return shown


def _draw(rows: Sequence[Row], columns: Sequence[Column]) -> list[Line]:
    """Return two lines for the heading, then a line per row; they may be wider than the screen."""
    heading, *lines = _aligned(rows, columns)
    room, _ = terminal.size()
    title = _GAP.join(heading)
    drawn: list[Line] = [((title.rstrip(), "bold"),), ("─" * min(len(title), room),)]
    above = ""
    for cells in lines:
        # A first cell equal to the cell above is dim. Blanks at the end of a line would make a
        # narrow terminal wrap the line.
        first = "dim" if cells[0] == above else ""
        shown = [_styled_cell(cell, "" if at else first) for at, cell in enumerate(cells)]
        above, shown[-1] = cells[0], _styled_cell(cells[-1].rstrip(), "")
        drawn.append([part for each in shown for part in (each, _GAP)][:-1])
    return drawn


def _width_of(line: Line) -> int:
    return len(terminal.plain(line))


def _styled_cell(cell: str, style: str) -> tuple[str, str]:
    return cell, _STYLES.get(cell.strip(), style)
