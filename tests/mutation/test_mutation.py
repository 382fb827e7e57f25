"""What counts as a killed mutant, and which statements are changed."""

import subprocess
import textwrap
import tomllib
from pathlib import Path

import pytest

from tests.mutation.judge import ROOT, Baseline, Judge, Verdict, copy_of_the_tree, stages_of
from tests.mutation.mutant import Mutant, with_two_steps_swapped, without_a_step

MODULE = "src/kubedevices/rules/doubled.py"
TEXT = '''\
"""Doubles."""

import logging

_log = logging.getLogger(__name__)


def double(numbers: list[int]) -> int:
    """Return the sum of the doubled numbers."""
    total = 0
    for each in numbers:
        _log.debug("%d", each)
        total += each
        total += each
    return total
'''
TEST = """\
from kubedevices.rules.doubled import double

def test_double():
    assert double([1, 2]) == 6
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a project with one more module than ours, and only its test."""
    for name in ("src/kubedevices", "src/kubedevices/rules"):
        (tmp_path / name).mkdir(parents=True)
        for each in (ROOT / name).iterdir():
            if each.name not in ("rules", "__pycache__"):
                (tmp_path / name / each.name).symlink_to(each)
    (tmp_path / "tests/rules").mkdir(parents=True)
    (tmp_path / MODULE).write_text(TEXT)
    (tmp_path / "tests/rules/test_doubled.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    return tmp_path


def mutant(tree: Path, old: str, new: str) -> Mutant:
    text = (tree / MODULE).read_text()
    assert old in text
    return Mutant(1, "", text.replace(old, new, 1))


def test_each_step_is_left_out_once() -> None:
    """Not a docstring, and not a line of the log."""
    found = {each.change: each for each in without_a_step(TEXT)}
    assert [*found] == ["without total = 0", "without total += each"]
    assert found["without total = 0"].line == 10
    assert found["without total = 0"].text == TEXT.replace("total = 0", "pass")
    assert len([*without_a_step(TEXT)]) == 3


def test_neighbours_are_swapped_with_all_their_lines() -> None:
    """What is between them stays; a step beside a statement that is none has no pair."""
    text = textwrap.dedent(
        """\
        async def end():
            first(
                1,
            )
            # about the second

            await second()
            del third
            return 4
        """
    )
    found = [*with_two_steps_swapped(text)]
    assert [each.change for each in found] == [
        "await second() before first( 1, )",
        "del third before await second()",
    ]
    assert found[0].text == textwrap.dedent(
        """\
        async def end():
            await second()
            # about the second

            first(
                1,
            )
            del third
            return 4
        """
    )


@pytest.mark.parametrize(
    ("steps", "is_swapped"),
    [
        ("a = 1; b = 2", False),
        ("a = 1; b = a", True),
        ("a = b; b = 1", True),
        ("a += 1; self.done(b)", False),
        ("a = await b(); self.done(b)", True),
        ("self.a = 1; self.done()", True),
        ("a, b = self.both(); self.done()", False),
        ("self.begin(); self.done()", True),
        ("self.a = set(); self.b = 1", False),
        ("self.a, self.c = 0, 1; self.b: int = 2", False),
        ("self.a = 1; self.b = self.a", True),
        ("self.a = await b(); self.c = 1", True),
        ("self.a.c = 1; self.b = 1", True),
        ("a = {x for x in p}; b = [x for x in q]", False),
        ("a = [x for x in p]; p = q", True),
    ],
)
def test_steps_whose_order_says_nothing_stay(steps: str, is_swapped: bool) -> None:
    """Names and fields that know nothing of each other would survive every test."""
    lines = steps.replace("; ", "\n    ")
    found = [*with_two_steps_swapped(f"async def f(self):\n    {lines}\n")]
    assert len(found) == is_swapped


@pytest.mark.slow
def test_only_a_failed_test_and_a_time_limit_kill(tree: Path) -> None:
    """A module that cannot be imported says nothing about its tests."""
    judge = Judge(tree)
    (files, _) = stages_of(MODULE, tree)
    assert files == ("tests/rules/test_doubled.py",)
    tests = judge.baseline(files)
    assert isinstance(tests, Baseline)
    before = (tree / MODULE).read_text()

    def verdict(old: str, new: str, limit: float = tests.limit) -> Verdict:
        return judge.verdict(MODULE, mutant(tree, old, new), Baseline(files, limit))

    assert verdict("total = 0", "total = 1") is Verdict.KILLED
    assert verdict("total = 0", "total = 0 + 0") is Verdict.SURVIVED
    assert verdict("total = 0", "total = (") is Verdict.NO_VERDICT
    assert verdict("total = 0", "total = 0\n    while True: pass", 5.0) is Verdict.KILLED
    assert (tree / MODULE).read_text() == before


def test_the_other_tests_of_the_package_come_after_those_that_name_the_module(tree: Path) -> None:
    """They are slower, and judge only what survives the first."""
    (tree / "tests/rules/test_first.py").write_text("def test_first(): pass")
    (tree / "tests/rules/test_other.py").write_text(TEST)
    near = ("tests/rules/test_doubled.py", "tests/rules/test_other.py")
    assert stages_of(MODULE, tree) == [near, (near[0], "tests/rules/test_first.py", near[1])]
    assert stages_of("src/kubedevices/none/other_name.py", tree) == []


def test_the_tests_of_a_verb_that_uses_a_module_judge_it_too(tree: Path) -> None:
    """What only `deploy` calls is tested only by its tests."""
    (tree / "src/kubedevices/cli").unlink()
    (tree / "src/kubedevices/cli/cluster").mkdir(parents=True)
    use = "from kubedevices.rules.doubled import double"
    (tree / "src/kubedevices/cli/cluster/deploy.py").write_text(use)
    (tree / "tests/cli").mkdir()
    (tree / "tests/cli/test_deploy_values.py").write_text('def test_it(): cli("deploy")')
    (tree / "tests/cli/test_scan.py").write_text("def test_it(): pass")
    (_, others) = stages_of(MODULE, tree)
    assert others == ("tests/cli/test_deploy_values.py", "tests/rules/test_doubled.py")


def test_a_module_without_tests_in_its_package_has_those_of_its_name(tree: Path) -> None:
    """It is tested where two packages meet."""
    assert stages_of("src/kubedevices/none/doubled.py", tree) == [("tests/rules/test_doubled.py",)]
    (tree / "tests/dra").mkdir()
    (tree / "tests/dra/test_it.py").write_text("from kubedevices.rules.doubled import doubled")
    assert "tests/dra/test_it.py" in stages_of(MODULE, tree)[0]


def test_tests_that_fail_by_themselves_judge_nothing(tree: Path) -> None:
    """The run goes on with other modules, and says what failed."""
    (tree / "tests/rules/test_doubled.py").write_text(TEST.replace("== 6", "== 7"))
    problem = Judge(tree).baseline(("tests/rules/test_doubled.py",))
    assert isinstance(problem, str)
    assert problem.startswith("exit code 1 without a mutant")
    assert "assert 6 == 7" in problem


def test_the_copy_has_what_git_tracks(tmp_path: Path) -> None:
    """As it is now, also if it is not committed."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "kept").write_text("1")
    (project / "left").write_text("1")
    for command in (["init", "-q"], ["add", "kept"]):
        subprocess.run(["git", *command], cwd=project, check=True)
    (project / "kept").write_text("2")
    copy = copy_of_the_tree(tmp_path / "copy", project)
    assert {each.name for each in copy.iterdir()} == {"kept", ".git"}
    assert (copy / "kept").read_text() == "2"


def test_each_equivalent_mutant_still_exists() -> None:
    """A changed line has to be looked at again."""
    listed = tomllib.loads((ROOT / "tests/mutation/equivalent.toml").read_text())["is"]
    for each in listed:
        text = (ROOT / each["module"]).read_text()
        ours = {one.change for one in (*without_a_step(text), *with_two_steps_swapped(text))}
        before, _, _ = each["change"].partition(" -> ")
        assert each["change"] in ours or before in text, each["change"]
        assert each["why"]
