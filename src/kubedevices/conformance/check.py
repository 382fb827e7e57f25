"""What a check is and how it speaks: for the files in `checks/`, which are made of nothing else.

A check is a coroutine function. Its docstring is the rule it tests. It returns its evidence when
the plugin keeps the rule, and raises a `Finding` when not.
"""

import enum
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Status(enum.StrEnum):
    """How a check ended."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    NOTE = "note"


class Severity(enum.StrEnum):
    """What breaking the rule means, the least first.

    `fail` breaks a node or the API, `warn` is fragile, `note` is what most plugins do.
    """

    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


class Phase(enum.IntEnum):
    """When a check runs, and what it may assume about the plugin.

    ARRIVAL   it called Register; nothing else is sure
    PEACEFUL  it is registered, and stays so
    QUIET     the same; looks back on what happened while nothing was asked of the plugin
    RESTARTS  it is registered; the check is about a kubelet that comes and goes
    PROCESS   nothing; the check starts and ends processes as it likes
    """

    ARRIVAL = 1
    PEACEFUL = 2
    QUIET = 3
    RESTARTS = 4
    PROCESS = 5


class Verdict(NamedTuple):
    """The outcome for one resource: one line of evidence, and what else there is to tell."""

    status: Status
    evidence: str
    story: str = ""


class NotPassed(Exception):
    """The rule is not kept, or cannot be tried. `evidence` is one line, `story` any number."""

    def __init__(self, evidence: str, story: str = "") -> None:
        self.evidence, self.story = evidence, story
        super().__init__(evidence)


class Broken(NotPassed):
    """The rule is broken, with all that its severity says."""


class Fragile(NotPassed):
    """The rule is kept with luck: a warning, whatever the severity."""


class NotTried(NotPassed):
    """This plugin, or the way it was started, leaves nothing to try."""


class PluginLost(Exception):
    """The plugin is not registered and cannot be made to; no further check makes sense."""


Outcome = str | dict[str, Verdict]


@dataclass(frozen=True)
class PluginCheck:
    """One rule, everything a report says about it, and how to try it.

    needs     IDs of checks without which this one says nothing
    track     checks of one track share a plugin; tracks run side by side. "" is the main track
    alone     side by side it has a plugin of its own nevertheless
    disturbs  it ends streams or connections: whether the plugin survived is looked at after it
    slow      it waits for long: --quick leaves it out
    since, until     the first and the last kubelet that does the harm, "" for all
    suffers   what a node would suffer
    source    where the rule comes from
    mend      how to mend a plugin
    seen      plugins that were seen to break it
    """

    id: str
    severity: Severity
    phase: Phase
    rule: str
    suffers: str
    source: str
    mend: str
    seen: str
    run: Callable[..., Awaitable[Outcome]]
    per_resource: bool
    needs: tuple[str, ...] = ()
    track: str = ""
    alone: bool = False
    disturbs: bool = False
    slow: bool = False
    since: str = ""
    until: str = ""

    @property
    def theme(self) -> str:
        """The part of the ID before the dot."""
        return self.id.partition(".")[0]


@dataclass
class Theme:
    """Collects the checks of one file."""

    name: str
    phase: Phase = Phase.PEACEFUL
    needs: tuple[str, ...] = ()
    track: str | None = ""  # None: each check is a track of its own
    disturbs: bool = False
    slow: bool = False
    checks: list[PluginCheck] = field(default_factory=list)

    def check(
        self,
        name: str,
        severity: Severity,
        *,
        suffers: str,
        source: str,
        mend: str,
        seen: str = "",
        needs: tuple[str, ...] = (),
        phase: Phase | None = None,
        track: str | None = None,
        alone: bool = False,
        disturbs: bool = False,
        slow: bool = False,
        since: str = "",
        until: str = "",
    ) -> Callable[[Callable[[Any], Awaitable[Outcome]]], Callable[[Any], Awaitable[Outcome]]]:
        """Make a check of a function that takes a `Plugin` (per resource) or the `Stage`."""

        def add(
            function: Callable[[Any], Awaitable[Outcome]],
        ) -> Callable[[Any], Awaitable[Outcome]]:
            (parameter,) = inspect.signature(function).parameters
            self.checks.append(
                PluginCheck(
                    id=f"{self.name}.{name}",
                    severity=severity,
                    phase=self.phase if phase is None else phase,
                    rule=" ".join((inspect.getdoc(function) or "").split()),
                    suffers=suffers,
                    source=source,
                    mend=mend,
                    seen=seen,
                    run=function,
                    per_resource=parameter == "plugin",
                    needs=(*self.needs, *needs),
                    track=track or (f"{self.name}.{name}" if self.track is None else self.track),
                    alone=alone,
                    disturbs=disturbs or self.disturbs,
                    slow=slow or self.slow,
                    since=since,
                    until=until,
                )
            )
            return function

        return add


def verdict_of(finding: NotPassed, severity: Severity) -> Verdict:
    """Return what a finding means in a check of this severity."""
    if isinstance(finding, NotTried):
        status = Status.SKIP
    elif isinstance(finding, Fragile):
        status = Status(min(severity, Severity.WARN, key=list(Severity).index))
    else:
        status = Status(severity)
    return Verdict(status, finding.evidence, finding.story)
