"""The checks of `kubedevices check` in one line of a test.

`conformance` checks a scanner. This process serves the scanner, so checks that start, signal or
measure the plugin's process are skipped; `kubedevices check` runs them. `check_driver` starts a DRA
driver, in any language, and runs all rules for drivers.
"""

import shlex
import shutil
import tempfile
import time
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack

from kubedevices.check.checks import select
from kubedevices.check.drivers.config import DriverCheck
from kubedevices.check.kubelets import SUPPORTED, Kubelets
from kubedevices.check.report.expected import load_expected
from kubedevices.check.report.summary import Run
from kubedevices.check.report.text import report_lines
from kubedevices.check.results import CheckResult
from kubedevices.check.runner import run_all
from kubedevices.check.target import Target, Trigger
from kubedevices.check.timing import CheckTiming
from kubedevices.errors import KubedevicesError
from kubedevices.host.terminal import plain
from kubedevices.plugin.options import RunnerOptions
from kubedevices.plugin.scanner import Scanner
from kubedevices.serving.modes import serve
from kubedevices.testing.workbench.loop_thread import LoopThread

__all__ = ["DriverCheck", "NotConformant", "check_driver", "conformance"]
__tracebackhide__ = True  # a failing test shows its own lines, not ours

T = TypeVar("T")


class NotConformant(KubedevicesError, AssertionError):
    """A check failed. The text is the report; `results` has the results of all checks."""

    def __init__(self, results: list[CheckResult], report: str) -> None:
        self.results = results
        super().__init__(report)


def conformance(
    scanner: Scanner,
    *,
    domain: str,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    trigger: str = "",
    check_timing: CheckTiming | None = None,
    **options: Unpack[RunnerOptions],
) -> list[CheckResult]:
    """Serve `scanner` and check this plugin; return all results.

    Raises `NotConformant` if a check fails. `only` and `skip` are IDs of checks or themes.
    `trigger` is a shell command that changes the devices; without a trigger, lost updates cannot be
    found. `check_timing` can shorten the pauses; with the default a full run takes about a minute.
    `options` are the options of `kubedevices.serve`.
    """
    checks = select(only, skip)
    directory = Path(tempfile.mkdtemp(prefix="kd-check-", dir="/tmp"))
    options["socket_dir"] = directory
    target = Target(directory=directory, trigger=Trigger.parse(trigger))

    async def check() -> list[CheckResult]:
        async with serve(scanner, domain=domain, **options):
            return (await run_all(target, checks, check_timing or CheckTiming())).results

    try:
        results, seconds = _in_a_thread("conformance", check())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return _passed(Run(results, plugin=scanner.scanner_name, seconds=seconds))


def check_driver(check: DriverCheck) -> list[CheckResult]:
    """Run the rules for DRA drivers; return all results.

    Raises `NotConformant` if the run fails, and what `kubedevices check` reports with the exit
    codes 2 and 3: `UsageError`, `ConfigError`, `PluginNotStarted`, `DriverNeverRegistered` and
    `NoPrivateView`.
    """
    rules, target, timing = check.rules(), check.target(), check.timing()
    kubelets = Kubelets.parse(check.kubelet) if check.kubelet else SUPPORTED
    expected = load_expected(check.expect) if check.expect else ()
    # Imported here, because it needs h11, which those who check scanners need not have.
    from kubedevices.check.drivers.run import run_driver  # noqa: PLC0415

    work = run_driver(target, rules, timing, kubelets=kubelets)
    ran, seconds = _in_a_thread("check of a DRA driver", work)
    run = Run(
        **vars(ran if check.show_requests else replace(ran, requests={})),
        plugin=shlex.join(target.command),
        seconds=seconds,
        expected=expected,
        fail_on=check.fail_on,
        kind="driver",
    )
    return _passed(run)


def _in_a_thread(name: str, work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Return the result of `work`, and how many seconds it took."""
    began, thread = time.monotonic(), LoopThread(name)
    try:
        return thread.call(work), time.monotonic() - began
    finally:
        thread.close()


def _passed(run: Run) -> list[CheckResult]:
    """Return the results; raises `NotConformant` if the run fails."""
    if run.fails:
        raise NotConformant([*run.results], "\n".join(map(plain, report_lines(run))))
    return [*run.results]
