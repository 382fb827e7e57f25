"""The report as Markdown, for the summary of a CI job or a comment on a change.

The report contains output of the plugin. All of it is escaped, so that this output cannot become a
link, a picture or a heading.
"""

import re
from collections.abc import Iterable
from html import escape

from kubedevices import __version__
from kubedevices.check.report.summary import CheckFinding, Run, happened
from kubedevices.errors.safe_text import one_line

_SIGNS = {"fail": "❌", "warn": "⚠️"}
_LONGEST = 1500
"""Characters of one text in the report; GitHub shows no summary above 1 MiB."""
_MARKS = re.compile(r"([\\`*_\[\]()#|~@!:])")


def as_markdown(run: Run) -> str:
    """Return the text of the file."""
    lines = [f"## kubedevices check: {'failed' if run.fails else 'passed'}", ""]
    lines += [_text(run.verdict()), ""]
    lines += [f"- {_text(line)}" for line in run.remarks()]
    lines += [f"- {_text(group.title)}" for group in run.groups if group.title]
    if run.findings:
        lines += ["", "| | Check | What happened |", "|---|---|---|"]
        lines += [_row(run, finding) for finding in run.findings]
    for finding in run.findings:
        lines += ["", *_details(run, finding)]
    about = {"plugin": run.plugin, **run.about, "kubedevices": __version__}
    lines += ["", *_folded("About this run", about.items())]
    return "\n".join(lines) + "\n"


def _row(run: Run, finding: CheckFinding) -> str:
    sign = _SIGNS[finding.status.value]
    known = " (known)" if run.is_known(finding) else ""
    words = _text(happened(finding))
    return f"| {sign} {finding.status.value}{known} | `{finding.check.id}` | {words} |"


def _details(run: Run, finding: CheckFinding) -> list[str]:
    return _folded(f"{finding.status.value} {finding.check.id}", run.words_about(finding))


def _folded(title: str, words: Iterable[tuple[str, str]]) -> list[str]:
    rows = [f"| {escape(name)} | {_text(text)} |" for name, text in words]
    return [
        f"<details><summary>{escape(title)}</summary>",
        "",
        "| | |",
        "|---|---|",
        *rows,
        "",
        "</details>",
    ]


def _text(text: str) -> str:
    """Return `text` escaped for one cell of a Markdown table."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
    safe = map(one_line, cut.split("\n"))
    return "<br>".join(_MARKS.sub(r"\\\1", escape(line, quote=False)) for line in safe)
