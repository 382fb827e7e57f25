"""State files and files of claims, done wrong."""

import os
import sys
from collections.abc import Mapping

from kubedevices.dra.service import ClaimService
from kubedevices.kubelet_api.dra import ClaimAnswer
from tests.check.defects import (
    PREPARE,
    UNPREPARE,
    Answers,
    Claims,
    accepting,
    answering,
    cdi_dir,
    defect,
    kubelet_dir,
    leave_files_alone,
    patch,
)


@defect("state.cdi-wiped")
def _answers_from_memory() -> None:
    known: Answers = {}

    async def prepare(self: ClaimService, claims: Claims) -> Mapping[str, ClaimAnswer]:
        new = tuple(each for each in claims if isinstance(known.get(each.uid, ""), str))
        known.update(await PREPARE(self, new))
        return {each.uid: known[each.uid] for each in claims}

    patch(ClaimService, prepare=prepare)
    leave_files_alone()


@defect("state.restart-held")
def _forgets_at_a_restart() -> None:
    for each in kubelet_dir().rglob("prepared*.json"):
        each.unlink()
    patch(ClaimService, unprepare=_only_known)


async def _only_known(self: ClaimService, claims: Claims) -> Mapping[str, str]:
    known = [each for each in claims if self._preparation.known(each.uid)]
    return {each.uid: "" if each in known else "unknown claim" for each in claims} | {
        **await UNPREPARE(self, tuple(known))
    }


@defect("state.checkpoint-cut")
def _crash_loop() -> None:
    for each in kubelet_dir().rglob("prepared*.json"):
        if not each.read_bytes().rstrip().endswith(b"}"):
            sys.exit("unexpected end of JSON input")


@defect("state.leftovers")
def _removes_files_of_others() -> None:
    for each in cdi_dir().iterdir():
        each.unlink()


@defect("state.growth")
def _leaks_descriptors() -> None:
    def change(_claims: Claims, answers: Answers) -> Answers:
        os.open("/dev/null", os.O_RDONLY)
        return answers

    answering(change)


@defect("state.checkpoint-write")
def _keeps_it_in_memory() -> None:
    accepting("Read-only file system")
