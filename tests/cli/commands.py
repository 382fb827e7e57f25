"""Runs the command line as a user does: in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

COMMAND = (sys.executable, "-W", "error", "-m", "kubedevices.cli")

DEADLINE = 60

FEW_FILES = ("sh", "-c", 'ulimit -S -n 100; exec "$@"', "sh")
"""Before a command: a small soft limit of open files."""


def may_open_all_files(pid: int) -> bool:
    """Whether the process has raised its soft limit of open files to the hard limit."""
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (line,) = (each for each in limits if each.startswith("Max open files"))
    soft, hard = line.split()[3:5]
    return soft == hard


def run(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@contextmanager
def running(
    arguments: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    log: Path,
    before: Sequence[str] = (),
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command beside the test, its stderr in `log`; stop it in the end.

    `before` are words before the command, such as `FEW_FILES`.
    """
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*before, *COMMAND, *map(str, arguments)],
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
