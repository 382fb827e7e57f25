"""The progress on stderr during a run."""

import asyncio
import io

import pytest

from kubedevices.check.check import Status, Verdict
from kubedevices.check.checks import ALL
from kubedevices.check.report.progress import ProgressLine
from kubedevices.check.results import CheckResult
from tests.waiting import until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_the_line_ticks_while_checks_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the checks that run, the oldest first, and is drawn every second."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    progress = ProgressLine(9)
    for check in ALL[:3]:
        progress(check, ())
    drawn = terminal.getvalue().count("\r")
    assert progress.line().startswith("[0/9] 0 s: ")
    assert f"{ALL[0].id}, {ALL[1].id} and 1 more" in progress.line()
    ticking = asyncio.create_task(progress.tick())
    await until(lambda: terminal.getvalue().count("\r") > drawn, what="a tick")
    ticking.cancel()
    progress(ALL[0], [CheckResult(ALL[0], "a.b/c", Verdict(Status.FAIL, "broken"), 1)])
    assert progress.line().startswith("[1/9] ")
    assert ALL[0].id not in progress.line()
    assert f"fail  {ALL[0].id}  broken\n" in terminal.getvalue()


async def test_a_pipe_gets_only_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal nothing is drawn, and the ticking ends at once."""
    progress = ProgressLine(1)
    progress(ALL[0], ())
    await progress.tick()
    progress(ALL[0], [CheckResult(ALL[0], "a.b/c", Verdict(Status.PASS, "fine"), 1)])
    progress.clear()
    assert capsys.readouterr().err == ""
