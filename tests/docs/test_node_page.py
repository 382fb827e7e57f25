"""docs/node.md lists every option."""

import argparse
import re

from kubedevices.cli.node import node
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/node.md").read_text()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    node.add_arguments(made)
    return made


def test_the_table_has_exactly_the_options_of_the_command() -> None:
    """No option is missing, and no other is listed."""
    table = set(re.findall(r"^\| `(--[\w-]+)` \|", PAGE, re.MULTILINE))
    options = {
        option
        for action in parser()._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    assert table == options
