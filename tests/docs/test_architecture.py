"""The page on architecture draws the existing tree and layers."""

import re
import tomllib

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
PACKAGE = ROOT / "src/kubedevices"


def drawn(heading: str) -> list[str]:
    """Return the lines of the first drawing after `heading`."""
    return PAGE.partition(heading)[2].partition("```text\n")[2].partition("\n```")[0].splitlines()


def test_the_layers_of_the_page_are_those_of_import_linter() -> None:
    """In the same order; independent packages share a line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["id"] == "direction"]
    checked = [re.sub(r"kubedevices\.|[()]", "", line) for line in layers]
    assert [line.partition("←")[0].strip() for line in drawn("## Import rules")] == checked


def test_the_tree_has_every_package_and_module() -> None:
    """The packages and modules of the first level. The package's own files need no line."""
    lines = (line.partition("── ")[2] for line in drawn("# Architecture")[1:])
    named = {
        word.strip("/,").removesuffix(".py")
        for line in lines
        for word in re.split(r"  +", line)[0].split()
    }
    there = {path.stem for path in PACKAGE.glob("[!_]*.py")}
    there |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert named == there
