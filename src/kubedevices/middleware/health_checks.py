"""Runs the health checks of devices: reads a file or runs a command, each in its own thread.

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
from pathlib import Path
from typing import NamedTuple

from kubedevices.config.placeholders import fill
from kubedevices.device import Health
from kubedevices.host.programs import start_failure
from kubedevices.middleware.health_gate import Check, HealthGate

FIRST_LOOK = 2.0
"""Seconds that a list waits for the first result of a new device."""

LONGEST_COMMAND = 10.0

_log = logging.getLogger(__name__)

CheckId = tuple[str, ...]
"""Resource, device ID, and the number or name of the check."""


class DeviceCheck(NamedTuple):
    """One check of one device, and the values of its placeholders."""

    check: Check
    values: Mapping[str, str]


@dataclass(eq=False)
class _CheckState:
    """The state of one `DeviceCheck`; times in seconds by `clock`."""

    rule: Check
    gate: HealthGate
    due: float
    started: float | None = None
    has_result: threading.Event = field(default_factory=threading.Event)


class HealthChecks:
    """Starts checks at each `update`; calls `on_change`, in a thread, when a health changes.

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
        """Replace all checks and start the checks that are due.

        Returns when each check has a result, at the latest after `first_look` seconds.
        """
        now = self._clock()
        with self._lock:
            for key in self._states.keys() - checks.keys():
                del self._states[key]
            states = {key: self._state_of(key, each, now) for key, each in checks.items()}
        for key, each in states.items():
            self._give_up_waiting(key, each, now)
            if each.due <= now and each.started is None:
                self._start(key, each, checks[key].values, now)
        deadline = now + self._first_look
        for each in states.values():
            each.has_result.wait(max(0.0, deadline - self._clock()))

    def health(self, key: CheckId) -> Health | None:
        """Return the health by one check; None until its first run ended."""
        state = self._states.get(key)
        return state.gate.health("") if state else None

    def _state_of(self, key: CheckId, check: DeviceCheck, now: float) -> _CheckState:
        rule = check.check
        known = self._states.get(key)
        if known is None or known.rule != rule:
            known = _CheckState(rule, HealthGate(rule.fail_after, rule.ok_after), now)
            self._states[key] = known
        return known

    def _start(
        self, key: CheckId, state: _CheckState, values: Mapping[str, str], now: float
    ) -> None:
        state.started, state.due = now, now + state.rule.interval
        threading.Thread(
            target=self._run,
            args=(key, state, dict(values)),
            name=f"health of {'/'.join(key)}",
            daemon=True,
        ).start()

    def _run(self, key: CheckId, state: _CheckState, values: Mapping[str, str]) -> None:
        problem = look(state.rule, values, self._here)
        # Set by the thread of the check, after its end: from here on the next run may start.
        state.started = None
        self._take(key, state, problem)

    def _give_up_waiting(self, key: CheckId, state: _CheckState, now: float) -> None:
        """Count a check that still runs when the next is due as failed, once per interval."""
        if state.started is None or now < state.due:
            return
        state.due = now + state.rule.interval
        self._take(key, state, f"the check has not ended for {now - state.started:.0f} s")

    def _take(self, key: CheckId, state: _CheckState, problem: str) -> None:
        with self._lock:
            before = state.gate.health("")
            after = state.gate.observe("", not problem)
            # The thread may end after another rule has replaced its check.
            is_current = self._states.get(key) is state
        state.has_result.set()
        if before is after or not is_current:
            return
        if problem:
            _log.warning("%s: %s is Unhealthy: %s", *key[:2], problem)
        elif before is not None:
            _log.info("%s: %s is Healthy again", *key[:2])
        self._on_change()


def look(rule: Check, values: Mapping[str, str], here: Callable[[str], str] = str) -> str:
    """Check once; return what is wrong with the device, or an empty string."""
    if rule.file is not None:
        return _look_at_file(here(fill(rule.file, values)), rule.equals)
    return _run_command(
        [fill(word, values) for word in rule.command], min(rule.interval, LONGEST_COMMAND)
    )


def _look_at_file(path: str, wanted: str | None) -> str:
    try:
        if wanted is None:
            os.stat(path)  # noqa: PTH116  # the path is text here
            return ""
        content = Path(path).read_text(errors="replace").strip()
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return "" if content == wanted.strip() else f"{path} says {content[:80]!r}"


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
