"""The whole corpus is tried, and a search finds what it is for: errors, crashes, hangs, memory."""

import os
from pathlib import Path

import pytest

from tests.fuzz import bad_targets
from tests.fuzz.search import run, run_all
from tests.fuzz.target import CORPUS
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("KUBEDEVICES_FUZZ_SECONDS", "0.5"))
HALVES = [[*TARGETS][0::2], [*TARGETS][1::2]]


@pytest.mark.timeout(260 + 5 * len(HALVES[0]) * SECONDS)
@pytest.mark.parametrize("targets", HALVES, ids=["one half", "other half"])
def test_the_corpus_and_a_short_search_find_nothing(targets: list[str], tmp_path: Path) -> None:
    """Every input of an earlier finding is read without a bug, and some new inputs too."""
    found = run_all(targets, SECONDS, seed=1, corpus=tmp_path)
    last = found[-1]
    assert not last.problem, f"{last.problem}\n{last.output[-4000:]}\nin {last.saved}"
    assert [each.target for each in found] == targets


def test_a_finding_belongs_to_its_target(tmp_path: Path) -> None:
    """A process that searches several targets ends at the first finding, and names its target."""
    names = ["harmless", "raises", "crashes"]
    found = run_all(names, 1, seed=1, module=bad_targets.__name__, corpus=tmp_path)
    assert [(each.target, each.problem) for each in found] == [
        ("harmless", ""),
        ("raises", "an error"),
    ]
    assert found[0].inputs
    assert found[1].saved
    assert found[1].saved.parent.name == "raises"


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("raises", "an error"),
        ("crashes", "killed by SIGSEGV"),
        ("computes", "too much processor time"),
        ("waits", "it does not end"),
        ("takes-memory", "an error"),
    ],
)
def test_a_bug_is_found_and_its_input_is_saved(target: str, problem: str, tmp_path: Path) -> None:
    """Also one that kills the process or never ends. The saved input shows the bug again."""
    found = run(target, 60, seed=1, module=bad_targets.__name__, corpus=tmp_path)
    assert (found.problem, found.inputs) == (problem, 0)
    assert found.saved
    assert found.saved.parent == tmp_path / target
    assert b"[" in found.saved.read_bytes() or target == "raises"


def test_the_input_of_an_error_is_small(tmp_path: Path) -> None:
    """The search saves the smallest input that it finds for the error."""
    found = run("raises", 60, seed=2, module=bad_targets.__name__, corpus=tmp_path)
    assert found.saved
    assert found.saved.read_bytes() == bytes(5)
    assert "ValueError: too long" in found.output


def test_a_seed_is_tried_before_the_search(tmp_path: Path) -> None:
    """A search of no time tries the seeds, and the files of the corpus likewise."""
    found = run("seed", 0, seed=1, module=bad_targets.__name__, corpus=tmp_path)
    assert found.saved
    assert found.saved.read_bytes() == bad_targets.MANY


def test_each_directory_of_the_corpus_belongs_to_a_target() -> None:
    """No file of the corpus is left over from a target that does not exist any more."""
    assert {each.name for each in CORPUS.iterdir()} <= set(TARGETS)
