"""Attacks on processes of ours, as a hostile neighbour, user, plugin or API server would do them.

Each attack acts on processes and in directories that it has started and made itself. A success is
an attempt that does harm: the attack says which. The column of the wait is what an honest caller
beside the attack has waited at most. The column of the memory is the peak (RSS) of the attacked
process, beside the memory limit in our manifests.
"""

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure
from kubedevices.manifests import memory

ROOT = Path(__file__).parents[1]
MODULES = (
    "benchmarks.attack_files",
    "benchmarks.attack_plugins",
    "benchmarks.attack_floods",
    "benchmarks.attack_lists",
)
KUBEDEVICES = (sys.executable, "-m", "kubedevices.cli")
LIMIT = memory.limit_mib(0) * 2**20 / 1e6
"""MB: the memory limit in the manifests of node, plugin, driver and proxy."""

DEADLINE = 60.0
"""Seconds for a start, and for an attack that waits for an effect."""

SLOW = 1.0
"""Seconds: an honest caller that waits longer is harmed."""


@dataclass
class Outcome:
    """What came of an attack; waits in milliseconds, `peak` in MB, None: not measured.

    `quiet` is the longest wait of the honest caller without the attack.
    """

    attempts: int = 0
    successes: int = 0
    wait: float | None = None
    peak: float | None = None
    quiet: float | None = None

    def count(self, *, harmed: bool) -> None:
        """Add an attempt."""
        self.attempts += 1
        self.successes += harmed

    def waited(self, milliseconds: float) -> None:
        """Note what an honest caller has waited."""
        self.wait = max(self.wait or 0.0, milliseconds)

    def used(self, megabytes: float) -> None:
        """Note the memory of an attacked process."""
        self.peak = max(self.peak or 0.0, megabytes)


class Attack(NamedTuple):
    """`who` attacks, as in SECURITY.md; `harm` is what counts as a success."""

    who: str
    harm: str
    act: Callable[[Path], Awaitable[Outcome]]


@dataclass
class Ended:
    """A command that has ended. `code` is None if it had to be killed."""

    code: int | None
    output: str
    seconds: float
    """Processor time: a busy machine does no harm."""

    peak: float

    @property
    def has_crashed(self) -> bool:
        """Whether it was ended by a signal, did not end, or printed a traceback."""
        return self.code is None or self.code < 0 or "Traceback" in self.output


async def command(
    *words: str | Path,
    timeout: float = 30.0,
    enough: Callable[[], object] = lambda: False,
    **environment: str,
) -> Ended:
    """Run `kubedevices WORDS` to its end; kill it after `timeout` seconds, or when `enough()`."""
    began = time.monotonic()
    process = await _spawn(words, asyncio.subprocess.PIPE, environment)
    reading = asyncio.create_task(process.communicate(), name="output of an attacked command")
    peak = seconds = 0.0
    while not reading.done() and time.monotonic() - began < timeout and not enough():
        with contextlib.suppress(OSError):
            peak = max(peak, measure.peak_memory(process.pid))
            seconds = measure.cpu(process.pid)
        await asyncio.wait({reading}, timeout=0.02)
    is_killed = not reading.done()
    if is_killed:
        process.kill()
    output, _ = await reading
    code = None if is_killed else process.returncode
    return Ended(code, output.decode(errors="replace"), seconds, peak)


async def _spawn(
    words: Sequence[str | Path], output: int, environment: dict[str, str]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *KUBEDEVICES,
        *map(str, words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}/src", **environment},
    )


@contextlib.asynccontextmanager
async def serving(
    *words: str | Path, ready: Callable[[], object], **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `kubedevices WORDS` until the end of the context, which begins when `ready()` is true."""
    process = await _spawn(words, asyncio.subprocess.DEVNULL, environment)
    try:
        await until(lambda: ready() or process.returncode is not None)
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def until(is_true: Callable[[], object], seconds: float = DEADLINE) -> bool:
    """Wait for a condition; return whether it became true in time."""
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


async def beside(outcome: Outcome, honest: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Do what an honest caller does, again and again; count each try, and note its wait."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        try:
            async with asyncio.timeout(15 * SLOW):
                await honest()
            is_harmed = time.monotonic() - began > SLOW + (outcome.quiet or 0) / 1e3
        except Exception:  # an honest caller that gets an error is harmed
            is_harmed = True
        outcome.waited((time.monotonic() - began) * 1e3)
        outcome.count(harmed=is_harmed)
        await asyncio.sleep(0.02)


async def main(*, quick: bool = False) -> None:
    """Print the table; the quick form makes the first attack of each module."""
    rows = []
    for module in MODULES:
        attacks: dict[str, Attack] = import_module(module).ATTACKS
        for name, attack in [*attacks.items()][: 1 if quick else None]:
            directory = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
            try:
                found = await attack.act(directory)
                rows.append(_row(name, attack, found))
            except Exception as error:  # the other attacks count all the same
                rows.append([attack.who, name, attack.harm, f"not made: {error!r:.60}", *"-----"])
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            print(rows[-1], file=sys.stderr, flush=True)
    measure.table(
        f"Attacks: attempts, successes, wait of an honest caller, memory (limit {LIMIT:.0f} MB)",
        (
            *("who", "attack", "harm", "attempts", "successes"),
            *("wait without, ms", "wait beside, ms", "peak, MB", "within limit"),
        ),
        rows,
    )


def _row(name: str, attack: Attack, found: Outcome) -> list[str]:
    waits = ["-" if each is None else f"{each:,.0f}" for each in (found.quiet, found.wait)]
    peak, within = "-", "-"
    if found.peak is not None:
        peak, within = f"{found.peak:,.0f}", "yes" if found.peak <= LIMIT else "NO"
    counts = (f"{found.attempts:,}", f"{found.successes:,}")
    return [attack.who, name, attack.harm, *counts, *waits, peak, within]
