"""Calls the author's code for claims: what containers get, what is made ready. asyncio.

Every call has a deadline. A call that is late goes on in its thread, and nothing else is asked for
its claim until it ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kubedevices.allocation import (
    AllocateRequest,
    AllocateResponse,
    ClaimedDevices,
    ClaimReference,
    ContainerAllocateRequest,
    PreStartContainerRequest,
)
from kubedevices.cdi import ContainerEdits
from kubedevices.dra.claim_cdi import Given, annotations_left_out, edits_for, edits_of_answer
from kubedevices.dra.claims import Configuration, Group, Result
from kubedevices.dra.parameters import ParametersInvalid, decode
from kubedevices.dra.slices import TypedDevice
from kubedevices.errors import ClaimRefused, HookHangs, HookTimedOut
from kubedevices.host.device_links import with_real_files
from kubedevices.plugin import hook_threads
from kubedevices.plugin.hook_threads import Deadline
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.timing import HookTimeouts

T = TypeVar("T")
_Members = dict[tuple[str, str], list[Result]]
_log = logging.getLogger(__name__)


class AuthorCalls:
    """The hooks of one driver, which `hooks_of` returns for a device type.

    No hook may take longer than `longest` seconds, whatever `timeouts` says.
    """

    def __init__(
        self,
        driver: str,
        hooks_of: Callable[[str], Hooks],
        *,
        dev_root: Path,
        timeouts: HookTimeouts,
        longest: float,
    ) -> None:
        self._driver, self._hooks_of = driver, hooks_of
        self._dev_root, self.timeouts, self._longest = dev_root, timeouts, longest
        # By claim: calls that went on after their deadline. While there is one, nothing else is
        # done with the claim, because both could change the device.
        self._late: dict[str, asyncio.Task[Any]] = {}
        self._told: set[tuple[str, str]] = set()

    def plan(
        self,
        claim: ClaimReference,
        results: Iterable[Result],
        offered: Mapping[str, TypedDevice],
        configuration: Mapping[str, Configuration],
    ) -> tuple[Group, ...]:
        """Return what has to be made ready; raises `ClaimRefused` for configuration that is wrong.

        Devices that are not offered are left out.
        """
        found = []
        members = _grouped((each for each in results if each.device in offered), offered)
        for (request, device_type), group in members.items():
            hooks, given = self._hooks_of(device_type), configuration.get(request, {})
            if hooks.parameters is None and given:
                raise ClaimRefused(
                    str(claim),
                    f"request {request}: the claim or its DeviceClass has configuration for "
                    f"{self._driver}, which takes none for {device_type}: remove it",
                )
            if hooks.can_prepare:
                ids = tuple(offered[each.device].device.id for each in group)
                planned = Group(request, device_type, ids, given)
                _parameters_of(hooks, claim, planned)
                found.append(planned)
        return tuple(found)

    async def give(
        self, results: tuple[Result, ...], offered: Mapping[str, TypedDevice]
    ) -> dict[Result, Given]:
        """Return what each device gives; an author's answer comes with the first of its devices."""
        given: dict[Result, Given] = {}
        for (_, device_type), members in _grouped(results, offered).items():
            devices = [offered[each.device].device for each in members]
            answer = await self._ask(device_type, tuple(each.id for each in devices))
            if answer is None:
                for result, device in zip(members, devices, strict=True):
                    real = await hook_threads.call(with_real_files, device, self._dev_root)
                    given[result] = edits_for(real)
            else:
                self._warn_of_annotations(device_type, answer)
                empty = edits_of_answer(AllocateResponse())
                # One Allocate answer is about all devices together: given with each of them it
                # would be doubled.
                given |= dict.fromkeys(members, empty) | {members[0]: edits_of_answer(answer)}
        return {each: given[each] for each in results}

    def _warn_of_annotations(self, device_type: str, answer: AllocateResponse) -> None:
        lost = [
            each for each in annotations_left_out(answer) if (device_type, each) not in self._told
        ]
        if lost:
            self._told |= {(device_type, each) for each in lost}
            _log.warning(
                "%s/%s: containers of claims do not get annotations such as %s: CDI has none",
                self._driver, device_type, ", ".join(lost),
            )  # fmt: skip

    async def prepare(self, claim: ClaimReference, group: Group) -> ContainerEdits:
        """Let the author make the devices ready; return what a container gets besides."""
        hooks = self._hooks_of(group.device_type)
        claimed = _claimed(claim, group, _parameters_of(hooks, claim, group))
        return await self._finish(hooks.prepare_claim, claimed) or ContainerEdits()

    async def unprepare(self, claim: ClaimReference, groups: Iterable[Group]) -> None:
        """Let the author undo it, the last group first."""
        # The last first: a group may rely on those that were prepared before it.
        for group in reversed(tuple(groups)):
            hooks = self._hooks_of(group.device_type)
            try:
                parameters = _parameters_of(hooks, claim, group)
            except ClaimRefused as error:
                _log.warning("%s: given back without what it configured", error)
                # A claim must be given back even if its configuration is no longer understood, for
                # example after an update of the driver.
                parameters = None
            await self._finish(hooks.unprepare_claim, _claimed(claim, group, parameters))

    def is_late(self, claim: ClaimReference) -> bool:
        """Whether a call for the claim goes on after its deadline."""
        return claim.uid in self._late

    async def wait_until_quiet(self, claim: ClaimReference, timeout: float | None) -> None:
        """Wait for a call that is late; raises `ClaimRefused` if that takes too long."""
        if task := self._late.get(claim.uid):
            await asyncio.wait({task}, timeout=timeout)
            if not task.done():
                raise ClaimRefused(str(claim), f"{task.get_name()} has still not returned")

    async def _finish(
        self, hook: Callable[[ClaimedDevices], Awaitable[T]], claimed: ClaimedDevices
    ) -> T:
        """Call a hook that must not be left alone: it changes the devices."""
        name = f"{self._hooks_of(claimed.device_type).name}.{getattr(hook, '__name__', 'hook')}"
        if len(self._late) >= hook_threads.HANGING_LIMIT:
            raise HookHangs(name, len(self._late))
        seconds, uid = min(self.timeouts.prepare, self._longest), claimed.claim.uid
        task = asyncio.ensure_future(hook(claimed))
        assert isinstance(task, asyncio.Task)
        task.set_name(name)
        await asyncio.wait({task}, timeout=seconds)
        if task.done():
            return task.result()
        # Not cancelled: a change of a device that is cut off half-way would be worse than a late
        # one.
        self._late[uid] = task
        task.add_done_callback(lambda _: self._late.pop(uid))
        task.add_done_callback(_tell)
        resource = f"{self._driver}/{claimed.device_type}"
        raise HookTimedOut(resource, name, seconds, "prepare_timeout")

    async def _ask(self, device_type: str, ids: tuple[str, ...]) -> AllocateResponse | None:
        """Return the author's answer for devices of one type, None to leave it to us."""
        hooks = self._hooks_of(device_type)
        request = AllocateRequest((ContainerAllocateRequest(ids),))
        answer = await self._in_time(hooks.allocate, request, device_type, "allocate")
        if hooks.can_pre_start:
            start = PreStartContainerRequest(ids)
            await self._in_time(hooks.pre_start_container, start, device_type, "pre_start")
        return answer if isinstance(answer, AllocateResponse) else None

    async def _in_time(
        self,
        hook: Callable[[Any, Deadline], Awaitable[T]],
        request: object,
        device_type: str,
        name: str,
    ) -> T:
        seconds = min(getattr(self.timeouts, name), self._longest)
        at = asyncio.get_running_loop().time() + seconds
        resource = f"{self._driver}/{device_type}"
        return await hook(request, Deadline(at, seconds, resource, f"{name}_timeout"))


def _grouped(results: Iterable[Result], offered: Mapping[str, TypedDevice]) -> _Members:
    """Return devices by request and type."""
    members: _Members = {}
    for each in results:
        members.setdefault((each.request, offered[each.device].device_type), []).append(each)
    return members


def _parameters_of(hooks: Hooks, claim: ClaimReference, group: Group) -> Any:
    if hooks.parameters is None:
        return None
    try:
        return decode(hooks.parameters, group.configuration)
    except ParametersInvalid as error:
        raise ClaimRefused(
            str(claim), f"the configuration of the request {group.request}: {error}"
        ) from None


def _claimed(claim: ClaimReference, group: Group, parameters: Any) -> ClaimedDevices:
    return ClaimedDevices(claim, group.request, group.device_type, group.device_ids, parameters)


def _tell(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s failed after its deadline: %r", task.get_name(), error)
