"""Reports: the same results as text, JSON, JUnit and HTML."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from kubedevices.check.check import Harm, Phase, PluginCheck, Severity, Status, Verdict
from kubedevices.check.report.document import as_document
from kubedevices.check.report.expected import Expected, load_expected
from kubedevices.check.report.junit import as_junit
from kubedevices.check.report.markdown import as_markdown
from kubedevices.check.report.page import as_page
from kubedevices.check.report.summary import Run
from kubedevices.check.report.text import print_report, report_lines
from kubedevices.check.results import BLOCKED, CheckResult
from kubedevices.check.shared_state import Log
from kubedevices.errors import ConfigError
from kubedevices.host.terminal import plain


def plain_lines(run: Run) -> list[str]:
    """Return the lines of a report as a pipe gets them."""
    return [*map(plain, report_lines(run))]


async def nothing(harness: object) -> str:
    return ""


def result(name: str, status: Status, evidence: str = "", resource: str = "a.b/c") -> CheckResult:
    check = PluginCheck(
        id=name,
        severity=Severity.FAIL,
        phase=Phase.PEACEFUL,
        rule="The rule.",
        suffers="The suffering.",
        source="The source.",
        mend="The mending.",
        seen="",
        run=nothing,
        per_resource=True,
    )
    story = "line one\nline two <b>" if status is Status.FAIL else ""
    return CheckResult(check, resource, Verdict(status, evidence, story), 0.5)


RUN = Run(
    [
        result("list.id-unique", Status.FAIL, "more than once: 'w<0>'\x07"),
        result("list.order", Status.WARN, "another order"),
        result("grpc.ping", Status.PASS, "in 1 ms"),
        result("life.lost-updates", Status.SKIP, "needs --trigger"),
    ],
    plugin="./plugin --flag",
    seconds=12.3,
)

EVERYTHING = ("more than once", "The rule.", "The suffering.", "The source.", "The mending.")


def test_the_text_is_grouped_and_explains_findings() -> None:
    """Themes with a line per check, then findings, failures first, then the verdict."""
    text = "\n".join(plain_lines(RUN))
    assert text.index("List\n") < text.index("Life\n") < text.index("gRPC\n")
    assert "  fail  list.id-unique" in text
    assert text.index("FAIL list.id-unique") < text.index("WARN list.order")
    for words in EVERYTHING:
        assert words in text
    assert "said        line one\n              line two <b>" in text
    assert text.endswith(
        "1 passed, 1 warned, 1 failed, 1 skipped in 12 s, 3 of 4 checks tried: "
        "this plugin loses devices, updates or pods on a node, or breaks the API"
    )


def test_a_plugin_that_never_registers_is_not_judged_any_further() -> None:
    """Only one check was tried: nobody knows what the plugin would do on a node."""
    results = [result("a.first", Status.FAIL, "never"), result("a.next", Status.SKIP, "no")]
    assert (
        replace(RUN, results=results)
        .verdict()
        .endswith(
            "1 of 2 checks tried: the first failed, so nothing else about this plugin was judged"
        )
    )


def test_many_checks_that_one_failure_blocks_are_one_line() -> None:
    """In the text; the other reports name each, and a few are named here too."""
    blocked = [result(f"list.a{n}", Status.SKIP, f"{BLOCKED} list.x fails") for n in range(5)]
    run = replace(RUN, results=[*blocked[:3], *RUN.results])
    assert sum("says nothing" in line for line in plain_lines(run)) == 3
    run = replace(RUN, results=[*blocked, *RUN.results])
    lines = plain_lines(run)
    assert [line for line in lines if "says nothing" in line] == [
        "  skip  5 checks           says nothing while list.x fails"
    ]
    assert "list.a4" in json.dumps(as_document(run))


def test_several_resources_get_a_column() -> None:
    """With one resource there is no column; with two, every line has the resource."""
    two = Run(
        [*RUN.results, result("grpc.ping", Status.PASS, "x", resource="a.b/d")],
        plugin="p",
        seconds=1,
    )
    assert not any("a.b/c" in line for line in plain_lines(RUN))
    assert any("grpc.ping" in line and "a.b/d" in line for line in plain_lines(two))


def test_a_finding_of_several_resources_is_reported_once() -> None:
    """Grouped by check, then by evidence; the report explains the resource `*`."""
    more = [
        result("list.id-unique", Status.FAIL, "more than once: 'x'", resource=name)
        for name in ("a.b/d", "a.b/e")
    ]
    whole = result("life.dies", Status.FAIL, "its process ended", resource="*")
    run = Run([*RUN.results, *more, whole], plugin="p", seconds=1)
    text = "\n".join(plain_lines(run))
    assert text.count("FAIL list.id-unique") == 1
    assert "FAIL list.id-unique (a.b/c, a.b/d, a.b/e)" in text
    assert "a.b/d, a.b/e: more than once: 'x'" in text
    assert text.count("The mending.") == 3
    assert "* is the whole plugin" in text
    assert "* is the plugin" not in "\n".join(plain_lines(RUN))


def by_cause(name: str, status: Status, harm: Harm, cause: str = "") -> CheckResult:
    one = result(name, status, f"evidence of {name}")
    verdict = one.verdict._replace(cause=cause, story="")
    return replace(one, check=replace(one.check, harm=harm), verdict=verdict)


def test_findings_come_by_harm_and_with_their_cause() -> None:
    """Failures by harm; what has the cause of a finding follows it, and repeats no text."""
    gone = "never registers again"
    run = Run(
        [
            by_cause("list.order", Status.WARN, Harm.ALL_DEVICES, gone),
            by_cause("allocate.paths", Status.FAIL, Harm.POD),
            by_cause("allocate.unknown-id", Status.FAIL, Harm.WRONG_DEVICE),
            by_cause("life.sockets-wiped", Status.FAIL, Harm.ALL_DEVICES, gone),
            by_cause("grpc.ping", Status.WARN, Harm.OTHER),
        ],
        plugin="p",
        seconds=1,
    )
    order = ["life.sockets-wiped", "list.order", "allocate.unknown-id", "allocate.paths"]
    assert [each.check.id for each in run.findings] == [*order, "grpc.ping"]
    title = "never registers again: 2 findings, begin here"
    assert [each.title for each in run.groups] == [title, "", "", ""]
    text = "\n".join(plain_lines(run))
    assert f"\n{title}\nFAIL life.sockets-wiped\n" in text
    assert text.count("The mending.") == 4
    assert text.count("evidence of list.order") == 2  # in the table, and as a finding
    page, markdown = as_page(run, "today"), as_markdown(run)
    assert f"<h3>{title}</h3>" in page
    assert page.count("The mending.") == 4
    assert title.replace(":", "\\:") in markdown
    assert [each["cause"] for each in as_document(run)["checks"]] == [gone, "", "", gone, ""]


def test_notes_and_left_out_checks_have_one_line_each() -> None:
    """Notes, and checks that --quick leaves out, are counted and named only."""
    notes = [result(name, Status.NOTE) for name in ("allocate.empty-ids", "preferred.too-large")]
    run = Run([*RUN.results[2:3], *notes], plugin="p", seconds=1, left_out=["life.dies"])
    text = "\n".join(plain_lines(run))
    assert "2 notes, as for most plugins: allocate.empty-ids, preferred.too-large" in text
    assert "left out by --quick: life.dies" in text
    assert "NOTE allocate" not in text
    assert text.endswith("3 of 3 checks tried: a well-behaved plugin as far as it was tried")


def test_a_report_says_how_the_run_was_made() -> None:
    """Trigger, machine and the output of the plugin are in JSON, JUnit and HTML."""
    log = Log("list.order", "exit code 2", "panic: <boom>")
    run = Run(RUN.results, plugin="p", seconds=1, about={"trigger": "touch w{n}"}, logs=[log])
    document = as_document(run)
    assert document["about"] == {"trigger": "touch w{n}"}
    assert document["logs"] == [
        {"check": "list.order", "ended": "exit code 2", "text": "panic: <boom>"}
    ]
    page, junit = as_page(run, "today"), as_junit(run)
    assert "touch w{n}" in page
    assert "panic: &lt;boom&gt;" in page
    assert ET.fromstring(junit).find(".//property[@name='trigger']") is not None
    assert ET.fromstring(junit).findtext(".//system-err") == "panic: <boom>"


def test_a_terminal_gets_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the same text is drawn with styles."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_report(RUN)
    text = capsys.readouterr().out
    assert "\x1b[" in text
    assert "The mending." in text


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (RUN.results[2:3], "a well-behaved plugin as far as it was tried"),
        (RUN.results[1:3], "nothing breaks a node, but the plugin is fragile"),
        (RUN.results[3:], "nothing was tried"),
    ],
)
def test_the_verdict(results: list[CheckResult], words: str) -> None:
    """One sentence says what the counts mean."""
    assert Run(results, plugin="p", seconds=1).verdict().endswith(words)


def test_the_json_keys() -> None:
    """`checks` is a list of objects with at least id, theme, resource, status and evidence."""
    document = json.loads(json.dumps(as_document(RUN)))
    assert document["summary"] == {"pass": 1, "warn": 1, "fail": 1, "skip": 1, "note": 0}
    first = document["checks"][0]
    assert (first["id"], first["theme"], first["resource"]) == ("list.id-unique", "list", "a.b/c")
    assert first["status"] == "fail"
    assert first["evidence"].startswith("more than once")
    assert {"rule", "suffers", "source", "repair", "severity"} <= first.keys()


def test_junit_has_failures_skips_and_warnings() -> None:
    """A failure fails, a skip is skipped, a warning passes and says so."""
    root = ET.fromstring(as_junit(RUN))
    assert root.attrib["failures"] == "1"
    assert root.attrib["skipped"] == "1"
    cases = {case.attrib["name"]: case for case in root.iter("testcase")}
    failure = cases["list.id-unique a.b/c"].find("failure")
    assert failure is not None
    assert "The mending." in (failure.text or "")
    assert cases["life.lost-updates a.b/c"].find("skipped") is not None
    assert (cases["list.order a.b/c"].findtext("system-out") or "").startswith("warning")


BUG = Expected("list.id-unique", "bug 7", "a.b/c")


@pytest.mark.parametrize(
    ("expected", "fail_on", "new"),
    [
        ([], "fail", ["list.id-unique"]),
        ([], "warn", ["list.id-unique", "list.order"]),
        ([], "never", []),
        ([BUG], "fail", []),
        ([BUG], "warn", ["list.order"]),
        ([Expected("list.id-unique", "x", "a.b/other")], "fail", ["list.id-unique"]),
        ([Expected("list.id-unique", "x", status="warn")], "fail", ["list.id-unique"]),
        ([Expected("list.order", "x", status="warn"), BUG], "warn", []),
    ],
)
def test_only_new_findings_fail_a_run(
    expected: list[Expected], fail_on: str, new: list[str]
) -> None:
    """A known finding covers its check, its resource and its status; `--fail-on` says the rest."""
    run = replace(RUN, expected=expected, fail_on=fail_on)
    assert run.new == new
    assert run.fails == bool(new)
    assert as_document(run)["new"] == new
    assert ET.fromstring(as_junit(run)).attrib["failures"] == str(len(new))


def test_a_vanished_known_finding_is_reported_if_its_check_was_tried() -> None:
    """If the check passed, the finding is gone; a skipped check proves nothing."""
    names = ("grpc.ping", "life.lost-updates", "life.dies", "list.order")
    run = replace(RUN, expected=[Expected(name, "why") for name in names])
    assert [each.check for each in run.vanished] == ["grpc.ping"]
    assert as_document(run)["vanished"] == [{"check": "grpc.ping", "resource": "", "reason": "why"}]
    assert "no longer found: grpc.ping; remove it from the known findings" in run.remarks()


def test_a_known_finding_has_its_reason_in_every_report() -> None:
    """For a CI server it is not a failure."""
    run = replace(RUN, expected=[BUG])
    assert "known       bug 7" in "\n".join(plain_lines(run))
    assert "<dt>known</dt><dd>bug 7</dd>" in as_page(run, "today")
    assert "| known | bug 7 |" in as_markdown(run)
    skipped = ET.fromstring(as_junit(run)).find("./testsuite/testcase/skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("known: bug 7: more than once")
    assert as_document(run)["checks"][0]["known"] == "bug 7"


def test_markdown_escapes_the_output_of_a_plugin() -> None:
    """No text of a plugin creates a link, a heading, a row or a tag; a long text is cut."""
    evil = "# [x](http://y) | <img src=z> `c`\n## new\n| row |" + "a" * 5000
    text = as_markdown(Run([result("list.order", Status.WARN, evil)], plugin="p", seconds=1))
    page = MarkdownIt("commonmark").enable("table").render(text)
    tags = set(re.findall(r"<(\w+)", page))
    assert not tags & {"a", "img", "h1"}
    assert page.count("<h2>") == 1
    assert len(text) < 10000


def test_a_file_of_known_findings_is_checked(short_dir: Path) -> None:
    """Every mistake is reported with its place: an unknown check, no reason, a wrong status."""
    file = short_dir / "known.yaml"
    file.write_text("findings:\n- {check: list.ordr, status: bad}\n- {check: list.order, x: 1}\n")
    with pytest.raises(ConfigError) as caught:
        load_expected(file)
    problems = "\n".join(map(str, caught.value.problems))
    for words in ("did you mean 'list.order'?", "must be fail or warn", "reason", "unknown key"):
        assert words in problems


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_complete_and_needs_no_other_file() -> None:
    """Well-formed, everything escaped, without a single reference."""
    page = as_page(RUN, "today")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.links == []
    assert "w&lt;0&gt;" in page
    assert "<b>" not in page.replace('<b class="', "")
    for words in EVERYTHING:
        assert words in page
