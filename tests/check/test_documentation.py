"""The tables of `docs/conformance.md` are generated from the checks: run this file to update."""

from pathlib import Path

from kubedevices.check.check import PluginCheck
from kubedevices.check.checks import ALL, THEMES
from kubedevices.check.kubelets import Kubelets

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
BEGIN, END = "<!-- checks: begin -->\n", "<!-- checks: end -->\n"


def table() -> str:
    """Return the table, theme by theme."""
    lines = []
    for theme, title in THEMES.items():
        lines += [
            f"\n### {title}\n",
            "| Check | | Rule | On a node | Seen in |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| `{check.id}` | {_severity(check)} | {check.rule} | {check.suffers} | {check.seen} |"
            for check in ALL
            if check.theme == theme
        ]
    return "\n".join([*lines, "", ""])


def _severity(check: PluginCheck) -> str:
    return f"{check.severity} {Kubelets.harmful(check)}".rstrip()


def page_with_table() -> str:
    """Return the page as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def test_the_page_lists_every_check() -> None:
    """Severity, rule, reason and the plugins that showed it, as the checks say them."""
    assert PAGE.read_text() == page_with_table(), "run python -m tests.check.test_documentation"


def test_every_check_has_all_its_texts() -> None:
    """Rule, harm, source and remedy are sentences, and every theme has a title."""
    for check in ALL:
        assert check.rule.endswith("."), check.id
        assert check.suffers.endswith("."), check.id
        assert check.mend.endswith("."), check.id
        assert check.source, check.id
        assert check.theme in THEMES
    assert len({check.id for check in ALL}) == len(ALL)
    known = {check.id for check in ALL}
    assert not {name for check in ALL for name in check.needs} - known


if __name__ == "__main__":
    PAGE.write_text(page_with_table())
