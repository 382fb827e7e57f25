"""Runs a process for one target or several, and saves the input of a finding in the corpus."""

import hashlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import CORPUS

ROOT = Path(__file__).parents[2]
MODULE = "tests.fuzz.targets"
_START = 240.0
"""Seconds for the start of the process, for its corpus, and to shrink the input of a finding."""

_TAKES_LONG = {-signal.SIGPROF: "too much processor time", -signal.SIGALRM: "it does not end"}


@dataclass(frozen=True)
class Outcome:
    """What came of a search: the number of inputs, or the finding."""

    target: str
    inputs: int
    problem: str = ""
    """Why the process ended; empty without a finding."""

    output: str = ""
    saved: Path | None = None


def run(
    target: str, seconds: float, seed: int, *, module: str = MODULE, corpus: Path = CORPUS
) -> Outcome:
    """Search one target. Its process is killed if it does not end by itself."""
    return run_all([target], seconds, seed, module=module, corpus=corpus)[-1]


def run_all(
    targets: Sequence[str],
    seconds: float,
    seed: int,
    *,
    module: str = MODULE,
    corpus: Path = CORPUS,
) -> list[Outcome]:
    """Search targets, each for `seconds`, in one process; the first finding is the last outcome."""
    with tempfile.TemporaryDirectory(prefix="kd-fuzz-") as directory:
        current = Path(directory) / "input"
        command = [
            *(sys.executable, "-W", "ignore", "-m", "tests.fuzz.child"),
            *(module, ",".join(targets), str(seconds), str(seed), str(current)),
        ]
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            output, errors = process.communicate(timeout=seconds * 4 * len(targets) + _START)
            problem = _problem(process.returncode)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            problem = "it does not end"
        counts = map(int, output.split())
        found = [Outcome(name, count) for name, count in zip(targets, counts, strict=False)]
        if not problem:
            return found
        data = current.read_bytes() if current.exists() else b""
    target = targets[len(found)]
    saved = corpus / target / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_bytes(data)
    return [*found, Outcome(target, 0, problem, errors, saved)]


def _problem(status: int) -> str:
    if status == 0:
        return ""
    if status in _TAKES_LONG:
        return _TAKES_LONG[status]
    return f"killed by {signal.Signals(-status).name}" if status < 0 else "an error"
