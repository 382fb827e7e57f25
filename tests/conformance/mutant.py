"""A misbehaving plugin: the good one with one mutation.

python mutant.py --mutation NAME --device-dir DIR [...]
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from tests.conformance.good_plugin import arguments, start
from tests.conformance.mutants.registry import all_mutations


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin that the command line names to its end; return the exit code."""
    args = command_line(argv)
    return start(all_mutations()[args.mutation].plugin, args)


def command_line(argv: Sequence[str] | None) -> argparse.Namespace:
    """Load all mutants; return what the command line says."""
    parser = arguments()
    parser.add_argument("--mutation", required=True, choices=sorted(all_mutations()))
    return parser.parse_args(argv)


if __name__ == "__main__":
    os._exit(main())
