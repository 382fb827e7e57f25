"""The report for a terminal or a pipe: a table by theme, then each finding explained."""

import sys
from collections.abc import Iterator
from textwrap import wrap

from kubedevices import terminal
from kubedevices.conformance.report.summary import CheckFinding, Run
from kubedevices.conformance.results import CheckResult

STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "note": "dim"}
_TITLE_WIDTH = 10
_NARROWEST = 20


def print_report(run: Run) -> None:
    """Print the report to stdout: on a terminal with colours and wrapped, in a pipe plain."""
    sys.stdout.writelines(f"{line}\n" for line in report_lines(run, terminal.wrap_width()))


def report_lines(run: Run, width: int = 0) -> Iterator[str]:
    """Yield the lines of the report, wrapped to `width` columns; 0 means no wrapping."""
    columns = _columns(run)
    for title, results in run.by_theme():
        yield terminal.styled(title, "bold")
        for result in results:
            yield from _result_lines(_cells(run, result), columns, width)
        yield ""
    for finding in run.findings:
        status = terminal.styled(finding.status.upper(), STYLES[finding.status.value])
        yield f"{status} {finding.check.id}{terminal.styled(_of(run, finding), 'dim')}"
        for title, text in run.words_about(finding):
            first, *others = _wrapped(text, width - _TITLE_WIDTH - 4) or [""]
            yield f"  {terminal.styled(title.ljust(_TITLE_WIDTH), 'dim')}  {first}".rstrip()
            for line in others:
                yield " " * (_TITLE_WIDTH + 4) + line
        yield ""
    for line in run.remarks():
        yield terminal.styled(line, "dim")
    yield terminal.styled(run.verdict(), "bold")


def _result_lines(cells: list[str], columns: list[int], width: int) -> Iterator[str]:
    status, *names, evidence = cells
    style = STYLES[status]
    quiet = style if status in ("skip", "note") else ""
    head = [terminal.styled(status.ljust(columns[0]), style)]
    for name, column in zip(names, columns[1:], strict=False):
        head.append(terminal.styled(name.ljust(column), quiet))
    indent = sum(columns[:-1]) + 2 * len(columns)
    first, *others = _wrapped(evidence, width - indent) or [""]
    yield f"  {'  '.join(head)}  {terminal.styled(first, quiet)}".rstrip()
    for line in others:
        yield " " * indent + terminal.styled(line, quiet)


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of `text`, wrapped to `width`; not wrapped if `width` is very small."""
    lines = text.splitlines()
    if width < _NARROWEST:
        return lines
    return [part for line in lines for part in wrap(line, width, break_on_hyphens=False) or [""]]


def _cells(run: Run, result: CheckResult) -> list[str]:
    resource = [result.resource] if len(run.resources) > 1 else []
    return [result.status.value, result.check.id, *resource, _one_line(result.verdict.evidence)]


def _columns(run: Run) -> list[int]:
    rows = [_cells(run, result)[:-1] for result in run.results]
    return [max(map(len, column)) for column in zip(*rows, strict=True)] + [0]


def _of(run: Run, finding: CheckFinding) -> str:
    return f" ({', '.join(finding.resources)})" if len(run.resources) > 1 else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
