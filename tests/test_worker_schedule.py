"""A test that hangs or dies is named, and the others run."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler\n"
TESTS = """\
import asyncio, os, threading, time
import pytest

@pytest.mark.parametrize("number", range(12))
def test_works(number):
    time.sleep(0.01)

@pytest.mark.timeout(1)
def test_waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

@pytest.mark.timeout(1)
async def test_waits_for_an_event():
    await asyncio.Event().wait()

def test_ends_its_worker():
    os._exit(3)
"""


def test_a_hanging_test_and_a_dying_worker_are_named_and_the_rest_runs(tmp_path: Path) -> None:
    """With the settings of this project, in two workers."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"),
            *("-c", ROOT / "pyproject.toml", "--rootdir", ROOT, tmp_path),
        ],
        cwd=ROOT,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    last = done.stdout.splitlines()[-1]
    assert "3 failed, 12 passed" in last, done.stdout
    assert "INTERNALERROR" not in done.stdout
    for name in ("waits_for_a_lock", "waits_for_an_event", "ends_its_worker"):
        assert f"::test_{name}" in done.stdout.partition("short test summary")[2]
