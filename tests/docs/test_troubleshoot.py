"""docs/troubleshoot.md has every step of `kubedevices explain`."""

import re

from kubedevices.explain.finding import Step
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/troubleshoot.md").read_text()


def test_the_page_has_every_step() -> None:
    """The order is that of `kubedevices explain`."""
    table = PAGE.partition("| Step of `explain` |")[2].partition("\n\n")[0]
    steps = [row.split(", ") for row in re.findall(r"^\| ([^|`]+?) \|", table, re.MULTILINE)]
    assert [name for row in steps for name in row] == [str(step) for step in Step]


def test_links_within_the_page_have_a_heading() -> None:
    """Each link is the anchor of a heading."""
    headings = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    assert {*re.findall(r"\]\(#([^)]+)\)", PAGE)} <= anchors
