"""Serves a record as a plugin: the same lists at the same times, the same answers. For `replay`."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kubedevices.errors import RpcError, StatusCode, UsageError
from kubedevices.errors.words import counted
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.options import RunnerOptions
from kubedevices.plugin.scanner import Scanner
from kubedevices.proxy.foreign_list import ForeignList, read_list
from kubedevices.proxy.plugin_calls import CallsOnly
from kubedevices.proxy.record_reader import (
    Answer,
    Change,
    RecordedResource,
    key_of,
    key_text,
    read_recording,
)
from kubedevices.rules.record_format import ALLOCATE, PRE_START, PREFER
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.resource_name import ResourceName

OPTIONS: RunnerOptions = {
    "relay": True,
    "preferred_errors": "fail",
    "allocate_timeout": math.inf,
    "preferred_timeout": math.inf,
    "pre_start_timeout": math.inf,
}
"""Options of the runner of a `Replay`: it answers as slowly as the recorded plugin did."""

_log = logging.getLogger(__name__)


class Replay(Scanner):
    """Serves the resources of one domain from a record, `domain` if given; `files` in any order.

    The first list is sent at once, every other list after its recorded time, divided by `speed`;
    the last list stays. Allocate, GetPreferredAllocation and PreStartContainer get the recorded
    answer to a request for the same devices: the first request gets the first answer, and when all
    answers are used, the last answer is repeated. A request that was never recorded gets an error.
    Raises `CannotRead` and `UsageError`.
    """

    def __init__(self, *files: Path | str, speed: float = 1.0, domain: str = "") -> None:
        if not speed > 0:
            raise UsageError(f"speed must be more than 0, not {speed!r}")
        self._speed = speed
        self.recording = read_recording([Path(each) for each in files])
        names = {name: ResourceName.parse(name) for name in self.recording.resources}
        domains = sorted({name.domain for name in names.values()})
        if domain and domain not in domains:
            raise UsageError(f"the record has no resource of {domain!r}: {', '.join(domains)}")
        if not domains:
            raise UsageError("the record has no resource")
        if not domain and len(domains) > 1:
            raise UsageError(
                f"the record has resources of {len(domains)} domains, but a plugin has one domain: "
                f"choose one of {', '.join(domains)}"
            )
        self.domain = domain or domains[0]
        self._resources = {
            name.device_type: self.recording.resources[full]
            for full, name in names.items()
            if name.domain == self.domain
        }
        self._answers = {
            name: RecordedAnswers(each, speed) for name, each in self._resources.items()
        }

    def abilities_of(self, device_type: str) -> "RecordedAnswers":
        """Return the recorded answers of one resource."""
        return self._answers[device_type]

    async def scan(self, notifier: Notifier) -> None:
        """Report the lists at their times."""
        self._log_content()
        changes = sorted(
            ((change, name) for name, each in self._resources.items() for change in each.changes),
            key=lambda each: each[0].time,
        )
        loop = asyncio.get_running_loop()
        zero, began = changes[0][0].time if changes else 0.0, loop.time()
        lists: dict[str, Change] = {}
        for number, (change, name) in enumerate(changes):
            lists[name] = change
            following = changes[number + 1][0].time if number + 1 < len(changes) else None
            if following is not None and self._due(began, zero, following) <= loop.time():
                continue  # several lists at the same time, or late: only the last list counts
            notifier.notify(tree_of(lists))
            if following is not None:
                await asyncio.sleep(self._due(began, zero, following) - loop.time())
        if changes:
            _log.info("the record is at its end: its last lists stay")
        else:
            notifier.notify(DeviceTree())
        await notifier.wait_stopped()

    def _due(self, began: float, zero: float, time: float) -> float:
        return began + (time - zero) / self._speed

    def _log_content(self) -> None:
        for problem in self.recording.problems:
            _log.warning("%s", problem)
        if self.recording.is_redacted:
            _log.warning("the record has no values of env: containers get REDACTED instead")
        for each in self._resources.values():
            answers = sum(map(len, each.answers.values()))
            _log.info(
                "%s: %s, %s",
                each.name, counted(len(each.changes), "list"), counted(answers, "answer"),
            )  # fmt: skip


def tree_of(lists: Mapping[str, Change]) -> DeviceTree:
    """Return the listed devices, by device type; without resources that are not served."""
    tree = DeviceTree()
    for name, change in lists.items():
        if change.entries is not None:
            message = b"".join(change.entries)
            found = read_list(device_list_from_wire(message), ForeignList())
            tree.put_list(name, dict(found.devices), message)
    return tree


class RecordedAnswers(CallsOnly):
    """Answers from the record of one resource."""

    def __init__(self, resource: RecordedResource, speed: float) -> None:
        super().__init__(resource.name, resource.options)
        self._resource, self._speed = resource, speed
        self._asked: Counter[tuple[str, Any]] = Counter()

    async def allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Return the recorded answer."""
        answers = await self._answers(ALLOCATE, request)
        return AllocateResponse([part for each in answers for part in each.containers])

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Return the recorded answer."""
        answers = await self._answers(PREFER, request)
        return PreferredAllocationResponse(
            tuple(part for each in answers for part in each.containers)
        )

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Return the recorded answer."""
        (answer,) = await self._answers(PRE_START, request)
        assert isinstance(answer, PreStartContainerResponse)
        return answer

    async def _answers(self, call: str, request: Any) -> Sequence[Any]:
        """Return the recorded answer to the request.

        If it was recorded as one request per container, return the answers of all its containers.
        """
        key = key_of(call, request)
        keys = [key]
        if (call, key) not in self._resource.answers and len(key) > 1:
            keys = [(part,) for part in key]
        found = [self._next(call, each, request) for each in keys]
        await asyncio.sleep(max(each.took for each in found) / self._speed)
        for each in found:
            if each.error is not None:
                raise each.error
        return [each.response for each in found]

    def _next(self, call: str, key: Any, request: Any) -> Answer:
        answers = self._resource.answers.get((call, key))
        if answers is None:
            raise RpcError(
                StatusCode.NOT_FOUND,
                f"{self._resource.name}: the record has no answer to {call} of "
                f"{key_text(call, key_of(call, request))}; recorded requests: "
                f"{self._resource.recorded_requests(call)}",
            )
        turn = self._asked[call, key]
        # A retry of the kubelet gets the second recorded answer, as in the recording.
        self._asked[call, key] += 1
        return answers[min(turn, len(answers) - 1)]
