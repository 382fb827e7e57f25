"""The command that makes a plugin's devices change, and what undoes it. One for a whole run."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from kubedevices.resource_name import explain_resource_name

NUMBER = "{n}"
NUMBER_VARIABLE = "KUBEDEVICES_TRIGGER_NUMBER"


@dataclass(frozen=True)
class Trigger:
    """A shell command; `resource` is the only one that it changes, if that was told.

    `undo` is run once for every time that `command` ran, the last one first.
    """

    command: str = ""
    resource: str = ""
    undo: str = ""

    @classmethod
    def parse(cls, text: str, undo: str = "") -> "Trigger":
        """Read `CMD` or `RESOURCE=CMD`: a shell takes no name with a slash for a variable."""
        name, equals, command = text.partition("=")
        if equals and "/" in name and not explain_resource_name(name):
            return cls(command, name, undo)
        return cls(text, "", undo)


NO_TRIGGER = Trigger()


@dataclass(frozen=True)
class TriggerRun:
    """One run of one of the commands."""

    command: str
    number: int

    def argv(self) -> tuple[str, ...]:
        """Return what to start."""
        return ("sh", "-c", self.command.replace(NUMBER, str(self.number)))

    def environment(self) -> Mapping[str, str]:
        """Return ours with the number of the run."""
        return os.environ | {NUMBER_VARIABLE: str(self.number)}


class Changes:
    """Which runs of the trigger are not undone yet, and which devices they concern.

    Devices are everybody's: what other stages may expect of them while they change is said here.
    """

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.runs = 0
        self.may_go_on = asyncio.Event()  # set when the checks of lists are over
        self.steady = asyncio.Event()  # not set while devices change
        self.steady.set()
        self.withdrew = False  # a change took a whole resource away for a while
        # Numbers of the runs that were not undone yet.
        self._open: list[int] = []
        self._touched: set[str] = set()
        self.is_known = True  # which devices are not as they were before the first change

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Say that devices change: from the command until the plugin noticed."""
        self.steady.clear()
        try:
            yield
        finally:
            self.steady.set()

    def concern(self, ids: Iterable[str]) -> None:
        """Note devices that a change concerned."""
        self._touched.update(ids)

    def untouched(self, ids: Iterable[str]) -> set[str]:
        """Return those of some devices that stay as they are; none while nobody knows."""
        if not self.steady.is_set() or not self.is_known:
            return set()
        return {*ids} - self._touched

    def next(self) -> TriggerRun:
        """Return the next run; the runs are numbered from 1."""
        self.runs += 1
        self._open.append(self.runs)
        return TriggerRun(self.trigger.command, self.runs)

    def undoing(self) -> list[TriggerRun]:
        """Return what brings the devices back to where they were, and take it as done.

        A trigger without `undo` may be a switch: it has run an even number of times in the end.
        """
        done, self._open = self._open, []
        if self.trigger.undo:
            return [TriggerRun(self.trigger.undo, number) for number in reversed(done)]
        if len(done) % 2:
            last = self.next()
            self._open.clear()
            return [last]
        return []
