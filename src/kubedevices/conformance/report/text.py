"""The report for a terminal or a pipe: a table grouped by theme, then every finding explained."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from textwrap import indent

from kubedevices.conformance.board import Result
from kubedevices.conformance.report.summary import FindingOf, Run, words_about

STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "note": "dim"}
_TITLE_WIDTH = 10


def print_report(run: Run) -> None:
    """Print to stdout: with colours on a terminal, plain and never shortened into a pipe."""
    if sys.stdout.isatty() and find_spec("rich"):  # an image may come without it
        _print_rich(run)
    else:
        sys.stdout.writelines(f"{line}\n" for line in plain_lines(run))


def plain_lines(run: Run) -> Iterator[str]:
    """Yield the report line by line."""
    columns = _columns(run)
    for title, results in run.by_theme():
        yield title
        for result in results:
            yield (
                "  "
                + "  ".join(
                    cell.ljust(width)
                    for cell, width in zip(_cells(run, result), columns, strict=True)
                ).rstrip()
            )
        yield ""
    for finding in run.findings:
        yield f"{finding.status.upper()} {finding.check.id}{_of(run, finding)}"
        for title, text in words_about(finding):
            rest = indent(text, " " * (_TITLE_WIDTH + 4)).lstrip()
            yield f"  {title.ljust(_TITLE_WIDTH)}  {rest}"
        yield ""
    yield from run.remarks()
    yield run.verdict()


def _cells(run: Run, result: Result) -> list[str]:
    resource = [result.resource] if len(run.resources) > 1 else []
    return [result.status.value, result.check.id, *resource, _one_line(result.verdict.evidence)]


def _columns(run: Run) -> list[int]:
    rows = [_cells(run, result)[:-1] for result in run.results]
    return [max(map(len, column)) for column in zip(*rows, strict=True)] + [0]


def _of(run: Run, finding: FindingOf) -> str:
    return f" ({', '.join(finding.resources)})" if len(run.resources) > 1 else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _print_rich(run: Run) -> None:
    from rich.console import Console  # noqa: PLC0415  only where a person looks
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, markup=False, emoji=False)
    columns = _columns(run)
    for title, results in run.by_theme():
        console.print(Text(title, style="bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=2)
        for width in columns[:-1]:
            table.add_column(width=width, no_wrap=True)
        table.add_column(overflow="fold")
        for result in results:
            style = STYLES[result.status.value]
            status, *cells = _cells(run, result)
            quiet = style if result.status.value in ("skip", "note") else ""
            table.add_row("", Text(status, style=style), *(Text(c, style=quiet) for c in cells))
        console.print(table)
        console.print()
    for finding in run.findings:
        style = STYLES[finding.status.value]
        console.print(
            Text.assemble(
                (finding.status.upper(), style), f" {finding.check.id}", (_of(run, finding), "dim")
            )
        )
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=2)
        table.add_column(width=_TITLE_WIDTH)
        table.add_column(overflow="fold")
        for title, text in words_about(finding):
            table.add_row("", Text(title, style="dim"), Text(text))
        console.print(table)
        console.print()
    for line in run.remarks():
        console.print(Text(line, style="dim"))
    console.print(Text(run.verdict(), style="bold"))
