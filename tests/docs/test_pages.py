"""README and every page of docs do what they say."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, read_page, run_page

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_does_what_it_says(path: Path, short_dir: Path) -> None:
    """Every snippet of the page is executed, in order, in an empty directory."""
    page = read_page(path)
    assert not page.unknown, "blocks that nobody runs: mark them with a file name or a reason"
    run_page(page, short_dir)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_make_can_make_what_a_page_names(path: Path) -> None:
    """Every `make TARGET` of a page is in the Makefile."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"[`$] ?make ([a-z-]+)", path.read_text())) <= set(targets)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link of a page names a file that is there."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    assert not [target for target in targets if not (path.parent / target).exists()]


def test_a_page_that_lies_is_caught(short_dir: Path) -> None:
    """The runner itself fails on a failing command and on output that never came."""
    page = short_dir / "lie.md"
    page.write_text("```console\n$ echo one two three\none … three\n```\n")
    run_page(read_page(page), short_dir)
    page.write_text("```console\n$ echo one\ntwo\n```\n")
    with pytest.raises(AssertionError, match="does not print"):
        run_page(read_page(page), short_dir)
    page.write_text("```console\n$ false\n```\n")
    with pytest.raises(AssertionError, match="exit code 1"):
        run_page(read_page(page), short_dir)
