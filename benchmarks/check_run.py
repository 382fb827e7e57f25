"""What a full `kubedevices check` of a well-behaved plugin costs, beside the plugin that it runs.

The plugin is our simulator, so that the benchmark needs nothing else; most of the time is waiting.
"""

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import time

from benchmarks import measure

KUBEDEVICES = [sys.executable, "-m", "kubedevices.cli"]
SIMULATE = [*KUBEDEVICES, "simulate", "--socket-dir", "{socket_dir}"]
QUICK = ["--only", "registration.version", "list.second-stream"]


def run(arguments: list[str]) -> tuple[dict[str, object], float, float, float]:
    """Return what the check says, its wall and processor seconds, and its peak memory in MB."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*KUBEDEVICES, "check", "-o", "json", *arguments, "--", *SIMULATE]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    peak, output = 0.0, None
    while output is None:
        peak = max(peak, measure.peak_memory(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            output = process.communicate(timeout=0.2)[0]
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(output), took, processor, peak


async def main(*, quick: bool = False) -> None:
    """Print the table."""
    document, took, processor, peak = await asyncio.to_thread(run, QUICK if quick else [])
    checks = document["checks"]
    assert isinstance(checks, list)
    done = [check for check in checks if check["status"] != "skip"]
    rows = [[str(len(done)), f"{took:.0f}", f"{processor:.1f}", f"{peak:.0f}"]]
    header = [
        "checks run",
        "wall time in s",
        "processor time in s",
        "peak memory in MB",
    ]
    measure.table("A check of the simulator", header, rows)
