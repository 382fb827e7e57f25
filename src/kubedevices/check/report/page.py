"""The report as one HTML page that needs no other file, for a bug report or a CI artefact."""

import html

from kubedevices import __version__
from kubedevices.check.report.summary import CheckFinding, FindingGroup, Run
from kubedevices.check.results import CheckResult
from kubedevices.check.shared_state import Log
from kubedevices.errors.safe_text import lines

_STYLE = """
:root { --ink:#1d2433; --soft:#5b6472; --line:#dfe3e8; --back:#f6f7f9; --card:#fff;
  --pass:#1a7f4b; --warn:#9a6700; --fail:#c4272e; --skip:#7a828e; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6e9ee; --soft:#9aa4b2; --line:#2d3440;
  --back:#12161c; --card:#1a2029; --pass:#4cc38a; --warn:#e3b341; --fail:#ff6b6b;
  --skip:#8b949e; } }
* { box-sizing:border-box }
body { margin:0; background:var(--back); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif }
main { max-width:1040px; margin:0 auto; padding:32px 24px 64px }
h1 { font-size:22px; margin:0 } h2 { font-size:16px; margin:36px 0 10px }
code, .id, pre { font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace; font-size:13px }
.command { color:var(--soft); margin:4px 0 20px; overflow-wrap:anywhere }
.chips { display:flex; gap:10px; flex-wrap:wrap; margin:0 0 12px }
.chip { background:var(--card); border:1px solid var(--line); border-radius:8px;
  padding:8px 16px; color:var(--soft) }
.chip b { display:block; font-size:22px; line-height:1.2 }
.pass { color:var(--pass) } .warn { color:var(--warn) }
.fail { color:var(--fail) } .skip, .note { color:var(--skip) }
pre { white-space:pre-wrap; overflow-wrap:anywhere }
.finding { background:var(--card); border:1px solid var(--line); border-left:4px solid;
  border-radius:8px; padding:14px 18px; margin:0 0 14px }
.finding h3 { margin:0 0 10px; font-size:15px }
.finding dl, dl.about { display:grid; grid-template-columns:90px 1fr; gap:4px 14px; margin:0;
  color:var(--ink) }
dt { color:var(--soft) } dd { margin:0; overflow-wrap:anywhere; white-space:pre-line }
table { width:100%; border-collapse:collapse; background:var(--card);
  border:1px solid var(--line); border-radius:8px; overflow:hidden }
td { padding:6px 12px; border-top:1px solid var(--line); vertical-align:top;
  overflow-wrap:anywhere }
tr:first-child td { border-top:0 } td.status { width:64px; font-weight:600 }
td.id { width:290px } td.resource { width:200px; color:var(--soft) }
details summary { cursor:pointer; list-style:none } details p { margin:4px 0; color:var(--soft) }
footer { margin-top:40px; color:var(--soft); font-size:13px }
@media (max-width:700px) { td.resource { display:none } td.id { width:auto } }
"""


def as_page(run: Run, when: str) -> str:
    """Return the text of the page."""
    chips = "".join(
        f'<div class="chip"><b class="{status}">{count}</b>{status}</div>'
        for status, count in run.counts.items()
    )
    findings = "".join(_group(run, each) for each in run.groups)
    about = "".join(
        f"<dt>{escape(title)}</dt><dd>{escape(text)}</dd>" for title, text in run.about.items()
    )
    logs = "".join(_log(log) for log in run.logs)
    remarks = "".join(f"<p>{escape(line)}</p>" for line in run.remarks())
    themes = "".join(
        f"<h2>{escape(title)}</h2><table>{''.join(_row(run, each) for each in results)}</table>"
        for title, results in run.by_theme()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>kubedevices check: {escape(run.plugin)}</title><style>{_STYLE}</style></head>
<body><main>
<h1>Is this {"DRA driver" if run.kind == "driver" else "device plugin"} well behaved?</h1>
<p class="command"><code>{escape(run.plugin)}</code></p>
<div class="chips">{chips}</div>
<p>{escape(run.verdict())}</p>
{remarks}
{f"<h2>Findings</h2>{findings}" if findings else ""}
{themes}
{f"<h2>About this run</h2><dl class='about'>{about}</dl>" if about else ""}
{f"<h2>What the plugin printed</h2>{logs}" if logs else ""}
<footer>kubedevices {escape(__version__)}, {escape(when)}</footer>
</main></body></html>
"""


def _log(log: Log) -> str:
    started = escape(f"started for {log.check}, {log.ended}")
    return f"<details><summary>{started}</summary><pre>{escape(log.text)}</pre></details>"


def _group(run: Run, group: FindingGroup) -> str:
    title = f"<h3>{escape(group.title)}</h3>" if group.title else ""
    return title + "".join(_finding(run, group, each) for each in group.findings)


def _finding(run: Run, group: FindingGroup, finding: CheckFinding) -> str:
    status = finding.status.value
    of = f" · {escape(', '.join(finding.resources))}" if len(run.resources) > 1 else ""
    words = "".join(
        f"<dt>{escape(title)}</dt><dd>{escape(text)}</dd>"
        for title, text in run.words_in(group, finding)
    )
    return (
        f'<section class="finding {status}"><h3>{status} <span class="id">'
        f"{escape(finding.check.id)}</span>{of}</h3><dl>{words}</dl></section>"
    )


def _row(run: Run, result: CheckResult) -> str:
    status = result.status.value
    several = len(run.resources) > 1
    resource = f'<td class="resource">{escape(result.resource)}</td>' if several else ""
    return (
        f'<tr><td class="status {status}">{status}</td>'
        f'<td class="id"><details><summary>{escape(result.check.id)}</summary>'
        f"<p>{escape(result.check.rule)}</p></details></td>"
        f"{resource}<td>{escape(result.verdict.evidence)}</td></tr>"
    )


def escape(text: str) -> str:
    """Return `text` for the page: no tags, and no characters that hide or reverse other text."""
    return html.escape(lines(text))
