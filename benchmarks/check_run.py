"""The time and memory of a run of `kubedevices check`; most of the time the check waits.

Three plugins: our simulator; a good plugin on grpcio whose devices a trigger changes; a plugin that
serves for ten seconds before it registers, as kubevirt's framework does, also with a trigger. Two
DRA drivers: our simulator; a good driver on grpcio, also with a trigger.
"""

import asyncio
import contextlib
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import measure
from tests.check.grpc_driver_rig import grpc_driver
from tests.check.our_driver import PLACES
from tests.check.rig import GOOD_PLUGIN, hot_plug, widgets
from tests.interop import go_peer

KUBEDEVICES = [sys.executable, "-m", "kubedevices.cli"]
SIMULATE = ["--", *KUBEDEVICES, "simulate", "--socket-dir", "{socket_dir}"]
DRA = ["--", *KUBEDEVICES, "simulate", "--mode", "dra", "--env-prefix", "GPU", *PLACES]
SHORT = ["--only", "registration.version", "list.second-stream"]


def runs(directory: Path) -> dict[str, list[str]]:
    """Return the arguments of each run, by the name of its row."""
    trigger = hot_plug(directory)
    changing = ["--trigger", trigger.command, "--undo", trigger.undo]
    good = [sys.executable, str(GOOD_PLUGIN), "--socket-dir", "{socket_dir}"]
    good += ["--cdi-dir", "{cdi_dir}", "--device-dir", str(directory)]
    found = {
        "simulator": SIMULATE,
        "simulator, --quick": ["--quick", *SIMULATE],
        "grpcio, --trigger": [*changing, "--", *good],
        "grpcio, --trigger --quick": ["--quick", *changing, "--", *good],
    }
    if shutil.which("go"):
        go = [str(go_peer.binary()), "plugin", "{socket_dir}", str(directory), "waits", "10s"]
        found["10 s before Register, --trigger"] = [*changing, "--", *go]
    return found


def driver_runs(directory: Path) -> dict[str, list[str]]:
    """Return the arguments of each run of a DRA driver, by the name of its row."""
    good = grpc_driver(directory / "devices")
    trigger = ["--trigger", good.trigger.command, "--undo", good.trigger.undo]
    return {
        "simulator": DRA,
        "simulator, --quick": ["--quick", *DRA],
        "grpcio, --trigger": [*trigger, "--", *good.command],
        "grpcio, --trigger --quick": ["--quick", *trigger, "--", *good.command],
    }


def run(arguments: list[str]) -> tuple[dict[str, object], float, float, float]:
    """Return the report of a check, its wall and CPU seconds, and its peak memory in MB."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*KUBEDEVICES, "check", "-o", "json", *arguments]
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
    """Print the tables."""
    with widgets() as directory:
        chosen = {"simulator": [*SHORT, *SIMULATE]} if quick else runs(directory)
        await print_table("Runs of `check`", "plugin", chosen)
    with widgets() as directory:
        short = {"simulator": ["--only", "register.info", *DRA]}
        chosen = short if quick else driver_runs(directory)
        await print_table("Runs of `check` for DRA drivers", "driver", chosen)


async def print_table(title: str, what: str, chosen: dict[str, list[str]]) -> None:
    """Run the check with each of the arguments, one after another."""
    rows = []
    for name, arguments in chosen.items():
        document, took, processor, peak = await asyncio.to_thread(run, arguments)
        checks = document["checks"]
        assert isinstance(checks, list)
        done = [check for check in checks if check["status"] != "skip"]
        rows.append([name, str(len(done)), f"{took:.0f}", f"{processor:.1f}", f"{peak:.0f}"])
    seconds = ["wall time in s", "processor time in s"]
    measure.table(title, [what, "checks run", *seconds, "peak memory in MB"], rows)
