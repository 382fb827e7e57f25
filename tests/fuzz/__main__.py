"""Searches the targets of the command line, or all, one after the other: `make fuzz SECONDS=60`."""

import argparse
import random
import sys

from tests.fuzz.search import ROOT, run
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Return 1 if there is a finding. Its input is then a file of the corpus."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="time for each target")
    parser.add_argument("--seed", type=int, default=None, help="repeat a search")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    args = parser.parse_args()
    if unknown := set(args.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; choose from {', '.join(TARGETS)}")
    seed = random.randrange(2**31) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    findings = 0
    for name in args.targets or TARGETS:
        found = run(name, args.seconds, seed)
        if found.problem:
            findings += 1
            assert found.saved
            print(f"{name}: {found.problem}, input in {found.saved.relative_to(ROOT)}")
            print(found.output[-6000:], flush=True)
        else:
            print(f"{name}: {found.inputs:,} inputs", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
