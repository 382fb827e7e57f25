"""Helpers of every benchmark: percentiles, memory and CPU of a process, Markdown tables."""

import asyncio
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


def median(values: Iterable[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which `percent` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


async def milliseconds(work: Awaitable[object]) -> float:
    """Return how long `work` takes. `work` is a coroutine that has not started yet."""
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


def memory(pid: int) -> dict[str, float]:
    """Return `pss` and `rss` of a process in MB (10⁶ bytes), from `/proc/PID/smaps_rollup`."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = {
        name: int(kib) for name, kib in re.findall(r"^(Pss|Rss): +(\d+) kB$", text, re.MULTILINE)
    }
    return {"pss": found["Pss"] * 1024 / 1e6, "rss": found["Rss"] * 1024 / 1e6}


def peak_memory(pid: int) -> float:
    """Return the largest RSS of a process so far in MB; 0 if the process has ended.

    `ru_maxrss` is of no use here: a child starts with the value of its parent.
    """
    match = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(match[1]) * 1024 / 1e6 if match else 0.0


def threads(pid: int) -> int:
    """Return the number of threads of a process."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def cpu(pid: int) -> float:
    """Return the seconds of CPU that all threads of a process have used so far."""
    clock = (~pid << 3) | 2  # the clock ID that clock_getcpuclockid(3) returns on Linux
    return time.clock_gettime(clock)


def wake_ups(pid: int) -> int:
    """Return the number of voluntary context switches of all threads of a process so far.

    A thread that wakes up and sleeps again makes one such switch.
    """
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        match = re.search(
            r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.MULTILINE
        )
        total += int(match[1]) if match else 0
    return total


async def bare_imports_pss(modules: str) -> float:
    """Return the PSS in MB of a Python process that only imports `modules` and waits."""
    code = f"import {modules}, sys; print('ready', flush=True); sys.stdin.read()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    assert process.stdin
    await process.stdout.readline()
    found = memory(process.pid)["pss"]
    process.stdin.close()
    await process.wait()
    return found


class Table(NamedTuple):
    """A title, and lines of cells; the first line is the header."""

    title: str
    lines: list[list[str]]


printed: list[Table] = []
"""The tables of this process, in the order in which they were printed."""


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table below a heading."""
    lines = [list(header), *[list(row) for row in rows]]
    printed.append(Table(title, lines))
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n### {title}\n")
    for number, line in enumerate(lines):
        print("| " + " | ".join(cell.ljust(widths[i]) for i, cell in enumerate(line)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    sys.stdout.flush()


def ranges(tables: Sequence[Table]) -> None:
    """Print the same table of several runs as one; a number that differs becomes a range."""
    (title, *_), cells = zip(*tables, strict=True)
    lines = [list(map(_range, *each)) for each in zip(*cells, strict=True)]
    table(title, lines[0], lines[1:])


_NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")


def _range(*cells: str) -> str:
    """Return `0.9–1.2 ms` for `1.0 ms`, `0.9 ms` and `1.2 ms`; of other texts, the first."""
    found = [_NUMBER.findall(cell) for cell in cells]
    if len({_NUMBER.sub("#", cell) for cell in cells}) > 1:
        return cells[0]
    columns = (
        sorted(set(column), key=lambda each: float(each.replace(",", "")))
        for column in zip(*found, strict=True)
    )
    texts = iter([each[0] if len(each) == 1 else f"{each[0]}–{each[-1]}" for each in columns])
    return _NUMBER.sub(lambda _: next(texts), cells[0])
