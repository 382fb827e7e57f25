"""Each row of the page on HTTP/2 requirements names existing tests or cases."""

import re

from tests.docs.named_tests import named_tests, rows
from tests.docs.pages import ROOT
from tests.wire.protocol.client_cases import CLIENT_CASES
from tests.wire.protocol.server_cases import MORE_CASES
from tests.wire.protocol.test_server_cases import COUNTED

PAGE = ROOT / "docs/development/http2-requirements.md"
CASES = {f"S {case.name}" for case in (*COUNTED, *MORE_CASES)} | {
    f"C {each.case.name}" for each in CLIENT_CASES
}
_CASE = re.compile(r"`([SC] [^`]+)`")


def test_every_requirement_has_a_test_or_a_case() -> None:
    """A row has a section, a text, and a case or a test. Each case exists."""
    found = list(rows(PAGE))
    assert len(found) > 70
    for section, requirement, shown in found:
        assert re.match(r"[\dAB]", section), section
        assert requirement
        cases = _CASE.findall(shown)
        assert cases or named_tests(shown), requirement
        assert set(cases) <= CASES, set(cases) - CASES


def test_every_section_with_cases_has_a_row() -> None:
    """A case for a section shows that the section has a requirement."""
    sections = {part for section, *_ in rows(PAGE) for part in section.split(", ")}
    tested = {case[2:].split(": ")[0].removeprefix("HPACK ") for case in CASES}
    assert tested <= sections
