"""`make bench` prints the tables of docs/performance.md, or only the tables of the arguments.

`--quick` runs every benchmark once with few devices and calls. The numbers of such a run mean
nothing: it only tests that the benchmarks still work. `--runs 5` runs everything five times and
then prints each table once more, with ranges.
"""

import argparse
import asyncio
from importlib import import_module

from benchmarks import measure

TABLES = {
    "plugin": ("benchmarks.beside_go", "benchmarks.plugin_process"),
    "node": (
        "benchmarks.node_admission",
        "benchmarks.node_lists",
        "benchmarks.node_neighbours",
        "benchmarks.node_start",
    ),
    "check": ("benchmarks.check_run",),
    "verdicts": ("benchmarks.verdicts",),
    "footprint": ("benchmarks.footprint",),
    "memory": ("benchmarks.device_memory",),
    "nodes": ("benchmarks.many_nodes",),
    "proxy": ("benchmarks.proxy",),
    "dra": ("benchmarks.dra",),
    "cluster": ("benchmarks.cluster_look",),
    "attacks": ("benchmarks.attacks",),
}

NOT_BY_DEFAULT = {"verdicts", "attacks"}
"""These benchmarks run only if the command line names them. They keep all processors busy, for half
an hour (`verdicts`) and a quarter of an hour (`attacks`)."""


def main() -> None:
    """Run the benchmarks of the command line, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only test that the benchmarks work")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="N runs, and their ranges")
    parser.add_argument(
        "tables",
        nargs="*",
        help=f"any of {', '.join(TABLES)}; default: all except those that take long",
    )
    args = parser.parse_args()
    names = args.tables or [name for name in TABLES if name not in NOT_BY_DEFAULT]
    for name in names:
        if name not in TABLES:
            parser.error(f"no table {name!r}, choose from {', '.join(TABLES)}")
    for _ in range(args.runs):
        for name in names:
            for module in TABLES[name]:
                asyncio.run(import_module(module).main(quick=args.quick))
    if args.runs > 1:
        tables = [*measure.printed]
        for number in range(len(tables) // args.runs):
            measure.ranges(tables[number :: len(tables) // args.runs])


if __name__ == "__main__":
    main()
