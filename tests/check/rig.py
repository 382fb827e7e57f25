"""Runs the checks on the plugins of this folder, in seconds instead of minutes."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from kubedevices.check.check import PluginCheck
from kubedevices.check.checks import ALL
from kubedevices.check.kubelets import Kubelets
from kubedevices.check.results import CheckResult
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target, Trigger
from kubedevices.check.timing import CheckTiming

HERE = Path(__file__).parent
GOOD_PLUGIN = HERE / "good_plugin.py"
MUTANT = HERE / "mutant.py"

FAST = CheckTiming(
    start=15,
    dial=2,
    call=4,
    first_list=2.5,
    late_list=8,
    registered_soon=3,
    registered_at_all=7,
    noticed_soon=3.5,
    change=2.5,
    pre_start=1.5,
    stop=4,
    settle=0.3,
    quiet=1.5,
    slow_register=1.5,
    absent=1.2,
    refusing=0.8,
    overlap=3,
    away=2.4,
    after_register=0.15,
    linger=0.15,
    watch=1.2,
    hold=0.12,
    rounds=8,
    changes=4,
)
"""Limits that hold on a busy machine with two cores; pauses as short as the plugins allow."""


ALL_KUBELETS = Kubelets((1, 32), (1, 36))
"""With these kubelets every check is tried; harm that only some of them do is a warning."""


@contextmanager
def widgets(*, unhealthy: bool = True) -> Iterator[Path]:
    """Make a directory with device files: two healthy devices and an unhealthy one."""
    directory = Path(mkdtemp(prefix="kd-widgets-", dir="/tmp"))
    try:
        for name in ("w0", "w1"):
            (directory / name).touch()
        if unhealthy:
            (directory / "w2").write_text("Unhealthy")
        yield directory
    finally:
        rmtree(directory)


def hot_plug(directory: Path) -> Trigger:
    """Return a trigger that adds a device, and its undo."""
    return Trigger(f"touch {directory}/new-{{n}}", undo=f"rm {directory}/new-{{n}}")


def target(script: Path, directory: Path, options: Sequence[str] = ()) -> Target:
    """Return a plugin of this folder as a target."""
    command = [sys.executable, str(script), *options]
    command += ["--device-dir", str(directory), "--cdi-dir", "{cdi_dir}"]
    if "--registry-dir" not in options:
        command += ["--socket-dir", "{socket_dir}"]
    return Target(tuple(command), trigger=hot_plug(directory))


async def check(
    script: Path,
    *options: str,
    checks: Iterable[PluginCheck] = ALL,
    timing: CheckTiming = FAST,
    side_by_side: bool = False,
) -> list[CheckResult]:
    """Check a plugin of this folder."""
    with widgets() as directory:
        plugin = replace(target(script, directory, options), side_by_side=side_by_side)
        return (await run_all(plugin, checks, timing, kubelets=ALL_KUBELETS)).results


NO_PROSE = re.compile(
    r"(?<![.\d])1 (?!ms\b|is\b|was\b|has\b)\w+s\b"
    r"|\b(None|True|False|frozenset)\b|\(\)|[\[{(]'|\w=\w+\("
)
"""A singular with a plural, and values of Python: no evidence of any check has them."""


def found(results: Iterable[CheckResult]) -> dict[str, str]:
    """Return the checks that did not pass, and how."""
    return {
        result.check.id: result.status.value
        for result in results
        if result.status.value in ("warn", "fail", "note")
    }


def skipped(results: Iterable[CheckResult]) -> set[str]:
    """Return the checks that were not tried."""
    return {result.check.id for result in results if result.status.value == "skip"}
