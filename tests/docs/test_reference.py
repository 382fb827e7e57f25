"""The reference page has exactly the public names and the commands."""

import re

import kubedevices
from kubedevices.cli.verbs import VERBS
from kubedevices.config.keys import Declared, key_names
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference.md").read_text()


def first_column(heading: str) -> list[str]:
    """Return the code words in the first column of the first table after a heading."""
    section = PAGE.partition(heading)[2].partition("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table
    return re.findall(r"^\| `(\w+)`", table[0], re.MULTILINE)


def test_the_page_has_exactly_the_public_names() -> None:
    """`__all__`, `dir()` of the package and the page agree."""
    listed = first_column("## `import kubedevices as kd`")
    assert sorted(listed) == sorted(kubedevices.__all__)
    assert set(kubedevices.__all__) <= set(dir(kubedevices))
    for name in kubedevices.__all__:
        assert getattr(kubedevices, name) is not None


def test_the_row_of_a_rule_names_its_fields() -> None:
    """A rule is declared in its class; a new key of a rule is a new word in its row."""
    rules = [getattr(kubedevices, name) for name in kubedevices.__all__]
    rules = [each for each in rules if isinstance(each, type) and issubclass(each, Declared)]
    assert len(rules) >= 10
    for rule in rules:
        (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{rule.__name__}` |"))
        missing = [name for name in key_names(rule) if f"`{name}`" not in row.replace("=True", "")]
        assert not missing, rule.__name__


def test_the_page_has_exactly_the_commands() -> None:
    """Every command has a line, in the order of the command line."""
    assert first_column("## `kubedevices VERB`") == list(VERBS)
