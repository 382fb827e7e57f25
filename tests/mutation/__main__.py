"""Judges a random part of the mutants of some packages or modules: `make mutants`."""

import argparse
import functools
import json
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.mutation.judge import ROOT, SOURCE, Baseline, Judge, Verdict, copy_of_the_tree, stages_of
from tests.mutation.mutant import Mutant, with_two_steps_swapped, without_a_step

PACKAGES = ("rules", "proxy", "dra", "serving", "explain", "manifests")
AT_ONCE = 5
"""Mutants of statements, and of expressions, that are taken from a module before the next."""

GOAL = 0.9
"""The part of the mutants, without equivalent ones, that tests must kill."""

_EQUIVALENT = Path(__file__).with_name("equivalent.toml")


def modules_of(targets: list[str]) -> Iterator[str]:
    """Yield the modules of packages (`rules`) and modules (`rules/hold`)."""
    for target in targets:
        path = ROOT / SOURCE / target
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        if not all(each.is_file() for each in found):
            raise SystemExit(f"no package and no module {target} in {SOURCE}")
        yield from (str(each.relative_to(ROOT)) for each in found if each.name != "__init__.py")


def mutants_of(module: str, generator: Path, seed: int) -> list[Mutant]:
    """Return some mutants of a module; `generator` is the Python that has cosmic-ray."""
    text = (ROOT / module).read_text()
    command = [str(generator), str(Path(__file__).with_name("cosmic.py")), str(AT_ONCE), str(seed)]
    found = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    steps = [*without_a_step(text), *with_two_steps_swapped(text)]
    random.Random(seed).shuffle(steps)
    return [*steps[:AT_ONCE], *(Mutant(*each) for each in json.loads(found))]


def rounds(modules: list[str], generator: Path, seed: int) -> Iterator[tuple[str, Mutant]]:
    """Yield mutants of all modules, some of each, again and again until there is no new one."""
    equivalent = tomllib.loads(_EQUIVALENT.read_text())["is"]
    seen = {(each["module"], each["change"]) for each in equivalent}
    choice = random.Random(seed)
    is_new = True
    while is_new:
        is_new = False
        choice.shuffle(modules)
        for module in modules:
            for mutant in mutants_of(module, generator, choice.randrange(2**31)):
                if (module, mutant.change) not in seen:
                    seen.add((module, mutant.change))
                    is_new = True
                    yield module, mutant


def main() -> int:
    """Return 1 if too many mutants survive, or if tests fail without a mutant."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--generator", type=Path, required=True, help="Python with cosmic-ray")
    parser.add_argument("--seconds", type=float, default=3600, help="no run begins later")
    parser.add_argument("--seed", type=int, default=None, help="repeat a choice")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(PACKAGES)}")
    args = parser.parse_args()
    seed = random.randrange(2**31) if args.seed is None else args.seed
    ends = time.monotonic() + args.seconds
    modules = [*modules_of(args.targets or [*PACKAGES])]
    print(f"seed {seed}, {len(modules)} modules", flush=True)
    count, unjudged = Counter[Verdict](), set[tuple[str, ...]]()
    with tempfile.TemporaryDirectory(prefix="kd-mutants-") as directory:
        judge = Judge(copy_of_the_tree(Path(directory)))
        # Reads all tests, which stay the same; a module has many mutants.
        stages = functools.cache(functools.partial(stages_of, tree=Path(directory)))
        for module, mutant in rounds(modules, args.generator, seed):
            if time.monotonic() > ends:
                break
            verdict: Verdict | None = None
            for files in stages(module):
                tests = judge.baseline(files)
                if not isinstance(tests, Baseline):
                    if files not in unjudged:
                        unjudged.add(files)
                        print(f"{' '.join(files)}: {tests}", flush=True)
                    continue
                verdict = judge.verdict(module, mutant, tests)
                if verdict is not Verdict.SURVIVED:
                    break
            if verdict is None:
                continue
            count[verdict] += 1
            if verdict is not Verdict.KILLED:
                print(f"{verdict}: {module}:{mutant.line}: {mutant.change}", flush=True)
    judged = count[Verdict.KILLED] + count[Verdict.SURVIVED]
    share = count[Verdict.KILLED] / judged if judged else 0.0
    print(f"{share:.0%} killed: {count[Verdict.KILLED]} of {judged}; "
          f"{count[Verdict.NO_VERDICT]} without a verdict")  # fmt: skip
    return 0 if share >= GOAL and not unjudged else 1


if __name__ == "__main__":
    sys.exit(main())
