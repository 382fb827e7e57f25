"""The answer about a subject: the cause, and a reason for each device and node. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kubedevices.errors.words import counted
from kubedevices.explain.finding import Outcome

_SHOWN = 5
"""Lines for one kind of reason; the others are counted."""


class Evidence(NamedTuple):
    """Why one device, node or object does not help. Those of the same `kind` are shown together."""

    kind: str
    about: str
    reason: str
    thing: str = "device"


@dataclass(frozen=True)
class SubjectAnswer:
    """What is the matter with `subject`: the cause in one line, and why.

    `unread` are the sources that could not be read, `notes` what limits the answer.
    """

    subject: str
    result: Outcome
    cause: str
    evidence: tuple[Evidence, ...] = ()
    advice: str = ""
    command: str = ""
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 all is well, 1 a problem, 3 the question could not be answered."""
        return {Outcome.PROBLEM: 1, Outcome.UNKNOWN: 3}.get(self.result, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer for JSON and YAML; the keys are public."""
        evidence = [each._asdict() for each in self.evidence]
        return {**vars(self), "result": str(self.result), "evidence": evidence}


def summarised(evidence: Iterable[Evidence]) -> Iterator[tuple[str, str]]:
    """Yield what each line is about, and its reason; of many for one reason, the first few."""
    kinds: dict[tuple[str, str], list[Evidence]] = {}
    for each in evidence:
        kinds.setdefault((each.kind, each.thing), []).append(each)
    for (_, thing), alike in kinds.items():
        yield from ((each.about, each.reason) for each in alike[:_SHOWN])
        if len(alike) > _SHOWN:
            more = counted(len(alike) - _SHOWN, f"more {thing}")
            yield "", f"and {more} for the same reason"
