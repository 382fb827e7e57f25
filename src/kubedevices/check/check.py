"""What a check is: the types that the files in `checks/` use.

A check is a coroutine function. Its docstring is the rule. It returns its evidence if the plugin
keeps the rule. If not, it raises a `NotPassed`: `Broken`, `Fragile` or `NotTried`. A check that
judges each resource for itself returns a dict of verdicts instead.
"""

import enum
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubedevices.errors import WireError
from kubedevices.host import deadlines


class Status(enum.StrEnum):
    """The result of a check."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    NOTE = "note"


class Severity(enum.StrEnum):
    """What it means to break the rule, from the least to the worst.

    `note`: most plugins do this. `warn`: the plugin is fragile. `fail`: this breaks a node or the
    API.
    """

    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


NOTE, WARN, FAIL = Severity.NOTE, Severity.WARN, Severity.FAIL


class Harm(enum.IntEnum):
    """What a broken rule costs on a node, the worst first. Reports show findings in this order."""

    ALL_DEVICES = 1  # the node loses all devices of a resource
    WRONG_DEVICE = 2  # a container gets a wrong, a broken or no device
    POD = 3  # a pod is rejected, or its container does not start
    OTHER = 4


class Phase(enum.IntEnum):
    """When a check runs, and what it may assume about the plugin.

    ARRIVAL   the plugin called Register; nothing else is certain
    PEACEFUL  the plugin is registered, and stays registered
    QUIET     as PEACEFUL; the check judges a time in which nobody called the plugin
    RESTARTS  the plugin is registered; the check restarts the kubelet
    PROCESS   nothing; the check starts and ends plugin processes itself
    """

    ARRIVAL = 1
    PEACEFUL = 2
    QUIET = 3
    RESTARTS = 4
    PROCESS = 5


class Verdict(NamedTuple):
    """The outcome for one resource: one line of evidence, and more lines in `story`.

    Findings with the same `cause` that is not empty are one group in a report.
    """

    status: Status
    evidence: str
    story: str = ""
    cause: str = ""


class NotPassed(Exception):
    """The plugin breaks the rule, or the check cannot try the rule.

    `evidence` is one line; `story` has any number of lines, for example the plugin's output.
    `cause` is equal for findings with one cause.
    """

    def __init__(self, evidence: str, story: str = "", cause: str = "") -> None:
        self.evidence, self.story, self.cause = evidence, story, cause
        super().__init__(evidence)


class Broken(NotPassed):
    """The plugin breaks the rule: the status is the severity of the check."""


class Fragile(NotPassed):
    """The plugin keeps the rule only by luck: the status is a warning, or a note."""


class NotTried(NotPassed):
    """The rule cannot be tried on this plugin, or not in the way it was started."""


class PluginLost(Exception):
    """The plugin is not registered, and a fresh start does not help; other checks are skipped."""


Outcome = str | dict[str, Verdict]
"""What a check returns: the evidence that the plugin passes, or a verdict for each resource."""


@dataclass(frozen=True)
class PluginCheck:
    """One rule, what reports say about it, and the function that tries it.

    needs     IDs of checks; if one of them fails, this check is skipped
    track     checks of one track share a copy of the plugin; tracks run at the same time. "" is
              the main track
    alone     the check has its own copy of the plugin, if copies may run at the same time
    disturbs  the check ends streams or connections; afterwards the runner looks if the plugin lives
    slow      the check waits for a long time: --quick leaves it out
    starts    the check starts the driver itself, so that it need not run before
    harm      decides the order of findings in a report
    since, until     the first and the last kubelet version that does harm, "" for all
    suffers   the harm on a node
    source    the source of the rule
    mend      how to correct a plugin
    seen      plugins that broke the rule
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
    starts: bool = False
    harm: Harm = Harm.OTHER
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
    track: str | None = ""  # None: each check has its own track
    disturbs: bool = False
    slow: bool = False
    harm: Harm = Harm.OTHER  # of checks that do not say their own
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
        track: str | None = None,
        alone: bool = False,
        disturbs: bool = False,
        slow: bool = False,
        starts: bool = False,
        harm: Harm | None = None,
        until: str = "",
    ) -> Callable[[Callable[[Any], Awaitable[Outcome]]], Callable[[Any], Awaitable[Outcome]]]:
        """Turn a function into a check.

        A function with the parameter `plugin` runs once per resource and takes a `Plugin`; any
        other function runs once and takes the `Harness`.
        """

        def add(
            function: Callable[[Any], Awaitable[Outcome]],
        ) -> Callable[[Any], Awaitable[Outcome]]:
            (parameter,) = inspect.signature(function).parameters
            self.checks.append(
                PluginCheck(
                    id=f"{self.name}.{name}",
                    severity=severity,
                    phase=self.phase,
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
                    starts=starts,
                    harm=harm or self.harm,
                    until=until,
                )
            )
            return function

        return add


async def judged(
    check: PluginCheck, subject: object, limit: float, last_words: Callable[[], str] = str
) -> Verdict | dict[str, Verdict]:
    """Run a check on its subject, at most `limit` seconds; return its verdict, or one by resource.

    `last_words` returns what the program printed before a call failed.
    """
    try:
        async with deadlines.timeout(limit):
            outcome = await check.run(subject)
    except NotPassed as finding:
        return verdict_of(finding, check.severity)
    except WireError as error:
        return Verdict(Status(check.severity), str(error), last_words())
    except TimeoutError:
        return Verdict(Status.FAIL, f"no end within {limit:.0f} s")
    if isinstance(outcome, dict):
        return {name: capped(verdict, check.severity) for name, verdict in outcome.items()}
    return Verdict(Status.PASS, outcome)


def verdict_of(finding: NotPassed, severity: Severity) -> Verdict:
    """Return the verdict for a finding of a check with this severity."""
    if isinstance(finding, NotTried):
        status = Status.SKIP
    elif isinstance(finding, Fragile):
        status = Status(milder(severity, WARN))
    else:
        status = Status(severity)
    return Verdict(status, finding.evidence, finding.story, finding.cause)


def milder(one: Severity, other: Severity) -> Severity:
    """Return the less severe of two severities."""
    return min(one, other, key=list(Severity).index)


def capped(verdict: Verdict, severity: Severity) -> Verdict:
    """Return `verdict` with a status that is not worse than the severity of its check."""
    if verdict.status not in (Status.FAIL, Status.WARN):
        return verdict
    return verdict._replace(status=Status(milder(Severity(verdict.status), severity)))
