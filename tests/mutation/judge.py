"""Runs tests on mutants in a copy of the tree.

Only a failed test, exit code 1 of pytest, or a run beyond its time limit counts as killed. Another
exit code says nothing about the tests: a module that cannot be imported kills itself.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutant import Mutant

ROOT = Path(__file__).parents[2]
SOURCE = "src/kubedevices"
_FACTOR, _LEAST = 4.0, 30.0
"""A run may take this many times as long as without a mutant, and so many seconds more."""

_LONGEST = 900.0
_PASSED, _FAILED, _NO_TESTS = 0, 1, 5
"""Exit codes of pytest. A file may have slow tests only, which are left out."""


class Verdict(StrEnum):
    """What the tests say of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    NO_VERDICT = "no verdict"


class Baseline(NamedTuple):
    """Test files that pass without a mutant, and the seconds that they may take with one."""

    files: tuple[str, ...]
    limit: float


class Run(NamedTuple):
    """The end of a run of pytest; `code` is None after the time limit."""

    code: int | None
    output: str
    seconds: float


def copy_of_the_tree(directory: Path, root: Path = ROOT) -> Path:
    """Copy the files that git tracks, as they are now; return `directory`."""
    command = ["git", "ls-files", "-z"]
    names = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (root / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, directory / name, follow_symlinks=False)
    # Some tests ask git for the files of the project, or call what `make` calls.
    for name in (".git", ".venv"):
        if (root / name).exists():
            (directory / name).symlink_to(root / name)
    return directory


def stages_of(module: str, tree: Path) -> list[tuple[str, ...]]:
    """Return the tests of a module: first all that name it, then those of its whole package."""
    parts = Path(module).relative_to(SOURCE).with_suffix("").parts
    package = tree / "tests" / parts[0]
    inside, name = (re.escape(".".join(each)) for each in (parts[:-1], parts[-1:]))
    imported = rf"from kubedevices\.{inside} import (\([^)]*|.*)"
    named = re.compile(rf"(\bkubedevices\.{inside}\.|{imported}\b){name}\b")
    # A verb of the package's name, and one that uses the module, test it as users call it.
    modules = (tree / SOURCE / "cli").rglob("*.py")
    verbs = {each.stem for each in modules if named.search(each.read_text())}
    texts = {each: each.read_text() for each in (tree / "tests/cli").glob("test_*.py")}
    called = {
        test
        for test, text in texts.items()
        if any(test.stem.startswith(f"test_{each}") for each in (parts[0], *verbs))
        or any(f'"{each}"' in text for each in verbs)
    }
    others = sorted({*package.rglob("test_*.py"), *called})
    every = sorted((tree / "tests").rglob("test_*.py"))
    own = [each for each in others if each.stem.startswith(f"test_{parts[-1]}")]
    # A module of one package may be tested where two meet: `serving/test_allocations` of `dra`.
    own = own or [each for each in every if each.stem == f"test_{parts[-1]}"]
    near = [each for each in every if each in own or named.search(each.read_text())]
    stages = [tuple(str(each.relative_to(tree)) for each in files) for files in (near, others)]
    return [each for each in stages if each]


class Judge:
    """Judges mutants in `tree`, a copy of the project that this object may change."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._baselines: dict[tuple[str, ...], Baseline | str] = {}

    def baseline(self, files: tuple[str, ...]) -> Baseline | str:
        """Run the tests without a mutant; return them, or why they cannot judge."""
        if files not in self._baselines:
            run = self._run(files, _LONGEST)
            limit = min(_FACTOR * run.seconds + _LEAST, _LONGEST)
            said = "too slow" if run.code is None else f"exit code {run.code}"
            passes = run.code in (_PASSED, _NO_TESTS)
            problem = f"{said} without a mutant\n{run.output[-3000:]}"
            self._baselines[files] = Baseline(files, limit) if passes else problem
        return self._baselines[files]

    def verdict(self, module: str, mutant: Mutant, tests: Baseline) -> Verdict:
        """Run the tests with the mutant; return what they say."""
        with self._changed(module, mutant.text):
            code = self._run(tests.files, tests.limit).code
        if code is None or code == _FAILED:
            return Verdict.KILLED
        return Verdict.SURVIVED if code in (_PASSED, _NO_TESTS) else Verdict.NO_VERDICT

    @contextlib.contextmanager
    def _changed(self, module: str, text: str) -> Iterator[None]:
        path = self._tree / module
        before = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(before)

    def _run(self, files: tuple[str, ...], limit: float) -> Run:
        # In one process: with several, -x ends with another exit code than that of a failed test.
        options = ["-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, *files]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._tree / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        began = time.monotonic()
        # A file, not a pipe: a process that a mutant left behind may keep a pipe open.
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            process = subprocess.Popen(
                command, cwd=self._tree, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            code: int | None = None
            with process:
                try:
                    code = process.wait(limit)
                except subprocess.TimeoutExpired:
                    pass
                finally:
                    # Also what the tests started: a mutant may forget to end it.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            log.seek(0)
            output = log.read()
        return Run(code, output, time.monotonic() - began)
