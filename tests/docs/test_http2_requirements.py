"""Each requirement of HTTP/2 on its page names tests and cases that exist."""

import re

from tests.docs.named_tests import named_tests, rows
from tests.docs.pages import ROOT
from tests.wire.protocol.client_cases import CLIENT_CASES
from tests.wire.protocol.server_cases_more import MORE_CASES
from tests.wire.protocol.test_server_cases import COUNTED

PAGE = ROOT / "docs/development/http2-requirements.md"
CASES = {f"S {case.name}" for case in (*COUNTED, *MORE_CASES)} | {
    f"C {each.case.name}" for each in CLIENT_CASES
}
_CASE = re.compile(r"`([SC] [^`]+)`")


def test_every_requirement_is_shown() -> None:
    """A row has a section, words, and a case or a test; each case exists."""
    found = list(rows(PAGE))
    assert len(found) > 70
    for section, requirement, shown in found:
        assert re.match(r"[\dAB]", section), section
        assert requirement
        cases = _CASE.findall(shown)
        assert cases or named_tests(shown), requirement
        assert set(cases) <= CASES, set(cases) - CASES


def test_every_section_with_cases_has_a_row() -> None:
    """What is tested about a section is a requirement of it, so the page has the section."""
    sections = {part for section, *_ in rows(PAGE) for part in section.split(", ")}
    tested = {case[2:].split(": ")[0].removeprefix("HPACK ") for case in CASES}
    assert tested <= sections
