"""`-n`: tests that hang and workers that die are reported, and the other tests run."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOOKS = "pytest_addoption, pytest_configure, pytest_runtest_setup"
CONFTEST = f"from tests.conftest import {HOOKS}\n"
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


OTHER_TESTS = """\
import pytest

@pytest.fixture(scope="module")
def of_the_file():
    yield []
    raise RuntimeError("at the end of the file")

def test_has_a_directory_of_its_own(of_the_file, tmp_path):
    assert not list(tmp_path.iterdir())

def test_succeeds_in_the_second_try(of_the_file):
    print("in the worker")
    of_the_file.append(1)
    assert len(of_the_file) == 2
"""


DIES_AT_ITS_END = """\
import os, pytest

@pytest.fixture(scope="session")
def of_the_worker():
    yield
    os.kill(os.getpid(), 9)

def test_works(of_the_worker): pass
"""


def run(directory: Path, *options: str) -> str:
    """Run the tests of a directory in two workers; return the output."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "2", "--reruns=1", "-p", "no:cacheprovider"),
            *("-c", f"{ROOT}/pyproject.toml", f"--rootdir={ROOT}", *options, str(directory)),
        ],
        cwd=ROOT,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.stdout


def test_a_hanging_test_and_a_dying_worker_are_reported_and_the_rest_runs(tmp_path: Path) -> None:
    """With the settings of this project, in two workers."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text(OTHER_TESTS)
    printed = run(tmp_path)
    last = printed.splitlines()[-1]
    assert re.search(r"\b3 failed, 14 passed, [12] errors?, 3 rerun in", last), printed
    assert "INTERNALERROR" not in printed
    summary = printed.partition("short test summary")[2]
    for name in ("waits_for_a_lock", "waits_for_an_event", "ends_its_worker"):
        assert f"test_some.py::test_{name}" in summary
    assert "ERROR test_other.py::" in summary
    assert "RuntimeError: at the end of the file" in printed
    assert "in the worker" not in printed.partition("= ERRORS")[0]
    assert "the worker died in this test: exit code 3" in printed


def test_a_worker_that_dies_at_its_end_is_reported(tmp_path: Path) -> None:
    """The report names its last test. All other results are printed too."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(DIES_AT_ITS_END)
    printed = run(tmp_path)
    assert "INTERNALERROR" not in printed
    assert re.search(r"\b1 failed, 1 passed in", printed.splitlines()[-1]), printed
    assert "test_some.py::test_works" in printed.partition("short test summary")[2]
    assert "the worker died after its last test, this one: signal 9" in printed


def test_the_workers_share_the_limit_of_reruns(tmp_path: Path) -> None:
    """`--max-suite-reruns` is the limit for all workers together."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(
            "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_fails(n): assert 0\n"
        )
    printed = run(tmp_path, "--max-suite-reruns=3")
    assert re.search(r"\b8 failed, 3 rerun in", printed.splitlines()[-1]), printed
