"""A broken plugin: the good plugin with one mutation.

python mutant.py --mutation NAME --device-dir DIR [...]
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a script, from anywhere
from tests.check.good_plugin import arguments, start
from tests.check.mutants.registry import all_mutations


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin that the command line names; return the exit code."""
    parser = arguments()
    parser.add_argument("--mutation", required=True, choices=sorted(all_mutations()))
    args = parser.parse_args(argv)
    return start(all_mutations()[args.mutation].plugin, args)


if __name__ == "__main__":
    os._exit(main())
