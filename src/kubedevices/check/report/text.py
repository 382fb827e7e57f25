"""The report for a terminal or a pipe: a table by theme, then each finding explained."""

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from kubedevices.check.report.summary import CheckFinding, FindingGroup, Run
from kubedevices.check.results import BLOCKED, CheckResult
from kubedevices.errors.safe_text import one_line
from kubedevices.host import terminal
from kubedevices.host.terminal import Line, Part

STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "note": "dim"}
_TITLE_WIDTH = 10
_MOST_ALIKE = 3
"""Of more checks that one failure blocks, only the number is shown; the other reports name them."""

_NARROWEST = 20


def print_report(run: Run) -> None:
    """Print the report to stdout: on a terminal with colours and wrapped, in a pipe plain."""
    terminal.print_lines(report_lines(run, terminal.wrap_width()))


def report_lines(run: Run, width: int = 0) -> Iterator[Line]:
    """Yield the lines of the report, wrapped to `width` columns; 0 means no wrapping."""
    columns = _columns(run)
    for title, results in run.by_theme():
        yield ((title, "bold"),)
        for status, alike in groupby(results, _why_blocked):
            rows = [_cells(run, each) for each in alike]
            if status and len(rows) > _MOST_ALIKE:
                names = [f"{len(rows)} checks", *[""] * (len(rows[0]) - 3)]
                rows = [["skip", *names, status]]
            for row in rows:
                yield from _result_lines(row, columns, width)
        yield ()
    for group in run.groups:
        if group.title:
            yield ((one_line(group.title), "bold"),)
        for finding in group.findings:
            yield from _finding_lines(run, group, finding, width)
    if run.requests:
        yield (("Requests to the API server", "bold"),)
        for what, times in sorted(run.requests.items(), key=lambda each: -each[1]):
            yield (f"  {times:>6}  {one_line(what)}",)
        yield ()
    for line in run.remarks():
        yield ((line, "dim"),)
    yield ((run.verdict(), "bold"),)


def _why_blocked(result: CheckResult) -> str:
    """Return why a check says nothing, empty for any other result."""
    evidence = result.verdict.evidence
    return one_line(evidence) if evidence.startswith(BLOCKED) else ""


def _finding_lines(
    run: Run, group: FindingGroup, finding: CheckFinding, width: int
) -> Iterator[Line]:
    status = (finding.status.upper(), STYLES[finding.status.value])
    yield (status, f" {finding.check.id}", (_of(run, finding), "dim"))
    for title, text in run.words_in(group, finding):
        first, *others = _wrapped(text, width - _TITLE_WIDTH - 4) or [""]
        yield ("  ", (title.ljust(_TITLE_WIDTH), "dim"), f"  {first}".rstrip())
        for line in others:
            yield (" " * (_TITLE_WIDTH + 4) + line,)
    yield ()


def _result_lines(cells: list[str], columns: list[int], width: int) -> Iterator[Line]:
    status, *names, evidence = cells
    style = STYLES[status]
    quiet = style if status in ("skip", "note") else ""
    head: list[Part] = ["  ", (status.ljust(columns[0]), style)]
    for name, column in zip(names, columns[1:], strict=False):
        head += ["  ", (name.ljust(column), quiet)]
    indent = sum(columns[:-1]) + 2 * len(columns)
    if width and width - indent < _NARROWEST:
        indent = columns[0] + 6
        first, others = "", _wrapped(evidence, width - indent)
    else:
        first, *others = _wrapped(evidence, width - indent) or [""]
    yield (*head, ("  " if first else "", ""), (first, quiet))
    for line in others:
        yield (" " * indent, (line, quiet))


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of `text`, wrapped to `width`; not wrapped if `width` is very small."""
    lines = [one_line(line) for line in text.split("\n")] if text else []
    if width < _NARROWEST:
        return lines
    return [part for line in lines for part in wrap(line, width, break_on_hyphens=False) or [""]]


def _cells(run: Run, result: CheckResult) -> list[str]:
    resource = [result.resource] if len(run.resources) > 1 else []
    evidence = one_line(" ".join(result.verdict.evidence.split()))
    return [result.status.value, result.check.id, *map(one_line, resource), evidence]


def _columns(run: Run) -> list[int]:
    rows = [_cells(run, result)[:-1] for result in run.results]
    return [max(map(len, column)) for column in zip(*rows, strict=True)] + [0]


def _of(run: Run, finding: CheckFinding) -> str:
    return f" ({one_line(', '.join(finding.resources))})" if len(run.resources) > 1 else ""
