"""`conformance`: the checks of `kubedevices check` on a scanner, in one line of a test.

This process serves the scanner. So checks that start, signal or measure the plugin's process are
skipped; `kubedevices check` runs them.
"""

import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

from kubedevices.check.checks import select
from kubedevices.check.report.summary import Run
from kubedevices.check.report.text import report_lines
from kubedevices.check.runner import CheckResult, run_checks
from kubedevices.check.target import Target, Trigger
from kubedevices.check.timing import CheckTiming
from kubedevices.errors import KubedevicesError
from kubedevices.host.terminal import plain
from kubedevices.plugin.options import RunnerOptions
from kubedevices.plugin.scanner import Scanner
from kubedevices.serving.modes import serve
from kubedevices.testing.workbench.loop_thread import LoopThread

__tracebackhide__ = True  # a failing test shows its own lines, not ours


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
            return await run_checks(target, checks, check_timing or CheckTiming())

    began = time.monotonic()
    thread = LoopThread("conformance")
    try:
        results = thread.call(check())
    finally:
        thread.close()
        shutil.rmtree(directory, ignore_errors=True)
    run = Run(scanner.scanner_name, results, time.monotonic() - began)
    if run.counts["fail"]:
        raise NotConformant(results, "\n".join(map(plain, report_lines(run))))
    return results
