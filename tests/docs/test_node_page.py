"""docs/node.md: no option is forgotten."""

import argparse
import re

from kubedevices.cli import node
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/node.md").read_text()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    node.add_arguments(made)
    return made


def test_every_option_is_in_the_table() -> None:
    """And no other."""
    table = set(re.findall(r"^\| `(--[\w-]+)` \|", PAGE, re.MULTILINE))
    options = {
        option
        for action in parser()._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    assert table == options
