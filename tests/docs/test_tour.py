"""docs/development/tour.md names files and functions that exist, and the ways stay short."""

import re
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[2] / "docs/development/tour.md"
LINK = re.compile(r"\]\(([^)]+\.py)\)")
CHAPTERS = dict(
    re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", TOUR.read_text(), re.MULTILINE | re.DOTALL)
)
ROWS = [
    row
    for chapter in CHAPTERS.values()
    for row in re.findall(r"^\| .+ \|$", chapter, re.MULTILINE)
    if LINK.search(row)
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_a_step_names_functions_of_its_files(row: str) -> None:
    """The functions in the last column are defined in a file that the row links to."""
    text = "".join((TOUR.parent / link).read_text() for link in LINK.findall(row))
    for name in re.findall(r"`([\w.]+)`", row.rsplit(" | ", 1)[1]):
        for part in name.split("."):
            assert re.search(rf"\b(?:def|class) {part}\b", text), part


@pytest.mark.parametrize(
    ("chapter", "limit"),
    [("A pod: an admission in nine files", 9), ("An Allocate call: four files in the plugin", 4)],
)
def test_the_way_of_a_call_is_short(chapter: str, limit: int) -> None:
    """As many files as the heading says, each counted once."""
    steps = CHAPTERS[chapter].split("|\n\n")[0]  # the table, without the words below it
    assert len(set(LINK.findall(steps))) == limit


def test_each_place_to_change_exists() -> None:
    """The last table leads to files and folders that are there."""
    package = TOUR.parents[2] / "src/kubedevices"
    places = re.findall(r"`([\w*]+/[\w*./]*)`", CHAPTERS["Where to change what"])
    assert len(places) > 8
    assert all(list(package.glob(place.rstrip("/"))) for place in places)
