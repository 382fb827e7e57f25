"""Compares the verdicts of `kubedevices check` on a quiet machine and on an overloaded machine.

The plugins and DRA drivers are good ones, and faulty ones whose faults a check finds by time. The
benchmark runs all checks with their normal times on each: first alone, then beside ten busy
processes per processor.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import measure
from kubedevices.check.busy_machine import raised_priority
from kubedevices.check.checks import ALL, find
from kubedevices.check.drivers.rules import ALL as RULES
from kubedevices.check.drivers.run import run_driver
from kubedevices.check.drivers.timing import DriverTiming
from kubedevices.check.kubelets import Kubelets
from kubedevices.check.results import CheckResult
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target
from kubedevices.check.timing import CheckTiming
from tests.check.grpc_driver_rig import grpc_driver
from tests.check.mutants.registry import all_mutations
from tests.check.rig import GOOD_PLUGIN, MUTANT, target, widgets
from tests.interop import go_peer

BUSY_PER_PROCESSOR = 10
MUTANTS = (  # only faulty plugins without timers that fit only the short times of the tests
    "stops-slowly",
    "rocm-any-stream-end-exits",
    "akri-never-registers-again",
    "generic-streams-share-a-queue",
    "leaks-descriptors",
)
DEFECTS = ("register.socket-wiped", "slices.quiet", "slices.conflict", "prepare.concurrent")
DRIVERS = {"driver on grpcio": "", **{f"driver, {defect}": defect for defect in DEFECTS}}
KUBELETS = Kubelets((1, 32), (1, 36))

Verdicts = dict[tuple[str, str], CheckResult]


def plugins(directory: Path) -> dict[str, Target]:
    """Return the checked plugins by name."""
    good = target(GOOD_PLUGIN, directory)
    simulate = (sys.executable, "-m", "kubedevices.cli", "simulate", "--socket-dir", "{socket_dir}")
    found = {
        "simulate": Target(simulate),
        "grpcio": good,
    }
    if shutil.which("go"):
        command = (str(go_peer.binary()), "plugin", "{socket_dir}", str(directory))
        found["Go"] = replace(good, command=command)
        found["Go, 10 s before Register"] = replace(good, command=(*command, "waits", "10s"))
    for name in MUTANTS:
        options = ("--mutation", name, *all_mutations()[name].options)
        found[name] = target(MUTANT, directory, options)
    return {name: replace(each, side_by_side=True) for name, each in found.items()}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` busy processes; the kernel ends them if this process is killed."""
    command = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", "while :; do :; done")
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for each in processes:
            each.terminate()
        for each in processes:
            each.wait()


async def verdicts_of(name: str, *, quick: bool) -> tuple[Verdicts, float]:
    """Check one plugin; return the verdicts and the seconds of the run."""
    began = time.monotonic()
    with widgets() as directory, raised_priority():  # the command `check` does the same
        if name in DRIVERS:
            driver = grpc_driver(directory / "devices", DRIVERS[name])
            results = (await run_driver(driver, RULES, DriverTiming())).results
        else:
            checks = [find("registration.version")] if quick else ALL
            plugin = plugins(directory)[name]
            results = (await run_all(plugin, checks, CheckTiming(), kubelets=KUBELETS)).results
    return {(each.check.id, each.resource): each for each in results}, time.monotonic() - began


def differences(quiet: Verdicts, loaded: Verdicts) -> list[str]:
    """Return one line for each check with another status in the second run."""
    return [
        f"{where[0]} of {where[1]}: "
        + ", then ".join(
            f"{each.status} ({each.verdict.evidence})" if each else "no verdict"
            for each in (quiet.get(where), loaded.get(where))
        )
        for where in sorted({*quiet, *loaded})
        if (one := quiet.get(where)) is None
        or (other := loaded.get(where)) is None
        or one.status != other.status
    ]


async def main(*, quick: bool = False) -> None:
    """Print the table and every verdict that differs."""
    with widgets() as directory:
        names = [*plugins(directory), *DRIVERS][: 1 if quick else None]
    rows, lines = [], []
    for name in names:
        quiet, alone = await verdicts_of(name, quick=quick)
        with busy(1 if quick else BUSY_PER_PROCESSOR * (os.cpu_count() or 1)):
            loaded, beside = await verdicts_of(name, quick=quick)
        differing = differences(quiet, loaded)
        lines += [f"{name}: {each}" for each in differing]
        rows.append([name, str(len(quiet)), f"{alone:.0f}", f"{beside:.0f}", str(len(differing))])
        print(" ".join(rows[-1]), *differing, sep="\n", file=sys.stderr, flush=True)
    header = ["plugin", "verdicts", "seconds quiet", "seconds busy", "verdicts that differ"]
    measure.table("Verdicts of `check` on a quiet and on a busy machine", header, rows)
    print(*lines, sep="\n")
