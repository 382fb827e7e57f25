"""No process of the tests forks after it has loaded grpcio."""

import os
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from tests.forking import may_fork
from tests.test_house_rules import ROOT, name_of, tracked_files

FORKING = {
    "tests/check/preloaded_supervisor.py",
    "tests/proxy/behind_proxy.py",
    "tests/kubernetes/single_node/processes.py",  # no test imports it: it has its own process
}
"""The programs of the tests that fork. The first two load more, and call `may_fork` before."""

LOADS = """\
import sys
from importlib import import_module
from tests.check.preloaded_supervisor import PRELOADED
for name in (*PRELOADED, "tests.proxy.behind_proxy", "tests.check.our_program"):
    import_module(name)
print([name for name in sys.modules if name.startswith("grpc")])
"""


def test_a_process_with_grpcio_may_not_fork() -> None:
    """This process has loaded grpcio: pytest reports the fork as an error of this test."""
    assert grpc
    with pytest.raises(RuntimeError, match="has loaded grpcio"):
        may_fork()


@pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning")
def test_a_fork_in_a_test_is_an_error_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule runs before each fork of a process of pytest; a program that is executed is none."""
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: seen.append(found.exc_value))
    subprocess.run(["true"], check=True)
    assert not seen
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert [type(error) for error in seen] == [RuntimeError]


def test_the_processes_that_fork_have_not_loaded_grpcio() -> None:
    """Whatever they load before their forks, grpcio is not among it."""
    done = subprocess.run(
        [sys.executable, "-c", LOADS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_only_these_programs_of_the_tests_fork() -> None:
    """Code between fork and execution, as `preexec_fn`, would run in a copy of pytest."""
    pattern = re.compile(
        r"os\.fork\(|preexec_fn|\bmultiprocessing\.|import multiprocessing|forkpty"
    )
    found = {
        name_of(path)
        for path in tracked_files()
        if path.suffix == ".py" and name_of(path).startswith("tests/") and path != Path(__file__)
        if pattern.search(path.read_text())
    }
    assert found == FORKING
