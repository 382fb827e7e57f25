"""Runs tests in several processes: `pytest -n 5`.

The parent process loads and collects all tests, which takes seconds, and then forks the workers. A
worker that has no test requests one. The parent shows the reports of the workers as if it had run
the tests itself. If a worker dies, the parent reports its test as failed, does not repeat the test,
and starts another worker. `worker_schedule` decides which worker runs which test.
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
from typing import Any, NoReturn

import pytest

from tests.worker_schedule import PlannedTest, WorkerSchedule

PLUGIN = "forked workers"

STOP_LIMIT = 120.0
"""Seconds that workers get to finish their tests when the run is stopped."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `-n`. If pytest-xdist is installed, `-n` is the option of pytest-xdist."""
    with contextlib.suppress(ValueError):
        parser.getgroup("workers")._addoption(
            *("-n", "--workers"), type=int, default=0, help="run tests in this number of processes"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin if the number of workers is not 0."""
    workers = config.getoption("workers", 0)
    if workers > 0:
        config.pluginmanager.register(ForkedWorkers(workers), PLUGIN)


class ForkedWorkers:
    """The pytest plugin in the parent process."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Let workers run the tests."""
        if session.testsfailed or session.config.option.collectonly or not session.items:
            return None
        WorkerPool(session, self._count).run()
        return True


class WorkerProcess:
    """A worker, as the parent process sees it."""

    def __init__(self, number: int, pid: int, connection: Connection) -> None:
        self.number, self.pid, self.connection = number, pid, connection
        self.pidfd = os.pidfd_open(pid)
        self.test: int | None = None
        """Number of its present or last test."""
        self.is_done = False
        """Whether the worker has been told that there are no more tests."""


class WorkerPool:
    """All workers of a run."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._config = session, session.config
        self._count = min(count, len(session.items))
        self._schedule = WorkerSchedule(map(_planned, session.items), self._count)
        self._workers: dict[int, WorkerProcess] = {}
        self._started = 0
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False  # several files are running at the same time

    def run(self) -> None:
        """Run all tests; stop early if pytest requests a stop."""
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        _share_reruns(self._config)
        gc.collect()
        gc.freeze()  # otherwise a garbage collection in a worker would copy all shared memory pages
        try:
            for _ in range(self._count):
                self._start_worker()
            while self._workers:
                self._handle_messages()
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            gc.unfreeze()
            self._stop_workers()

    def _start_worker(self) -> None:
        parent_end, child_end = Pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._started += 1
        pid = os.fork()
        if not pid:
            for worker in self._workers.values():
                worker.connection.close()
                os.close(worker.pidfd)
            parent_end.close()
            Worker(self._session, self._started, child_end).run_and_exit()
        child_end.close()
        self._workers[self._started] = WorkerProcess(self._started, pid, parent_end)

    def _handle_messages(self) -> None:
        workers = self._workers.values()
        ready = wait([end for worker in workers for end in (worker.connection, worker.pidfd)])
        for worker in [*workers]:
            if worker.connection in ready:
                self._handle_message(worker)
            elif worker.pidfd in ready:
                self._remove_worker(worker)

    def _handle_message(self, worker: WorkerProcess) -> None:
        """Show the reports of a worker; if it requests a test, send the next number."""
        message: tuple[list[tuple[str, Any]], bool] | None = None
        with contextlib.suppress(EOFError, ConnectionError):
            message = worker.connection.recv()
        if message is None:
            self._remove_worker(worker)
            return
        results, wants_test = message
        hook = self._config.hook
        for kind, content in results:
            if kind == "report":
                report = hook.pytest_report_from_serializable(config=self._config, data=content)
                hook.pytest_runtest_logreport(report=report)
            else:
                hook.pytest_warning_recorded.call_historic(kwargs=content)
        if wants_test:
            number = self._schedule.next_for(worker.number)
            worker.is_done = number is None
            worker.test = worker.test if number is None else number
            with contextlib.suppress(ConnectionError):  # it died: the next `wait` returns its pidfd
                worker.connection.send(number)

    def _remove_worker(self, worker: WorkerProcess) -> None:
        """Remove a worker that ended. If it died, report its test and start another worker."""
        del self._workers[worker.number]
        self._schedule.remove_worker(worker.number)
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        worker.connection.close()
        os.close(worker.pidfd)
        if worker.is_done and not status:
            return
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        if worker.test is None:
            self._session.shouldfail = f"a worker died before its first test: {how}"
            return
        when = "after its last test, this one" if worker.is_done else "in this test"
        item = self._session.items[worker.test]
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
        if not worker.is_done:
            self._start_worker()

    def _stop_workers(self) -> None:
        """Stop the remaining workers: without a connection, each ends after its present test."""
        for worker in self._workers.values():
            worker.connection.close()
        deadline = time.monotonic() + STOP_LIMIT
        for worker in self._workers.values():
            if not wait([worker.pidfd], max(deadline - time.monotonic(), 0)):
                os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            os.close(worker.pidfd)


class Worker:
    """The code of a forked worker process."""

    def __init__(self, session: pytest.Session, number: int, connection: Connection) -> None:
        self._session, self._config = session, session.config
        self._number, self._connection = number, connection
        self._last: pytest.Item | None = None
        self._outbox: list[tuple[str, Any]] = []

    def run_and_exit(self) -> NoReturn:
        """Run tests until the parent has no more; then end the process."""
        code = 1
        try:
            self._detach_from_parent()
            self._run_tests()
            code = 0
        except (EOFError, ConnectionError, KeyboardInterrupt):  # the run was stopped
            with contextlib.suppress(BaseException):
                self._tear_down_before(None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _detach_from_parent(self) -> None:
        """Replace what the parent uses: files of captured output, `tmp_path`, the terminal."""
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

    def _run_tests(self) -> None:
        while (number := self._request_test()) is not None:
            item = self._session.items[number]
            self._tear_down_before(item)
            self._last = item
            # Fixtures of the module stay set up until the next test is known.
            self._config.hook.pytest_runtest_protocol(item=item, nextitem=item.parent)
        self._tear_down_before(None)

    def _request_test(self) -> int | None:
        """Send the results of the last test; return the number of the next test."""
        self._send(wants_test=True)
        number: int | None = self._connection.recv()
        return number

    def _send(self, *, wants_test: bool) -> None:
        self._connection.send((self._outbox, wants_test))
        self._outbox.clear()

    def _tear_down_before(self, item: pytest.Item | None) -> None:
        """Tear down fixtures that `item` does not use; an error counts for the last test."""
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
            self._send(wants_test=False)

    # ------------------------------------------------------------ hooks of pytest

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store a report until the next test is requested."""
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._outbox.append(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        """Store a warning. The parent already has the warnings of the collection."""
        if when != "runtest":
            return
        name = warning_message.category.__name__
        plain = UserWarning(f"{name}: {warning_message.message}")
        recorded = warnings.WarningMessage(plain, UserWarning, nodeid, 0)
        content = {"warning_message": recorded, "when": when, "nodeid": nodeid, "location": None}
        self._outbox.append(("warning", content))


def _share_reruns(config: pytest.Config) -> None:
    """Let all workers share the limit `--max-suite-reruns`."""
    most = config.getoption("max_suite_reruns", None)
    if most is not None:
        left, counter = Semaphore(most), config.failures_db  # type: ignore[attr-defined]
        counter.try_increment_suite_reruns = lambda _: left.acquire(block=False)
        counter.get_suite_reruns = lambda: most - left.get_value()


def _planned(item: pytest.Item) -> PlannedTest:
    mark = item.get_closest_marker("timeout")
    return PlannedTest(item.nodeid, mark.args[0] if mark and mark.args else 0)
