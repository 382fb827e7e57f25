"""The CPU time of a start of `kubedevices node`, beside a Python that only imports asyncio.

The time ends when the node prints that plugins may register. All modules are compiled before, as in
an installed package. The two programs start in turns.
"""

import asyncio
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

from benchmarks import measure
from benchmarks.node_rig import ROOT

BASELINE = "import asyncio, sys; print('ready', flush=True); sys.stdin.read()"
NODE = "import sys; from kubedevices.cli import main; sys.exit(main())"


async def start(program: str, arguments: Sequence[str], compiled: Path) -> float:
    """Start a program and end it; return its milliseconds of CPU until it prints `ready`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments),
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONPYCACHEPREFIX": str(compiled)},
        stdin=PIPE,
        stdout=PIPE,
    )
    assert process.stdout
    try:
        while b"ready" not in (line := await process.stdout.readline()):
            if not line:
                raise RuntimeError(f"{arguments}: the program ended before it was ready")
        return measure.cpu(process.pid) * 1e3
    finally:
        process.kill()
        await process.wait()


async def main(*, quick: bool = False) -> None:
    """Print the table: p50 / maximum."""
    directory = Path(tempfile.mkdtemp(prefix="kd-"))
    compiled = directory / "compiled"
    alone, node, ratios = [], [], []
    try:
        for number in range(2 if quick else 31):
            sockets = directory / str(number)
            alone.append(await start(BASELINE, [], compiled))
            node.append(await start(NODE, ["node", "--socket-dir", str(sockets)], compiled))
            ratios.append(node[-1] / alone[-1])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    measure.table(
        "Start of `node` until it is ready: milliseconds of CPU",
        ("a Python that imports asyncio", "node", "ratio"),
        [
            [
                # The first start of each program compiles the modules, so it does not count.
                *(
                    f"{measure.median(each[1:]):.0f} / {max(each[1:]):.0f}"
                    for each in (alone, node)
                ),
                f"{measure.median(ratios[1:]):.2f}",
            ]
        ],
    )
