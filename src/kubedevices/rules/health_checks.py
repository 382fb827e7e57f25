"""Runs the health checks of devices: reads a file or runs a command, in `check_threads`.

A check may hang, for example a program that waits for a broken card. It then counts as failed. It
does not delay the scan, the checks of other devices, or the exit of the process. `health_gate`
decides when a result changes the health; `health` is the rule that uses this module.
"""

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kubedevices.config.placeholders import (
    PlaceholderProblem,
    fill_argument,
    fill_path,
    fixed_directory,
)
from kubedevices.host.programs import start_failure
from kubedevices.host.untrusted_files import check_below, read_bytes
from kubedevices.rules.check_threads import CHECKS, CheckJob
from kubedevices.rules.health_gate import Check, HealthGate
from kubedevices.values.device import Health

FIRST_LOOK = 2.0
"""Seconds to wait for the first result of a new device."""

LONGEST_COMMAND = 10.0

LONGEST_FILE = 64 * 1024
"""Most bytes of a file that is compared."""

_SHORTEST_PAUSE = 0.01
"""Seconds between two looks for due checks: a check that has just ended may still count as running.
"""

_log = logging.getLogger(__name__)

CheckId = tuple[str, ...]
"""Resource, device ID, and the number or name of the check."""


class DeviceCheck(NamedTuple):
    """One check of one device, and the values of its placeholders."""

    check: Check
    values: Mapping[str, str]


@dataclass(eq=False)
class _CheckState:
    """The state of one `DeviceCheck`; times in seconds by `clock`.

    `job` is the run that waits for a thread or is running, `started` the time when it began.
    `reason` is the last problem that made or kept the device Unhealthy.
    """

    rule: Check
    gate: HealthGate
    due: float
    values: Mapping[str, str] = field(default_factory=dict)
    job: CheckJob | None = None
    started: float | None = None
    reason: str = ""
    has_result: threading.Event = field(default_factory=threading.Event)

    def begin(self, now: float) -> None:
        """Record that a run begins now; the next is due one interval later."""
        self.started, self.due = now, now + self.rule.interval


class HealthChecks:
    """Starts checks when they are due; calls `on_change`, in a thread, when a health changes.

    Each check has its own due time: call `run_due` again after `pause` seconds.

    `here` maps a path of the host to its path in this container.
    """

    def __init__(
        self,
        on_change: Callable[[], None],
        *,
        here: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
        first_look: float = FIRST_LOOK,
    ) -> None:
        self._on_change, self._here, self._clock = on_change, here, clock
        self._first_look = first_look
        self._states: dict[CheckId, _CheckState] = {}
        self._lock = threading.Lock()

    def update(self, checks: Mapping[CheckId, DeviceCheck]) -> None:
        """Replace all checks; return when each has a result, after `first_look` s at the latest."""
        now = self._clock()
        with self._lock:
            for key in self._states.keys() - checks.keys():
                del self._states[key]
            states = [self._state_of(key, each, now) for key, each in checks.items()]
        self.run_due()
        deadline = now + self._first_look
        for each in states:
            each.has_result.wait(max(0.0, deadline - self._clock()))

    def run_due(self) -> None:
        """Start the checks that are due, and no other."""
        now = self._clock()
        with self._lock:
            states = [*self._states.items()]
        for key, each in states:
            if each.due <= now:
                self._give_up_waiting(key, each, now)
                if each.due <= now and each.job is None:
                    self._start(key, each, each.values, now)

    def pause(self) -> float | None:
        """Return the seconds until the next check is due; None without checks."""
        now = self._clock()
        with self._lock:
            due = min((each.due for each in self._states.values()), default=None)
        return None if due is None else max(due - now, _SHORTEST_PAUSE)

    def health(self, key: CheckId) -> Health | None:
        """Return the health by one check; None until its first run ended."""
        state = self._states.get(key)
        return state.gate.health("") if state else None

    def reason(self, key: CheckId) -> str:
        """Return why one check calls the device Unhealthy; empty for a healthy device."""
        state = self._states.get(key)
        if state is None or state.gate.health("") is not Health.UNHEALTHY:
            return ""
        return state.reason

    def _state_of(self, key: CheckId, check: DeviceCheck, now: float) -> _CheckState:
        rule = check.check
        known = self._states.get(key)
        if known is None or known.rule != rule:
            known = _CheckState(rule, HealthGate(rule.fail_after, rule.ok_after), now)
            self._states[key] = known
        known.values = check.values
        return known

    def _start(
        self, key: CheckId, state: _CheckState, values: Mapping[str, str], now: float
    ) -> None:
        state.begin(now)
        with self._lock:  # `_run` waits until `state.job` is set
            state.job = CHECKS.start(
                f"health of {'/'.join(key)}", partial(self._run, key, state, dict(values))
            )

    def _run(self, key: CheckId, state: _CheckState, values: Mapping[str, str]) -> None:
        with self._lock:
            job = state.job
        if job is not None and job.has_waited:  # it was not late while it waited for a thread
            state.begin(self._clock())
        is_current = self._states.get(key) is state  # the device may be gone since
        problem = look(state.rule, values, self._here) if is_current else ""
        # Set by the thread of the check, after its end: from here on the next run may start.
        state.started = state.job = None
        self._take(key, state, problem)

    def _give_up_waiting(self, key: CheckId, state: _CheckState, now: float) -> None:
        """Count a check that still runs when the next is due as failed, once per interval."""
        started, job = state.started, state.job
        if started is None or job is None or now < state.due:
            return
        state.due = now + state.rule.interval
        if job.has_waited and not job.is_running:
            return
        CHECKS.abandon(job)
        problem = f"the check has not ended for {now - started:.0f} s"
        # A reason without a time: it would be another reason at each interval.
        self._take(key, state, problem, "the check does not end")

    def _take(self, key: CheckId, state: _CheckState, problem: str, reason: str = "") -> None:
        """Take the result of a run: its `problem`, or none. `reason` is a shorter `problem`."""
        with self._lock:
            before, reason_before = state.gate.health(""), state.reason
            after = state.gate.observe("", not problem)
            if problem:
                state.reason = reason or problem
            # The thread may end after another rule has replaced its check.
            is_current = self._states.get(key) is state
        state.has_result.set()
        has_new_reason = after is Health.UNHEALTHY and state.reason != reason_before
        if not is_current or (before is after and not has_new_reason):
            return
        if before is after:
            _log.warning("%s: %s is still Unhealthy: %s", *key[:2], problem)
        elif problem:
            _log.warning("%s: %s is Unhealthy: %s", *key[:2], problem)
        elif before is not None:
            _log.info("%s: %s is Healthy again", *key[:2])
        self._on_change()


def look(rule: Check, values: Mapping[str, str], here: Callable[[str], str] = str) -> str:
    """Check once; return what is wrong with the device, or an empty string.

    A value that does not stay in its place is a reason too: then nothing is read and nothing runs.
    """
    try:
        if (template := rule.path) is not None:
            path, directory = fill_path(template, values), fixed_directory(template)
            below = Path(here(directory)) if directory else None
            return _look_at_file(Path(here(path)), rule.equals, below)
        command = [fill_argument(word, values) for word in rule.command]
    except PlaceholderProblem as problem:
        return f"not checked: {problem}"
    return _run_command(command, min(rule.interval, LONGEST_COMMAND))


def _look_at_file(path: Path, wanted: str | None, below: Path | None) -> str:
    try:
        if wanted is None:
            _must_exist(path, below)
            return ""
        data = read_bytes(path, limit=LONGEST_FILE, follow_links=True, below=below)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    content = data.decode(errors="replace").strip()
    return "" if content == wanted.strip() else f"{path} says {content[:80]!r}"


def _must_exist(path: Path, below: Path | None) -> None:
    file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if below is not None:
            check_below(file, below)
    finally:
        os.close(file)


def _run_command(command: list[str], timeout: float) -> str:
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"{command[0]}: {start_failure(command[0], error).reason}"
    with process:
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                # The whole process group: if only a shell were killed, its command would go on.
                os.killpg(process.pid, signal.SIGKILL)
            return f"{command[0]} was still running after {timeout:g} s"
    return "" if code == 0 else f"{command[0]} ended with exit code {code}"
