"""The size of the executable of `make onefile`, and the time until a verb runs.

`python -m benchmarks.onefile` measures dist/kubedevices and, for comparison, the installed program.
"""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import measure

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Print the numbers that docs/install.md quotes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onefile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only test that the benchmark works")
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "dist/kubedevices")
    args = parser.parse_args()
    rows = []
    for name, words in {
        "single file": [str(args.file)],
        "installed": [sys.executable, "-m", "kubedevices"],
    }.items():
        size = args.file.stat().st_size / 1e6 if name == "single file" else None
        found = [start(words) for _ in range(1 if args.quick else 20)]
        best = [f"{min(column) * 1000:.0f} ms" for column in zip(*found, strict=True)]
        rows.append([name, f"{size:.1f} MB" if size else "-", *best])
    measure.table("A start", ["", "size", "time, best", "processor time, best"], rows)


def start(words: list[str]) -> tuple[float, float]:
    """Return the wall seconds and the CPU seconds of one run of `--version`."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*words, "--version"], stdout=subprocess.DEVNULL, check=True)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ended - begun, used


if __name__ == "__main__":
    main()
