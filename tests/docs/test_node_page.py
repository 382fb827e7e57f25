"""docs/node.md: the systemd unit starts what exists, and no option is forgotten."""

import argparse
import re
import shlex

from kubedevices.cli import node
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/node.md").read_text()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    node.add_arguments(made)
    return made


def test_the_unit_starts_a_node() -> None:
    """Every argument of ExecStart is one of `kubedevices node`."""
    (line,) = re.findall(r"^ExecStart=(.*)$", PAGE, re.MULTILINE)
    program, verb, *arguments = shlex.split(line)
    assert (program.rpartition("/")[2], verb) == ("kubedevices", "node")
    assert parser().parse_args(arguments).admission_wait > 0


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
