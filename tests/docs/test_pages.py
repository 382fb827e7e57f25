"""The snippets of README and of every page of docs work."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, read_page, run_page

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_snippets_of_a_page_work(path: Path, short_dir: Path) -> None:
    """Every snippet of the page is executed, in order, in an empty directory."""
    page = read_page(path)
    assert not page.unknown, "blocks that nobody runs: mark them with a file name or a reason"
    run_page(page, short_dir)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_makefile_has_every_target_of_a_page(path: Path) -> None:
    """Every `make TARGET` of a page is in the Makefile."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"[`$] ?make ([a-z-]+)", path.read_text())) <= set(targets)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_relative_links_name_existing_files(path: Path) -> None:
    """Every relative link of a page names an existing file."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())
    assert not [target for target in targets if not (path.parent / target).exists()]


def test_a_wrong_page_is_found(short_dir: Path) -> None:
    """The runner fails on a failing command and on output that was not printed."""
    page = short_dir / "lie.md"
    page.write_text("```console\n$ echo one two three\none … three\n```\n")
    run_page(read_page(page), short_dir)
    page.write_text("```console\n$ echo one\ntwo\n```\n")
    with pytest.raises(AssertionError, match="does not print"):
        run_page(read_page(page), short_dir)
    page.write_text("```console\n$ false\n```\n")
    with pytest.raises(AssertionError, match="exit code 1"):
        run_page(read_page(page), short_dir)
