"""The tables of both pages are generated from the checks: run this file to update them."""

from pathlib import Path

import pytest

from kubedevices.check.catalogue import Catalogue
from kubedevices.check.check import PluginCheck
from kubedevices.check.checks import CATALOGUE
from kubedevices.check.drivers.rules import CATALOGUE as RULES
from kubedevices.check.kubelets import Kubelets

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"conformance.md": CATALOGUE, "dra-conformance.md": RULES}
BEGIN, END = "<!-- checks: begin -->\n", "<!-- checks: end -->\n"


def table(checks: Catalogue) -> str:
    """Return the table, theme by theme."""
    lines = []
    for theme, title in checks.themes.items():
        rows = [
            f"| `{check.id}` | {_severity(check)} | {check.rule} | {check.suffers} | {check.seen} |"
            for check in checks.checks
            if check.theme == theme
        ]
        head = ["| Check | | Rule | On a node | Seen in |", "|---|---|---|---|---|"]
        lines += [f"\n### {title}\n", *head, *rows] if rows else []
    return "\n".join([*lines, "", ""])


def _severity(check: PluginCheck) -> str:
    return f"{check.severity} {Kubelets.harmful(check)}".rstrip()


def page_with_table(name: str) -> str:
    """Return the page as it should be."""
    before, _, rest = (DOCS / name).read_text().partition(BEGIN)
    return before + BEGIN + table(PAGES[name]) + END + rest.partition(END)[2]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_lists_every_check(name: str) -> None:
    """Severity, rule, reason and the plugins that showed it, as the checks say them."""
    wanted = page_with_table(name)
    assert (DOCS / name).read_text() == wanted, "run python -m tests.check.test_documentation"


@pytest.mark.parametrize("checks", PAGES.values(), ids=[*PAGES])
def test_every_check_has_all_its_texts(checks: Catalogue) -> None:
    """Rule, harm, source and remedy are sentences, and every theme has a title."""
    known = {check.id for check in checks.checks}
    for check in checks.checks:
        for text in (check.rule, check.suffers, check.mend):
            assert text.endswith("."), check.id
        assert check.source, check.id
        assert check.theme in checks.themes
        assert {*check.needs} <= known, check.id
    assert len(known) == len(checks.checks)


if __name__ == "__main__":
    for each in PAGES:
        (DOCS / each).write_text(page_with_table(each))
