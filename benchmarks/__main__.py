"""`make bench`: every table of docs/performance.md, or those named on the command line.

`--quick` runs everything once with little of it: the numbers say nothing, but it still works.
"""

import argparse
import asyncio
from importlib import import_module

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
    "proxy": ("benchmarks.proxy",),
    "dra": ("benchmarks.dra",),
}


BY_NAME = {"verdicts"}
"""Half an hour on a machine that is kept busy: only if asked for."""


def main() -> None:
    """Run the benchmarks that were asked for, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only see whether it works")
    parser.add_argument(
        "tables", nargs="*", help=f"of {', '.join(TABLES)}; default: all but verdicts"
    )
    args = parser.parse_args()
    names = args.tables or [name for name in TABLES if name not in BY_NAME]
    for name in names:
        if name not in TABLES:
            parser.error(f"no table {name!r}, choose from {', '.join(TABLES)}")
    for name in names:
        for module in TABLES[name]:
            asyncio.run(import_module(module).main(quick=args.quick))


if __name__ == "__main__":
    main()
