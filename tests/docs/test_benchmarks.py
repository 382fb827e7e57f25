"""The benchmarks run, and docs/performance.md has the tables that they print."""

import re
import subprocess
import sys

import pytest

from benchmarks.__main__ import TABLES
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/performance.md"


def shapes(text: str) -> set[tuple[str, ...]]:
    """Return title, header and number of columns of each table, without numbers."""
    tables = re.findall(r"^#+ (.*)\n\n\|(.*)\|\n", text, re.MULTILINE)
    return {
        tuple(re.sub(r"[\d,.]+", "N", cell).strip() for cell in (title, *header.split("|")))
        for title, header in tables
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_the_quick_form_prints_the_tables_of_the_page(name: str) -> None:
    """Each table still has the title and the columns of the page."""
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
