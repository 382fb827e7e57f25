"""`make bench`: every table of docs/performance.md, or those named on the command line."""

import argparse
import asyncio
from importlib import import_module

TABLES = {"plugin": "benchmarks.plugin_process"}


def main() -> None:
    """Run the benchmarks that were asked for, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; default: all")
    names = parser.parse_args().tables or list(TABLES)
    for name in names:
        if name not in TABLES:
            parser.error(f"no table {name!r}, choose from {', '.join(TABLES)}")
    for name in names:
        asyncio.run(import_module(TABLES[name]).main())


if __name__ == "__main__":
    main()
