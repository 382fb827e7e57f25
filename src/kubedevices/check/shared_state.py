"""What all harnesses of one run share: the state of the devices, unexpected ends, and logs."""

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kubedevices.check.busy_machine import LostTime
from kubedevices.check.drivers.rights import Right
from kubedevices.check.processes import Process
from kubedevices.check.target import Trigger, TriggerRun

LOG_LIMIT = 100_000
"""Characters that are stored of the beginning, and of the end, of the output of one process."""


@dataclass(frozen=True)
class UnexpectedEnd:
    """A plugin process that ended although the check did not end it.

    `when` is one line for the report, `words` are the last lines of the output, and `cause` is the
    cause in reports.
    """

    when: str
    words: str = ""
    process: object = None
    cause: str = ""
    is_by_change: bool = False  # the devices changed at that time, and `when` says so


@dataclass(frozen=True)
class Log:
    """The output of one plugin process. `check` is the ID of the check that started the process."""

    check: str
    ended: str
    text: str


class DeviceChanges:
    """The runs of the trigger that are not undone yet, and the devices that they changed.

    All harnesses see the same devices. A check that compares devices asks `untouched` which
    devices it may compare while the checks of another harness change devices.
    """

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.runs = 0
        self.may_go_on = asyncio.Event()  # set when the checks of lists are over
        self.steady = asyncio.Event()  # cleared while devices change
        self.steady.set()
        self.withdrew = False  # a change removed a whole resource for some time
        # Numbers of the runs that are not undone yet.
        self._open: list[int] = []
        self._touched: set[str] = set()
        self.is_known = True  # which devices differ from their state before the first change
        self.problem = ""  # how the trigger or its undo failed: then no change can be judged

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Clear `steady` while devices change: from the command until the plugin noticed."""
        self.steady.clear()
        try:
            yield
        finally:
            self.steady.set()

    def concern(self, ids: Iterable[str]) -> None:
        """Record the IDs of devices that a change concerned."""
        self._touched.update(ids)

    def untouched(self, ids: Iterable[str]) -> set[str]:
        """Return those of `ids` that no change concerned; an empty set while this is unknown."""
        if not self.steady.is_set() or not self.is_known:
            return set()
        return {*ids} - self._touched

    def next(self) -> TriggerRun:
        """Return the next run of the trigger; the runs are numbered from 1."""
        self.runs += 1
        self._open.append(self.runs)
        return TriggerRun(self.trigger.command, self.runs)

    def failed(self, run: TriggerRun, problem: str) -> None:
        """Record that a run of the trigger, or of its undo, failed; a failed run has no undo."""
        self.problem = self.problem or problem
        self._open = [number for number in self._open if number != run.number]

    def undoing(self) -> list[TriggerRun]:
        """Return the commands that undo all open runs, and count these runs as undone.

        A trigger without `undo` may be a switch, so it must run an even number of times in total.
        """
        done, self._open = self._open, []
        if self.trigger.undo:
            return [TriggerRun(self.trigger.undo, number) for number in reversed(done)]
        if len(done) % 2:
            last = self.next()
            self._open.clear()
            return [last]
        return []


@dataclass
class SharedState:
    """Shared by all harnesses of a run."""

    changes: DeviceChanges
    resources: tuple[str, ...] = ()  # known after the first registration; more may come later
    usual_start: float = 0.0  # seconds from launch to Register, measured at the first start
    work_of_start: float = 0.0  # processor seconds of that start, 0 if the kernel does not count
    # By resource: set if it sent no list to one copy, or did not answer its Allocate, in time.
    silent: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    hanging: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    is_watched: bool = False  # only the plugin watcher finds the plugin; it never calls Register
    stays_away: set[str] = field(
        default_factory=set
    )  # IDs of checks after which no plugin returned
    unexpected_ends: list[UnexpectedEnd] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    rights: set[Right] = field(default_factory=set)  # that all copies of a DRA driver have used
    requests: Counter[str] = field(default_factory=Counter)  # what they asked the API server
    lost_time: LostTime = field(default_factory=lambda: LostTime(os.getpid()))  # of the whole run
    began: float | None = None  # when the first check began, a time of the loop

    def spent(self) -> float:
        """Return the own seconds since the first check began, of the check and of all copies."""
        if self.began is None:
            self.began = asyncio.get_running_loop().time()
        return self.lost_time.spent(self.began)

    def record_end(self, process: object, when: str, words: str, *, first: bool = False) -> None:
        """Record an unexpected end, once for each process; `first` puts it before the others."""
        ends = self.unexpected_ends
        if process is None or all(each.process is not process for each in ends):
            cause = process.cause() if isinstance(process, Process) else ""
            ends.insert(0 if first else len(ends), UnexpectedEnd(when, words, process, cause))

    def mark_during_change(self, process: object) -> None:
        """Mark the recorded end of `process`: it came while the devices changed."""
        for number, each in enumerate(self.unexpected_ends):
            if each.process is process and not each.is_by_change:
                when = f"{each.when}, while the devices changed"
                self.unexpected_ends[number] = replace(each, when=when, is_by_change=True)

    def store_log(self, check: str, ended: str, text: str) -> None:
        """Store the output of a process, without the middle if it is long."""
        if len(text) > 2 * LOG_LIMIT:
            left_out = len(text) - 2 * LOG_LIMIT
            text = f"{text[:LOG_LIMIT]}\n… {left_out:,} characters …\n{text[-LOG_LIMIT:]}"
        if text.strip():
            self.logs.append(Log(check, ended, text))
