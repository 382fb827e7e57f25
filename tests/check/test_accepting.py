"""The file of known findings: a run adds new findings and changes no old entry."""

from dataclasses import replace
from pathlib import Path

import pytest

from kubedevices.check.check import Status, Verdict
from kubedevices.check.checks import find
from kubedevices.check.report.accepting import FindingsFile
from kubedevices.check.report.expected import load_expected
from kubedevices.check.results import CheckResult
from kubedevices.errors import CannotAsk, ConfigError


def result(name: str, status: Status, evidence: str = "", resource: str = "a.b/c") -> CheckResult:
    return CheckResult(find(name), resource, Verdict(status, evidence), 0.1)


FOUND = [
    result("list.id-unique", Status.FAIL, "more than once: 'w<0>'\x07\nand # more"),
    result("list.order", Status.WARN, "x" * 500, resource="*"),
    result("grpc.ping", Status.PASS),
    result("list.change", Status.SKIP),
]


def written(file: Path, results: list[CheckResult]) -> str:
    """Add what is missing, as a run does; return the new text."""
    known = FindingsFile(file)
    text = known.with_added(known.missing(results))
    file.write_text(text)
    return text


def test_a_new_file_has_each_finding_with_an_empty_reason(tmp_path: Path) -> None:
    """`--expect` refuses the file as written, and accepts exactly these findings with reasons."""
    file = tmp_path / "known.yaml"
    written(file, FOUND)
    with pytest.raises(ConfigError) as caught:
        load_expected(file)
    problems = [str(each) for each in caught.value.problems]
    assert len(problems) == 2
    assert "findings[0].reason: there is no reason yet" in problems[0]
    file.write_text(file.read_text().replace('reason: ""', "reason: bug 7"))
    known = load_expected(file)
    assert [(each.check, each.resource, each.status) for each in known] == [
        ("list.id-unique", "a.b/c", "fail"),
        ("list.order", "*", "warn"),
    ]
    assert all(any(each.covers(found) for each in known) for found in FOUND[:2])
    assert not any(each.covers(replace(FOUND[0], resource="a.b/d")) for each in known)


@pytest.mark.parametrize(
    "before",
    [
        "# ours\nfindings:\n- check: list.order  # old\n  reason: bug 8\n# end\n",
        "# ours\nfindings:\n  - check: list.order\n    reason: |\n      bug 8\n",
        "findings: [{check: list.order, reason: bug 8}]  # ours\n",
        "findings:\n- {check: list.order, reason: bug 8}",
    ],
)
def test_old_entries_of_the_file_do_not_change(before: str, tmp_path: Path) -> None:
    """In each YAML style, reasons and comments stay; a second run adds nothing."""
    file = tmp_path / "known.yaml"
    file.write_text(before)
    after = written(file, FOUND)
    assert "bug 8" in after
    assert after.count("#") == before.count("#") + 2  # the evidence has a # of its own
    entries = FindingsFile(file)
    assert [each.check for each in entries.without_reason()] == ["list.id-unique"]
    assert after.count("check: list.order") == 1
    assert written(file, FOUND) == after


@pytest.mark.parametrize("before", ["", "findings:\n", "findings: []  # none\n"])
def test_findings_are_added_to_an_empty_file(before: str, tmp_path: Path) -> None:
    """The file is empty, or has an empty list, as `kubedevices init` writes it."""
    file = tmp_path / "known.yaml"
    file.write_text(before)
    written(file, FOUND)
    assert len(FindingsFile(file).without_reason()) == 2


def test_a_finding_that_became_worse_is_added(tmp_path: Path) -> None:
    """A known warning does not cover a failure of the same check."""
    file = tmp_path / "known.yaml"
    file.write_text("findings:\n- {check: list.order, status: warn, reason: bug 8}\n")
    written(file, [result("list.order", Status.FAIL)])
    file.write_text(file.read_text().replace('reason: ""', "reason: bug 9"))
    assert [each.status for each in load_expected(file)] == ["warn", "fail"]


def test_a_file_in_an_unsuitable_style_is_refused(tmp_path: Path) -> None:
    """A file in one pair of braces, or with unknown keys, is refused and does not change."""
    file = tmp_path / "known.yaml"
    file.write_text("{findings: [{check: list.order, reason: bug 8}]}\n")
    with pytest.raises(CannotAsk, match="write the file as `findings:` with a line"):
        written(file, FOUND)
    file.write_text("resources: []\n")
    with pytest.raises(ConfigError, match="unknown key"):
        FindingsFile(file)
