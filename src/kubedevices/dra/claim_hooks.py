"""Calls the plugin author's hooks for a claim. asyncio.

`allocate`, `post_allocate` and `pre_start_container` say what containers get; `prepare_claim` and
`unprepare_claim` prepare the devices and undo this. Every call has a deadline. A late call, which
has passed its deadline, goes on in its thread. No other hook is called for its claim until the late
call returns.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kubedevices.dra.claim_cdi import (
    CdiEdits,
    annotations_left_out,
    answer_as_json,
    answer_from_json,
    cdi_part,
    edits_for,
    edits_from_json,
    edits_of_answer,
    plain_part,
)
from kubedevices.dra.claims import Configuration, DeviceGroup, Result
from kubedevices.dra.parameters import ParametersInvalid, decode
from kubedevices.dra.shared_devices import Work, check_configuration
from kubedevices.dra.slices import TypedDevice
from kubedevices.errors import ClaimRefused, HookHangs, HookTimedOut
from kubedevices.host.device_links import with_real_files
from kubedevices.plugin import hook_threads
from kubedevices.plugin.allocate_response import default_response
from kubedevices.plugin.hook_threads import Deadline
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.timing import HookTimeouts
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ClaimedDevices,
    ClaimReference,
    ContainerAllocateRequest,
    PreStartContainerRequest,
)
from kubedevices.values.cdi import ContainerEdits
from kubedevices.values.cdi.values import to_dict
from kubedevices.values.device import Device

T = TypeVar("T")
_Members = dict[tuple[str, str], list[Result]]
_log = logging.getLogger(__name__)


class _LateCall(NamedTuple):
    """A call that goes on after its deadline, and the devices that it works on."""

    task: asyncio.Task[Any]
    claimed: ClaimedDevices

    def works_on(self, group: DeviceGroup) -> bool:
        ours = self.claimed
        is_same = ours.device_type == group.device_type
        return is_same and not set(ours.device_ids).isdisjoint(group.device_ids)


class ClaimHooks:
    """Calls the hooks of one driver; `hooks_of` returns the hooks of a device type.

    The deadline of a hook is in `timeouts`, but at most `longest` seconds.
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
        # The late call of each claim, by UID. Meanwhile no other hook is called for the claim: both
        # could change the same device.
        self._late: dict[str, _LateCall] = {}
        self._logged_annotations: set[tuple[str, str]] = set()

    def plan(
        self,
        claim: ClaimReference,
        results: Iterable[Result],
        offered: Mapping[str, TypedDevice],
        configuration: Mapping[str, Configuration],
    ) -> tuple[DeviceGroup, ...]:
        """Return the groups of devices to prepare; raises `ClaimRefused` for a wrong configuration.

        Devices that are not in `offered` are left out.
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
            for planned in _planned(request, device_type, group, offered, given):
                if planned.label or hooks.can_prepare:
                    _parameters_of(hooks, claim, planned)
                    found.append(planned)
        return tuple(found)

    async def make_ready(
        self,
        claim: ClaimReference,
        results: tuple[Result, ...],
        offered: Mapping[str, TypedDevice],
        groups: Sequence[DeviceGroup],
        *,
        others: Work,
        begun: list[DeviceGroup],
    ) -> tuple[dict[Result, CdiEdits], tuple[DeviceGroup, ...]]:
        """Call the hooks for a claim; return what a container gets with each device, and the work.

        The work of `others` on shared devices is taken over. `begun` gets each group before its
        work begins or is taken over.
        """
        self._check_no_late_call(claim, groups)
        given = await self._allocate(results, offered, others)
        done = []
        for group in groups:
            members = [each for each in results if _is_member(each, group, offered)]
            if other := others.get(group.label):
                check_configuration(claim, group, other)
                finished = other._replace(request=group.request)
                begun.append(finished)
            else:
                begun.append(group)
                edits = ContainerEdits()
                if self._hooks_of(group.device_type).can_prepare:
                    edits = await self.prepare(claim, group)
                devices = {each.device for each in results if each.request == group.request}
                is_alone = devices == {group.label}
                answer = given[members[0]] if group.label and is_alone else None
                finished = group._replace(
                    first=claim,
                    answer=None if answer is None else answer_as_json(answer),
                    edits=to_dict(edits),
                )
            plain, names = given[members[0]]
            given[members[0]] = plain.plus(edits_from_json(finished.edits or {})), names
            done.append(finished if group.label else group)
        return given, tuple(done)

    async def _allocate(
        self, results: tuple[Result, ...], offered: Mapping[str, TypedDevice], others: Work
    ) -> dict[Result, CdiEdits]:
        """Return what a container gets with each device by `allocate`.

        An answer about several devices belongs to the first. With one shared device that another
        claim has, it is the answer to the other claim.
        """
        given: dict[Result, CdiEdits] = {}
        for (_, device_type), members in _grouped(results, offered).items():
            # A request may have several shares of one device: a container gets the device once.
            firsts = list({each.device: each for each in reversed(members)}.values())[::-1]
            given |= dict.fromkeys(members, (ContainerEdits(), ()))
            alone = others.get(firsts[0].device) if len(firsts) == 1 else None
            if alone is not None and alone.answer is not None:
                given[firsts[0]] = answer_from_json(alone.answer)
                continue
            devices = [offered[each.device] for each in firsts]
            started = {each.device for each in firsts} & others.keys()
            is_new = [each.device not in started for each in firsts]
            given |= zip(firsts, await self._ask(device_type, devices, is_new), strict=True)
        return given

    def _warn_of_annotations(self, device_type: str, answer: AllocateResponse) -> None:
        lost = [
            each
            for each in annotations_left_out(answer)
            if (device_type, each) not in self._logged_annotations
        ]
        if lost:
            self._logged_annotations |= {(device_type, each) for each in lost}
            _log.warning(
                "%s/%s: containers of claims do not get annotations such as %s: CDI has none",
                self._driver, device_type, ", ".join(lost),
            )  # fmt: skip

    async def prepare(self, claim: ClaimReference, group: DeviceGroup) -> ContainerEdits:
        """Call the author's `prepare_claim`; return the additional edits for a container."""
        hooks = self._hooks_of(group.device_type)
        claimed = _claimed(claim, group, _parameters_of(hooks, claim, group))
        return await self._finish(hooks.prepare_claim, claimed) or ContainerEdits()

    async def unprepare(self, claim: ClaimReference, groups: Iterable[DeviceGroup]) -> None:
        """Call the author's `unprepare_claim` for each group, the last group first."""
        # The last group first: a group may depend on the groups that were prepared before it.
        for group in reversed(tuple(groups)):
            hooks = self._hooks_of(group.device_type)
            try:
                parameters = _parameters_of(hooks, claim, group)
            except ClaimRefused as error:
                # The claim must be unprepared even if the driver cannot read its configuration, for
                # example after an update of the driver.
                _log.warning("%s: unprepared without parameters", error)
                parameters = None
            whose = group.first or claim
            await self._finish(hooks.unprepare_claim, _claimed(whose, group, parameters))

    def _check_no_late_call(self, claim: ClaimReference, groups: Sequence[DeviceGroup]) -> None:
        """Raise `ClaimRefused` if a late call of another claim works on a device of `groups`."""
        for late in self._late.values():
            if any(map(late.works_on, groups)):
                raise ClaimRefused(str(claim), f"{late.task.get_name()} has still not returned")

    def is_late(self, claim: ClaimReference) -> bool:
        """Whether the claim has a late call."""
        return claim.uid in self._late

    async def wait_for_late_call(self, claim: ClaimReference, timeout: float | None) -> None:
        """Wait until the late call of the claim, if any, has returned.

        Raises `ClaimRefused` after `timeout` seconds; None means no limit.
        """
        if late := self._late.get(claim.uid):
            await asyncio.wait({late.task}, timeout=timeout)
            self.refuse_late_call(claim)

    def refuse_late_call(self, claim: ClaimReference) -> None:
        """Raise `ClaimRefused` if a late call of the claim has not returned."""
        if (late := self._late.get(claim.uid)) and not late.task.done():
            raise ClaimRefused(str(claim), f"{late.task.get_name()} has still not returned")

    async def _finish(
        self, hook: Callable[[ClaimedDevices], Awaitable[T]], claimed: ClaimedDevices
    ) -> T:
        """Call a hook that changes devices; on a timeout remember it as the claim's late call."""
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
        # The task is not cancelled: an interrupted change of a device would be worse than a late
        # change.
        self._late[uid] = _LateCall(task, claimed)
        task.add_done_callback(lambda _: self._late.pop(uid))
        task.add_done_callback(_log_failure)
        resource = f"{self._driver}/{claimed.device_type}"
        raise HookTimedOut(resource, name, seconds, "prepare_timeout")

    async def _ask(
        self, device_type: str, offered: Sequence[TypedDevice], is_new: Sequence[bool]
    ) -> Sequence[CdiEdits]:
        """Call `allocate`, `post_allocate` and `pre_start_container` for devices of one type.

        Return what a container gets with each device. Devices that are not new are in use by other
        claims, so `pre_start_container` is not called for them.
        """
        hooks = self._hooks_of(device_type)
        devices = [each.device for each in offered]
        # The middleware knows a shared device by the names of its replicas.
        ids = tuple(each.keys[0][1] for each in offered)
        request = AllocateRequest((ContainerAllocateRequest(ids),))
        answer = await self._in_time(hooks.allocate, request, device_type, "allocate")
        if isinstance(answer, AllocateResponse):
            found = self._joint(device_type, answer, [ContainerEdits()] * len(devices))
        else:
            real = [
                (await hook_threads.call(with_real_files, each, self._dev_root)).with_id(name)
                for each, name in zip(devices, ids, strict=True)
            ]
            found = await self._default(hooks, device_type, request, real)
        new = tuple(compress(ids, is_new))
        if hooks.can_pre_start and new:
            start = PreStartContainerRequest(new)
            await self._in_time(hooks.pre_start_container, start, device_type, "pre_start")
        return found

    async def _default(
        self, hooks: Hooks, device_type: str, request: AllocateRequest, devices: Sequence[Device]
    ) -> Sequence[CdiEdits]:
        """Return the framework's answer for each device, after `post_allocate` has edited it."""
        if not hooks.can_post_allocate:
            return [*map(edits_for, devices)]
        # `post_allocate` edits an answer for a container, as in a device plugin. Edits that the
        # author defines in `Device.cdi` are no part of such an answer.
        answer = default_response(request, {each.id: plain_part(each) for each in devices})

        async def post_allocate(request: AllocateRequest, deadline: Deadline) -> None:
            await hooks.post_allocate(answer, request, deadline)

        await self._in_time(post_allocate, request, device_type, "allocate")
        return self._joint(device_type, answer, [*map(cdi_part, devices)])

    def _joint(
        self, device_type: str, answer: AllocateResponse, edits: Sequence[ContainerEdits]
    ) -> Sequence[CdiEdits]:
        """Add an answer about several devices to the `edits` of the first device.

        With each device, a container would get it several times.
        """
        self._warn_of_annotations(device_type, answer)
        (first, *others), (joint, names) = edits, edits_of_answer(answer)
        return [(first.plus(joint), names), *((each, ()) for each in others)]

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
    """Return the devices by request and device type."""
    members: _Members = {}
    for each in results:
        members.setdefault((each.request, offered[each.device].device_type), []).append(each)
    return members


def _planned(
    request: str,
    device_type: str,
    members: Sequence[Result],
    offered: Mapping[str, TypedDevice],
    given: Configuration,
) -> Iterator[DeviceGroup]:
    """Yield the groups of a request: its devices together, but each shared device alone."""
    together = [each for each in members if not each.share_id]
    if together:
        ids = tuple(offered[each.device].device.id for each in together)
        yield DeviceGroup(request, device_type, ids, given)
    for label in dict.fromkeys(each.device for each in members if each.share_id):
        yield DeviceGroup(request, device_type, (offered[label].device.id,), given, label)


def _is_member(result: Result, group: DeviceGroup, offered: Mapping[str, TypedDevice]) -> bool:
    if result.request != group.request:
        return False
    if group.label:
        return result.device == group.label
    return not result.share_id and offered[result.device].device_type == group.device_type


def _parameters_of(hooks: Hooks, claim: ClaimReference, group: DeviceGroup) -> Any:
    if hooks.parameters is None:
        return None
    try:
        return decode(hooks.parameters, group.configuration)
    except ParametersInvalid as error:
        raise ClaimRefused(
            str(claim), f"the configuration of the request {group.request}: {error}"
        ) from None


def _claimed(claim: ClaimReference, group: DeviceGroup, parameters: Any) -> ClaimedDevices:
    return ClaimedDevices(claim, group.request, group.device_type, group.device_ids, parameters)


def _log_failure(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s failed after its deadline: %r", task.get_name(), error)
