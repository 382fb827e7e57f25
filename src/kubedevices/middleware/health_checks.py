"""Checks the health of devices, by a file or by a command, in threads of their own.

A check may hang for ever, as a program does that waits for a broken card: it holds up neither the
search for devices nor the checks of others, counts as failed, and delays no exit.
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
from kubedevices.middleware.check import Check
from kubedevices.middleware.health_gate import HealthGate

FIRST_LOOK = 2.0
"""Seconds that a list waits for the first result of a new device."""

LONGEST_COMMAND = 10.0

_log = logging.getLogger(__name__)

Key = tuple[str, ...]
"""Resource and ID, and what tells several checks of a device apart."""


class Subject(NamedTuple):
    """One check of one device, and what its placeholders stand for."""

    check: Check
    values: Mapping[str, str]


@dataclass(eq=False)
class _Checked:
    """One subject under check."""

    rule: Check
    gate: HealthGate
    due: float
    started: float | None = None
    has_result: threading.Event = field(default_factory=threading.Event)


class HealthChecks:
    """Starts what is due at each `update`; `on_change` is called, in a thread, at each change."""

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
        self._checked: dict[Key, _Checked] = {}
        self._lock = threading.Lock()

    def update(self, subjects: Mapping[Key, Subject]) -> None:
        """Take the subjects; returns when new subjects have a result, or after `first_look`."""
        now = self._clock()
        with self._lock:
            for key in self._checked.keys() - subjects.keys():
                del self._checked[key]
            checked = {key: self._checked_of(key, each, now) for key, each in subjects.items()}
        for key, each in checked.items():
            self._give_up_waiting(key, each, now)
            if each.due <= now and each.started is None:
                self._start(key, each, subjects[key].values, now)
        deadline = now + self._first_look
        for each in checked.values():
            each.has_result.wait(max(0.0, deadline - self._clock()))

    def health(self, key: Key) -> Health | None:
        """Return what is known of a subject; None until its first check ended."""
        checked = self._checked.get(key)
        return checked.gate.health("") if checked else None

    def _checked_of(self, key: Key, subject: Subject, now: float) -> _Checked:
        rule = subject.check
        known = self._checked.get(key)
        if known is None or known.rule != rule:
            known = _Checked(rule, HealthGate(rule.fail_after, rule.ok_after), now)
            self._checked[key] = known
        return known

    def _start(self, key: Key, checked: _Checked, values: Mapping[str, str], now: float) -> None:
        checked.started, checked.due = now, now + checked.rule.interval
        threading.Thread(
            target=self._run,
            args=(key, checked, dict(values)),
            name=f"health of {'/'.join(key)}",
            daemon=True,
        ).start()

    def _run(self, key: Key, checked: _Checked, values: Mapping[str, str]) -> None:
        problem = look(checked.rule, values, self._here)
        # In the thread of the check: from here on the next check may start.
        checked.started = None
        self._take(key, checked, problem)

    def _give_up_waiting(self, key: Key, checked: _Checked, now: float) -> None:
        """Count a check that does not end as failed, once per interval."""
        if checked.started is None or now < checked.due:
            return
        checked.due = now + checked.rule.interval
        self._take(key, checked, f"the check has not ended for {now - checked.started:.0f} s")

    def _take(self, key: Key, checked: _Checked, problem: str) -> None:
        with self._lock:
            before = checked.gate.health("")
            after = checked.gate.observe("", not problem)
            # A thread may return after its check was replaced by another rule.
            is_current = self._checked.get(key) is checked
        checked.has_result.set()
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
            os.stat(path)  # noqa: PTH116  # a path of the host's is text here
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
        return f"{command[0]}: {error.strerror or error}"
    with process:
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                # The whole group: a shell that is killed alone would leave its command behind.
                os.killpg(process.pid, signal.SIGKILL)
            return f"{command[0]} was still running after {timeout:g} s"
    return "" if code == 0 else f"{command[0]} ended with exit code {code}"
