"""Runs tests in several processes: `pytest -n 5`.

One process loads and collects all tests, which takes seconds, and then forks the workers. Each
worker asks for a test when it has nothing to do. What it reports is shown as if the first process
had run the test. A test in which a worker dies is reported by name and is not tried again; a new
worker takes the place. `worker_schedule` says who runs what.
"""

import contextlib
import gc
import os
import signal
import sys
import time
import traceback
import warnings
from multiprocessing import Pipe, Semaphore
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

from tests.worker_schedule import Planned, WorkerSchedule

PLUGIN = "forked workers"

LEAVE_LIMIT = 120.0
"""Seconds that workers get for the tests they are in when the run is stopped."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `-n`; where pytest-xdist is installed, `-n` means the workers of pytest-xdist."""
    with contextlib.suppress(ValueError):
        parser.getgroup("workers")._addoption(
            *("-n", "--workers"), type=int, default=0, help="run tests in so many processes"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin where workers are wanted."""
    workers = config.getoption("workers", 0)
    if workers > 0:
        config.pluginmanager.register(ForkedWorkers(workers), PLUGIN)


class ForkedWorkers:
    """The plugin in the first process."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Let workers run the tests."""
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None
        Crew(session, self._count).run()
        return True


class Member:
    """A worker, as the first process sees it."""

    def __init__(self, number: int, pid: int, connection: Connection) -> None:
        self.number, self.pid, self.connection = number, pid, connection
        self.ended = os.pidfd_open(pid)
        self.test: int | None = None
        """What it runs, or ran last."""
        self.is_done = False


class Crew:
    """All workers of a run."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._config = session, session.config
        self._count = min(count, len(session.items))
        self._schedule = WorkerSchedule(map(_described, session.items), self._count)
        self._members: dict[int, Member] = {}
        self._hired = 0
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False  # reports come from many files at once

    def run(self) -> None:
        """Run all tests, or until somebody wants to stop."""
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        _share_second_tries(self._config)
        gc.collect()
        gc.freeze()  # a collection in a worker would copy the pages of all that is loaded
        try:
            for _ in range(self._count):
                self._hire()
            while self._members:
                self._take_messages()
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            gc.unfreeze()
            self._dismiss()

    def _hire(self) -> None:
        ours, theirs = Pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._hired += 1
        pid = os.fork()
        if not pid:
            for member in self._members.values():
                member.connection.close()
                os.close(member.ended)
            ours.close()
            Worker(self._session, self._hired, theirs).live()
        theirs.close()
        self._members[self._hired] = Member(self._hired, pid, ours)

    def _take_messages(self) -> None:
        members = self._members.values()
        ready = wait([each for one in members for each in (one.connection, one.ended)])
        for member in [*members]:
            if member.connection in ready:
                self._take(member)
            elif member.ended in ready:
                self._bury(member)

    def _take(self, member: Member) -> None:
        """Show what a worker tells of its test, and give it the next."""
        message: tuple[list[tuple[str, Any]], bool] | None = None
        with contextlib.suppress(EOFError, ConnectionError):
            message = member.connection.recv()
        if message is None:
            self._bury(member)
            return
        told, asks = message
        hook = self._config.hook
        for kind, content in told:
            if kind == "report":
                report = hook.pytest_report_from_serializable(config=self._config, data=content)
                hook.pytest_runtest_logreport(report=report)
            else:
                hook.pytest_warning_recorded.call_historic(kwargs=content)
        if asks:
            number = self._schedule.next_for(member.number)
            member.is_done = number is None
            member.test = member.test if number is None else number
            with contextlib.suppress(ConnectionError):  # it is dead: its descriptor says so
                member.connection.send(number)

    def _bury(self, member: Member) -> None:
        """Let go of a worker that ended; another takes the place of one that died."""
        del self._members[member.number]
        self._schedule.leave(member.number)
        status = os.waitstatus_to_exitcode(os.waitpid(member.pid, 0)[1])
        member.connection.close()
        os.close(member.ended)
        if member.is_done and not status:
            return
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        if member.test is None:
            self._session.shouldfail = f"a worker died before its first test: {how}"
            return
        when = "after its last test, this one" if member.is_done else "in this test"
        item = self._session.items[member.test]
        self._config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=f"the worker died {when}: {how}",
                when="call",
            )
        )
        if not member.is_done:
            self._hire()

    def _dismiss(self) -> None:
        """Wait for workers whose run was stopped: without orders, they leave after their test."""
        for member in self._members.values():
            member.connection.close()
        deadline = time.monotonic() + LEAVE_LIMIT
        for member in self._members.values():
            if not wait([member.ended], max(deadline - time.monotonic(), 0)):
                os.kill(member.pid, signal.SIGKILL)
            os.waitpid(member.pid, 0)
            os.close(member.ended)


class Worker:
    """A forked process, which never returns from `live`."""

    def __init__(self, session: pytest.Session, number: int, orders: Connection) -> None:
        self._session, self._config = session, session.config
        self._number, self._orders = number, orders
        self._last: pytest.Item | None = None
        self._told: list[tuple[str, Any]] = []

    def live(self) -> None:
        """Run tests as long as there are any."""
        code = 1
        try:
            self._become_another()
            self._work()
            code = 0
        except (EOFError, ConnectionError, KeyboardInterrupt):  # the run was stopped
            with contextlib.suppress(BaseException):
                self._leave_for(None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _become_another(self) -> None:
        """Have own files where the first process has some: what is captured, `tmp_path`, output."""
        plugins = self._config.pluginmanager
        capture: Any = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        temporary: Any = self._config._tmp_path_factory  # type: ignore[attr-defined]
        temporary._basetemp = temporary.getbasetemp() / f"w{self._number}"
        temporary._basetemp.mkdir(mode=0o700)
        if terminal := plugins.getplugin("terminalreporter"):
            terminal._tw._file = open(os.devnull, "w")  # noqa: SIM115, PTH123
        plugins.unregister(name=PLUGIN)
        plugins.register(self)

    def _work(self) -> None:
        while (number := self._ask()) is not None:
            item = self._session.items[number]
            self._leave_for(item)
            self._last = item
            # What the file of the test shares stays until it is known which test comes next.
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=item.parent)
        self._leave_for(None)

    def _ask(self) -> int | None:
        """Tell of the last test, and return the next."""
        self._tell(asks=True)
        number: int | None = self._orders.recv()
        return number

    def _tell(self, *, asks: bool) -> None:
        self._orders.send((self._told, asks))
        self._told.clear()

    def _leave_for(self, item: pytest.Item | None) -> None:
        """End what the next test does not share; an error there is an error of the last test."""
        if self._last is None:
            return
        last, self._last = self._last, None
        state = self._session._setupstate
        call = pytest.CallInfo.from_call(
            lambda: state.teardown_exact(item), when="teardown", reraise=(KeyboardInterrupt,)
        )
        if call.excinfo is not None:
            report = pytest.TestReport.from_item_and_call(last, call)
            self._config.hook.pytest_runtest_logreport(report=report)
            self._tell(asks=False)

    # ------------------------------------------------------------ what it hears of its tests

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report, for the next question."""
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._told.append(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        """Keep a warning; the first process has those of the collection."""
        if when != "runtest":
            return
        name = warning_message.category.__name__
        plain = UserWarning(f"{name}: {warning_message.message}")
        told = warnings.WarningMessage(plain, UserWarning, nodeid, 0)
        content = {"warning_message": told, "when": when, "nodeid": nodeid, "location": None}
        self._told.append(("warning", content))


def _share_second_tries(config: pytest.Config) -> None:
    """Let `--max-suite-reruns` count for all workers together, not for each."""
    most = config.getoption("max_suite_reruns", None)
    if most is not None:
        left, counter = Semaphore(most), config.failures_db  # type: ignore[attr-defined]
        counter.try_increment_suite_reruns = lambda _: left.acquire(block=False)
        counter.get_suite_reruns = lambda: most - left.get_value()


def _described(item: pytest.Item) -> Planned:
    mark = item.get_closest_marker("timeout")
    return Planned(item.nodeid, mark.args[0] if mark and mark.args else 0)
