"""Every test that the documentation names exists."""

from pathlib import Path

import pytest

from tests.docs.named_tests import missing, named_tests, rows
from tests.docs.pages import ROOT

DIFFERENCES = ROOT / "docs/differences-from-kubelet.md"
TEST_MAP = ROOT / "docs/development/test-map.md"
SECURITY = ROOT / "SECURITY.md"
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), SECURITY]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_named_test_exists(page: Path) -> None:
    """In every page: the file exists and has a function of that name."""
    assert not missing(page)


def test_every_difference_names_a_test() -> None:
    """The numbers of the rows have no gap. Each row has a behaviour and a test."""
    found = list(rows(DIFFERENCES))
    assert [number for number, *_ in found] == [str(n + 1) for n in range(len(found))]
    for number, theirs, ours, _setting, shown in found:
        assert theirs, number
        assert ours, number
        assert named_tests(shown), number


def test_every_place_of_the_security_page_names_a_test() -> None:
    """A row says who can act at a place, what is trusted and refused there, and what shows this."""
    found = list(rows(SECURITY))
    assert found
    for place, who, trusted, refused, shown in found:
        assert who, place
        assert trusted, place
        assert refused, place
        assert named_tests(shown), place


def test_every_test_of_kubernetes_has_a_counterpart_or_a_reason() -> None:
    """A row has the name in Kubernetes, a topic, and our tests or the reason why none exists."""
    found = list(rows(TEST_MAP))
    assert found
    for name, about, counterpart in found:
        assert name, about
        assert about, name
        assert named_tests(counterpart) or counterpart.startswith("none: "), name


def test_a_missing_test_is_found(tmp_path: Path) -> None:
    """The check itself can fail."""
    page = tmp_path / "page.md"
    here = "tests/docs/test_named_tests.py"
    known = f"`{here}::{test_a_missing_test_is_found.__name__}`"
    page.write_text(
        f"| a | b |\n|---|---|\n| 1 | {known} |\n| 2 | `{here}::test_that_does_not_exist` |\n"
    )
    assert missing(page) == [f"{here}::test_that_does_not_exist"]
    assert [number for number, _ in rows(page)] == ["1", "2"]
