"""Needs of tests: skipped with a reason, counted at the end of the run, failed in CI."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_needs import NEEDS, require, skip_lines
from tests.test_house_rules import ROOT, tracked_files

TESTS = """\
import pytest
from tests import host_needs
from tests.host_needs import Need, needs

host_needs.NEEDS["moon"] = Need("the far side", lambda: False, "fly there")
host_needs.NEEDS["luck"] = Need("dice", lambda: False, "wait", in_ci=False)

@pytest.fixture
def rocket():
    host_needs.require("moon")

@needs("moon")
@pytest.mark.parametrize("n", range(3))
def test_of_the_mark(n): raise AssertionError

def test_of_the_fixture(rocket): raise AssertionError

@needs("luck", "moon", "root or user")
def test_of_both(): raise AssertionError

@needs("root or user")
def test_that_runs(): pass

host_needs.NEEDS["root or user"] = Need("nothing", lambda: True, "nothing")
"""


def run(directory: Path, **environment: str) -> str:
    (directory / "conftest.py").write_text(
        "from tests.conftest import pytest_configure, pytest_runtest_setup\n"
        "from tests.conftest import pytest_terminal_summary\n"
    )
    (directory / "test_some.py").write_text(TESTS)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2"]
    command += ["-c", f"{ROOT}/pyproject.toml", f"--rootdir={ROOT}", str(directory)]
    done = subprocess.run(
        command, cwd=ROOT, env=kept | environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_line_for_each_reason_says_how_many_tests_are_lost_and_what_brings_them(
    tmp_path: Path,
) -> None:
    """A mark and a fixture with the same need count together; the tests themselves do not run."""
    lines = run(tmp_path).splitlines()
    assert "4 tests of the far side skipped: need moon: fly there" in lines
    assert "1 test of dice, the far side skipped: need luck, moon: wait; fly there" in lines
    assert re.search(r"\b1 passed, 5 skipped in", lines[-1]), lines
    assert not [line for line in lines if line.startswith("SKIPPED")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_in_ci_a_skip_is_a_failure_if_ci_promises_all_that_the_test_needs(tmp_path: Path) -> None:
    """A test that also needs what no package brings is skipped there too."""
    printed = run(tmp_path, CI="true")
    assert re.search(r"\b1 passed, 1 skipped, 4 errors in", printed.splitlines()[-1]), printed
    assert "in CI everything must run: the far side: need moon: fly there" in printed


def test_every_probe_answers() -> None:
    """No probe raises an error, whatever this host lacks."""
    for need in NEEDS.values():
        need.probe()


def test_a_name_that_the_registry_lacks_is_an_error() -> None:
    """A misspelt need would otherwise skip a test everywhere, or nowhere."""
    with pytest.raises(KeyError, match="rot"):
        require("rot")


def test_a_number_of_descriptors_is_a_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hard limit decides; the soft limit is raised to the number."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    raised = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    require(descriptors=1000)
    assert not raised
    require(descriptors=4096)
    assert raised == [(4096, 4096)]
    with pytest.raises(pytest.skip.Exception, match="need 4097 descriptors: ulimit -Hn 4097"):
        require(descriptors=4097)


def test_only_the_registry_skips_tests() -> None:
    """Any other skip would have no line at the end of the run that says what is lost."""
    pattern = re.compile(r"pytest\.skip\(|importorskip|skipif|unittest\.skip|SkipTest")
    allowed = {ROOT / "tests/host_needs.py", Path(__file__)}
    for path in tracked_files():
        if path.suffix == ".py" and path not in allowed:
            assert not pattern.search(path.read_text()), path


def test_lines_are_sorted_by_the_number_of_tests() -> None:
    """pytest puts a word before the reason, which says nothing here."""
    reasons = ["Skipped: b: need c: d", "Skipped: x: need y: z", "Skipped: x: need y: z"]
    assert skip_lines(reasons) == [
        "2 tests of x skipped: need y: z",
        "1 test of b skipped: need c: d",
    ]
