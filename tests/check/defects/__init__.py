"""Defects of DRA drivers: each patches our own driver so that it breaks one rule of the check.

`DEFECTS` has a function for each rule, by the ID of the rule; `VARIANTS` has further defects.

registration  how the driver registers and stops
slices        what it publishes
prepare       NodePrepareResources
configuration  the parameters of a claim
unprepare     NodeUnprepareResources
state         its files
health        its health stream
process       its process
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubedevices.dra.service import ClaimService
from kubedevices.kubelet_api.dra import ClaimAnswer
from kubedevices.values.allocation import ClaimDevice, ClaimReference

Answers = dict[str, ClaimAnswer]
Claims = tuple[ClaimReference, ...]
DEFECTS: dict[str, Callable[[], None]] = {}
VARIANTS: dict[str, Callable[[], None]] = {}
PREPARE, UNPREPARE = ClaimService.prepare, ClaimService.unprepare
_WRONG = ClaimDevice(("one",), "check-node", "wrong")


def defect(rule: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function that breaks the rule with this ID."""

    def add(function: Callable[[], None]) -> Callable[[], None]:
        DEFECTS[rule] = function
        return function

    return add


def variant(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a further defect by a name of its own."""

    def add(function: Callable[[], None]) -> Callable[[], None]:
        VARIANTS[name] = function
        return function

    return add


def patch(owner: Any, **members: Any) -> None:
    """Replace functions of a class or of a module."""
    for name, value in members.items():
        setattr(owner, name, value)


def answering(change: Callable[[Claims, Answers], Answers]) -> None:
    """Let Prepare answer what `change` makes of the right answers."""

    async def prepare(self: ClaimService, claims: Claims) -> Mapping[str, ClaimAnswer]:
        return change(claims, {**await PREPARE(self, claims)})

    patch(ClaimService, prepare=prepare)


def accepting(words: str) -> None:
    """Answer success where the right answer is an error with these words."""

    def change(_claims: Claims, answers: Answers) -> Answers:
        return {
            uid: (_WRONG,) if isinstance(answer, str) and words in answer else answer
            for uid, answer in answers.items()
        }

    answering(change)


def devices_as(change: Callable[[ClaimDevice], ClaimDevice]) -> None:
    """Change each prepared device."""

    def changed(_claims: Claims, answers: Answers) -> Answers:
        return {
            uid: answer if isinstance(answer, str) else tuple(map(change, answer))
            for uid, answer in answers.items()
        }

    answering(changed)


def unpreparing(before: Callable[[Claims], str | None]) -> None:
    """Answer Unprepare with the text of `before`; the right answer if it is None."""

    async def unprepare(self: ClaimService, claims: Claims) -> Mapping[str, str]:
        text = before(claims)
        return await UNPREPARE(self, claims) if text is None else {c.uid: text for c in claims}

    patch(ClaimService, unprepare=unprepare)


async def nothing(*_words: object) -> None:
    """Do nothing, in the place of a method of the driver."""


def leave_files_alone() -> None:
    """Do not write a CDI file again that somebody removed or changed."""
    patch(ClaimService, ensure_files=nothing)


def kubelet_dir() -> Path:
    """Return the kubelet's root directory from the command line."""
    return Path(sys.argv[sys.argv.index("--kubelet-dir") + 1])


def cdi_dir() -> Path:
    """Return the directory of CDI files from the command line."""
    return Path(sys.argv[sys.argv.index("--cdi-dir") + 1])
