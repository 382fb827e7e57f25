"""Runs the command line as a user does: in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

COMMAND = (sys.executable, "-W", "error", "-m", "kubedevices.cli")

DEADLINE = 60


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
    arguments: Sequence[object], *, env: Mapping[str, str] | None = None, log: Path
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command beside the test, its stderr in `log`; stop it in the end."""
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
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
