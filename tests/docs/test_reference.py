"""The reference page names everything there is, and nothing else."""

import re

import kubedevices
from kubedevices.cli import VERBS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference.md").read_text()


def first_column(heading: str) -> list[str]:
    """The code words in the first column of the first table after a heading."""
    section = PAGE.partition(heading)[2].partition("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table
    return re.findall(r"^\| `(\w+)`", table[0], re.MULTILINE)


def test_the_public_names_are_those_of_the_page() -> None:
    """`__all__`, what the package offers when asked, and the page agree."""
    listed = first_column("## `import kubedevices as kd`")
    assert sorted(listed) == sorted(kubedevices.__all__)
    assert set(kubedevices.__all__) <= set(dir(kubedevices))
    for name in kubedevices.__all__:
        assert getattr(kubedevices, name) is not None


def test_the_verbs_are_those_of_the_page() -> None:
    """Every verb of the command line has its line, in the same order."""
    assert first_column("## `kubedevices VERB`") == list(VERBS)
