"""`-n`: tests that hang and workers that die are reported, and the other tests run."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.worker_groups import group_of

ROOT = Path(__file__).parents[1]
HOOKS = "pytest_configure, pytest_runtest_setup, pytest_xdist_make_scheduler"
CONFTEST = f"from tests.conftest import {HOOKS}\n"
LIMIT = 300
"""Seconds of a run on a busy machine: each worker loads Python and the plugins of pytest."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT)]
each_way = pytest.mark.parametrize("way", ["worksteal", "loadgroup"])
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


def run(directory: Path, *options: str, start: Sequence[str] = ()) -> str:
    """Run the tests of a directory in two workers; return the output."""
    done = subprocess.run(
        [
            *(
                *start,
                sys.executable,
                "-m",
                "pytest",
                "-n",
                "2",
                "--reruns=1",
                "-p",
                "no:cacheprovider",
            ),
            *("-c", f"{ROOT}/pyproject.toml", f"--rootdir={ROOT}", *options, str(directory)),
        ],
        cwd=ROOT,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.stdout


@each_way
def test_a_hanging_test_and_a_dying_worker_are_reported_and_the_rest_runs(
    tmp_path: Path, way: str
) -> None:
    """With the settings of this project, in two workers."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text(OTHER_TESTS)
    printed = run(tmp_path, f"--dist={way}")
    last = printed.splitlines()[-1]
    assert re.search(r"\b3 failed, 1[4-6] passed, [12] errors?, [345] rerun in", last), printed
    assert "INTERNALERROR" not in printed
    summary = printed.partition("short test summary")[2]
    for name in ("waits_for_a_lock", "waits_for_an_event", "ends_its_worker"):
        assert f"test_some.py::test_{name}" in summary
    assert "ERROR test_other.py::" in summary
    assert "RuntimeError: at the end of the file" in printed
    assert "in the worker" not in printed.partition("= ERRORS")[0]
    assert "crashed while running 'test_some.py::test_ends_its_worker'" in printed


def test_a_worker_that_dies_at_its_end_is_reported(tmp_path: Path) -> None:
    """The report names its last test, which has a second try as any other."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(DIES_AT_ITS_END)
    printed = run(tmp_path)
    assert "INTERNALERROR" not in printed
    assert re.search(r"\b[12] failed(?:, 1 rerun)? in", printed.splitlines()[-1]), printed
    assert "crashed while running 'test_some.py::test_works'" in printed


def test_the_workers_share_the_limit_of_reruns(tmp_path: Path) -> None:
    """`--max-suite-reruns` is the limit for all workers together."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(
            "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_fails(n): assert 0\n"
        )
    printed = run(tmp_path, "--max-suite-reruns=3")
    assert re.search(r"\b8 failed, 3 rerun in", printed.splitlines()[-1]), printed


def test_one_worker_runs_all_tests_that_share_our_image_or_a_cluster() -> None:
    """So the image is built once, and one cluster is started."""
    groups = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        fixture = re.search(r"def test_\w+\([^)]*\b(built: ImageHost|cluster: Cluster)", text)
        groups[name] = group_of(f"{name}::test"), fixture and fixture[1]
    assert {group for group, fixture in groups.values() if fixture == "built: ImageHost"} == {
        "image"
    }
    assert {group for group, used in groups.values() if used == "cluster: Cluster"} == {"cluster"}
    assert groups["tests/errors/test_words.py"] == ("tests/errors/test_words.py::test", None)


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_tests_start_as_from_a_terminal_whatever_the_parent_ignores(
    tmp_path: Path, workers: str
) -> None:
    """Ignored signals and an umask of 077 are not those of the tests, nor of what they start."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(
        "import os, subprocess\n"
        "def test_of_the_start():\n"
        "    told = subprocess.check_output(['grep', 'SigIgn', '/proc/self/status'], text=True)\n"
        "    assert not int(told.split()[1], 16) & 3  # SIGHUP and SIGINT\n"
        "    assert os.umask(0) == 0o022\n"
    )
    start = ["sh", "-c", 'trap "" INT HUP; umask 077; exec "$@"', "sh"]
    printed = run(tmp_path, workers, start=start)
    assert re.search(r"\b1 passed in", printed.splitlines()[-1]), printed
