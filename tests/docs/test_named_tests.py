"""What the documentation claims to be tested is: every test that it names exists."""

from pathlib import Path

import pytest

from tests.docs.named_tests import missing, named_tests, rows
from tests.docs.pages import ROOT

DIFFERENCES = ROOT / "docs/differences-from-kubelet.md"
TEST_MAP = ROOT / "docs/development/test-map.md"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_every_test_that_is_named_exists(page: Path) -> None:
    """A file with a function of that name, in every page."""
    assert not missing(page)


def test_every_difference_is_shown_by_a_test() -> None:
    """Rows are numbered without a gap; none leaves out a behaviour or a test."""
    found = list(rows(DIFFERENCES))
    assert [number for number, *_ in found] == [str(n + 1) for n in range(len(found))]
    for number, theirs, ours, _setting, shown in found:
        assert theirs, number
        assert ours, number
        assert named_tests(shown), number


def test_every_test_of_the_reference_has_a_counterpart_or_a_reason() -> None:
    """A row has the name there, what it is about, and tests of ours or why there is none."""
    found = list(rows(TEST_MAP))
    assert found
    for name, about, counterpart in found:
        assert name, about
        assert about, name
        assert named_tests(counterpart) or counterpart.startswith("none: "), name


def test_a_test_that_is_missing_is_noticed(tmp_path: Path) -> None:
    """The check itself can fail."""
    page = tmp_path / "page.md"
    here = "tests/docs/test_named_tests.py"
    known = f"`{here}::{test_a_test_that_is_missing_is_noticed.__name__}`"
    page.write_text(f"| a | b |\n|---|---|\n| 1 | {known} |\n| 2 | `{here}::test_nobody_wrote` |\n")
    assert missing(page) == [f"{here}::test_nobody_wrote"]
    assert [number for number, _ in rows(page)] == ["1", "2"]
