"""The benchmarks still run, and docs/performance.md shows the tables they print."""

import re
import subprocess
import sys

import pytest

from benchmarks.__main__ import TABLES
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/performance.md"


def shapes(text: str) -> set[tuple[str, ...]]:
    """Return title, header and number of columns of each table, without the numbers in them."""
    tables = re.findall(r"^#+ (.*)\n\n\|(.*)\|\n", text, re.MULTILINE)
    return {
        tuple(re.sub(r"[\d,.]+", "N", cell).strip() for cell in (title, *header.split("|")))
        for title, header in tables
    }


@pytest.mark.parametrize("name", TABLES)
def test_the_quick_form_prints_the_tables_of_the_page(name: str) -> None:
    """Every table is still printed, with the title and columns that the page has."""
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert printed.returncode == 0, printed.stderr
    found = shapes(printed.stdout)
    assert found
    assert found <= shapes(PAGE.read_text())
