"""NodePrepareResources, done wrong."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from kubedevices.dra.preparation import Preparation
from kubedevices.dra.service import ClaimService
from kubedevices.kubelet_api.dra import ClaimAnswer
from tests.check.defects import (
    DEFECTS,
    PREPARE,
    Answers,
    Claims,
    accepting,
    answering,
    cdi_dir,
    defect,
    devices_as,
    leave_files_alone,
    patch,
)


@defect("prepare.answers")
def _names_no_file() -> None:
    devices_as(lambda device: device._replace(cdi_ids=("example.com/none=x",)))


@defect("prepare.repeat")
def _answers_differ() -> None:
    numbers = iter(range(10_000))
    devices_as(lambda device: device._replace(requests=("one", f"more-{next(numbers)}")))


@defect("prepare.batch")
def _all_or_nothing() -> None:
    def change(_claims: Claims, answers: Answers) -> Answers:
        bad = [each for each in answers.values() if isinstance(each, str)]
        return dict.fromkeys(answers, bad[0]) if bad else answers

    answering(change)


@defect("prepare.concurrent")
def _refuses_a_second_call() -> None:
    running: set[str] = set()

    async def prepare(self: ClaimService, claims: Claims) -> Mapping[str, ClaimAnswer]:
        if {each.uid for each in claims} & running:
            return {each.uid: "in progress" for each in claims}
        running.update(each.uid for each in claims)
        try:
            return await PREPARE(self, claims)
        finally:
            running.difference_update(each.uid for each in claims)

    patch(ClaimService, prepare=prepare)


for _rule, _words in {
    "prepare.uid": "it was replaced",
    "prepare.no-allocation": "nothing is allocated",
    "prepare.unknown-device": "there is no device",
    "prepare.config-strict": "has configuration",
}.items():
    DEFECTS[_rule] = lambda words=_words: accepting(words)  # type: ignore[misc]


@defect("prepare.exclusive")
def _never_looks_for_holders() -> None:
    patch(Preparation, _holders=lambda *_words: iter(()))


@defect("prepare.slow-api")
def _success_without_devices() -> None:
    answering(
        lambda _claims, answers: {
            uid: () if isinstance(answer, str) and "forbidden" in answer else answer
            for uid, answer in answers.items()
        }
    )


@defect("prepare.deadline")
def _keeps_its_lock_when_cancelled() -> None:
    lock = asyncio.Lock()

    async def prepare(self: ClaimService, claims: Claims) -> Mapping[str, ClaimAnswer]:
        await lock.acquire()
        answers = await PREPARE(self, claims)
        lock.release()
        return answers

    patch(ClaimService, prepare=prepare)


@defect("prepare.text")
def _says_nothing() -> None:
    answering(
        lambda _claims, answers: {
            uid: "failed" if isinstance(answer, str) else answer for uid, answer in answers.items()
        }
    )


@defect("prepare.twice")
def _writes_a_device_for_each_request() -> None:
    def change(_claims: Claims, answers: Answers) -> Answers:
        for uid, answer in answers.items():
            names = [] if isinstance(answer, str) else [each.device for each in answer]
            if len({*names}) < len(names):
                (file,) = (each for each in cdi_dir().iterdir() if uid in each.name)
                _repeat_devices(file)
        return answers

    answering(change)
    leave_files_alone()


def _repeat_devices(file: Path) -> None:
    content = json.loads(file.read_text())
    content["devices"] *= 2
    file.write_text(json.dumps(content))
