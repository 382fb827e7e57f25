"""Lists replicas of devices, so that several containers may have one device: `Shared`.

`replicas` has the names of replicas, `replica_choice` the decisions of a `ShareRule`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, NamedTuple, cast

from kubedevices.config.checks import at_least
from kubedevices.config.checks import replicas as check_replicas
from kubedevices.config.keys import Declared, key
from kubedevices.errors import AllocationRefused, StatusCode
from kubedevices.plugin.allocate_response import explain_preference
from kubedevices.plugin.author_errors import describe
from kubedevices.plugin.capabilities import AllocateAnswer, Allocator, PreferredAllocator
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.scanner import Scanner
from kubedevices.rules.middleware import OwnedRelay, Relay, RuledMiddleware
from kubedevices.rules.replica_choice import EqualDevices, Spreading, check_shares, prefer
from kubedevices.rules.replicas import (
    device_of,
    number_of,
    numbers_to_serve,
    replica_id,
    replicas_of,
)
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerPreferredRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device import Device
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.wildcards import fits

_MOST_HELD = 1000
"""If more devices of a type have held replicas, devices that are not listed are forgotten."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShareOf(Declared):
    """How many replicas some devices have."""

    HINT: ClassVar[str] = "write '{ids: \"GPU-a*\", replicas: 8}'"

    ids: str = key("glob of device IDs")
    replicas: int = key("replicas of each of these devices", check=check_replicas)


@dataclass(frozen=True, kw_only=True)
class ShareRule(Declared):
    """Several containers per device."""

    HINT: ClassVar[str] = "write 'share: {replicas: 4}'"

    replicas: int = key(
        "replicas of each device that no rule names", default=1, check=check_replicas
    )
    rules: tuple[ShareOf, ...] = key(
        "replicas of some devices; the first rule that matches counts", default=()
    )
    per_container: int | None = key(
        "the most replicas that one container may have", default=None, check=at_least(1)
    )
    distinct: bool = key(
        "whether replicas of one container must be of different devices", default=False
    )
    allocation: Spreading = key(
        "whether the least or the most used devices are allocated first", default="spread"
    )

    def count_of(self, device_id: str) -> int:
        """Return how many replicas a device has."""
        fitting = (rule.replicas for rule in self.rules if fits(device_id, rule.ids))
        return next(fitting, self.replicas)


class _Served(NamedTuple):
    """A device and the replicas that were listed last; `wanted` by the rule."""

    device: Device
    wanted: int
    numbers: list[int]
    replicas: tuple[Device, ...]

    @property
    def has_surplus(self) -> bool:
        """Whether replicas beyond the rule are listed, because containers hold them."""
        return self.numbers[-1] >= self.wanted


class Shared(RuledMiddleware[ShareRule]):
    """Lists several replicas of each device, so that several containers may have it.

    `Shared(scanner, replicas=4)`, or with `ShareRule`s. The plugin behind it knows nothing of
    replicas: its calls name each device once. When a rule changes, replicas that containers got
    since the start stay until the kubelet says that they are available. Events: `allocated`,
    `refused`, `preferred`, `preference_ignored` (the plugin's answer could not be used).
    """

    def __init__(
        self,
        scanner: Scanner,
        rules: ShareRule | Mapping[str, ShareRule] | None = None,
        *,
        replicas: int = 1,
        per_container: int | None = None,
        distinct: bool = False,
        allocation: Spreading = "spread",
    ) -> None:
        plain = ShareRule(
            replicas=replicas,
            per_container=per_container,
            distinct=distinct,
            allocation=allocation,
        )
        super().__init__(scanner, plain if rules is None else rules)
        self._served: Mapping[str, Mapping[str, _Served]] = {}
        self._used_rules: Mapping[str, ShareRule] = {}
        # By type and device: the numbers of the replicas that containers got since our start.
        self._held: dict[str, dict[str, frozenset[int]]] = {}

    def line(self) -> str:
        """Return the rules in one line."""
        return self.rules_line("shares", _rule_text)

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return the replicas; a device that is the same object as before keeps its replicas."""
        shared = DeviceTree()
        served: dict[str, Mapping[str, _Served]] = {}
        rules: dict[str, ShareRule] = {}
        for device_type in tree:
            devices = tree.devices(device_type)
            rule = self.rule_of(device_type)
            if rule is None:
                shared.put_list(device_type, dict(devices), tree.sent(device_type))
                continue
            found = self._share(device_type, rule, devices)
            served[device_type], rules[device_type] = found, rule
            replicas = chain.from_iterable(each.replicas for each in found.values())
            shared.put_list(device_type, {each.id: each for each in replicas})
            self.warn_of_unused_globs(device_type, (each.ids for each in rule.rules), devices, now)
        self._served, self._used_rules = served, rules
        return shared

    def _share(
        self, device_type: str, rule: ShareRule, devices: Mapping[str, Device]
    ) -> dict[str, _Served]:
        before = self._served.get(device_type, {})
        is_same_rule = self._used_rules.get(device_type) is rule
        held = self._held.get(device_type, {})
        served = {}
        for device in devices.values():
            known = before.get(device.id)
            is_settled = known and not known.has_surplus and device.id not in held
            if known and is_settled and is_same_rule and known.device is device:
                served[device.id] = known
                continue
            wanted = rule.count_of(device.id)
            numbers = numbers_to_serve(wanted, held.get(device.id, ()))
            if known is None or known.device is not device or known.numbers != numbers:
                known = _Served(device, wanted, numbers, replicas_of(device, numbers))
            served[device.id] = known._replace(wanted=wanted)
        return served

    def inner_id(self, device_type: str, device_id: str) -> str:
        """Return the ID of the device behind a replica."""
        return device_id if self.rule_of(device_type) is None else device_of(device_id)

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> Relay:
        """Return the relay that translates between replicas and devices."""
        return _SharingRelay(self, inner, device_type, inner_type)

    # ------------------------------------------------------------ who has what

    def total(self, device_type: str) -> dict[str, int]:
        """Return how many replicas of each device are listed."""
        served = self._served.get(device_type, {})
        return {name: len(each.replicas) for name, each in served.items()}

    def surplus(self, device_type: str, ids: Iterable[str]) -> list[str]:
        """Return the replicas that no container may get any more, because the rule has changed."""
        rule, served = self.rule_of(device_type), self._served.get(device_type, {})
        if rule is None:
            return []
        held = self._held.get(device_type, {})

        def is_surplus(replica: str) -> bool:
            device = device_of(replica)
            numbers = numbers_to_serve(rule.count_of(device), held.get(device, ()))
            return device in served and number_of(replica) not in numbers

        return [each for each in ids if is_surplus(each)]

    def maybe_surplus(self, device_type: str, ids: Iterable[str]) -> list[str]:
        """Return, quickly, the replicas that may be `surplus`: only few devices have any."""
        served = self._served.get(device_type, {})
        if self._used_rules.get(device_type) is not self.rule_of(device_type):
            return [*ids]  # the rule has changed, but not the list yet
        with_surplus = {name for name, each in served.items() if each.has_surplus}
        return [each for each in ids if device_of(each) in with_surplus] if with_surplus else []

    def note_given(self, device_type: str, ids: Iterable[str]) -> None:
        """Record that containers have these replicas now."""
        served = self._served.get(device_type, {})
        held = self._held.setdefault(device_type, {})
        for each in ids:
            device = device_of(each)
            held[device] = held.get(device, frozenset()) | {number_of(each)}
        if len(held) > _MOST_HELD and len(held) > 2 * len(served):  # many devices have gone
            for device in [*held.keys() - served.keys()]:
                del held[device]

    def note_free(self, device_type: str, ids: Iterable[str]) -> None:
        """Record that these replicas are available again; surplus replicas leave the list."""
        held = self._held.get(device_type)
        if not held:
            return
        available, freed = set(ids), list[str]()
        for device, numbers in [*held.items()]:
            gone = {each for each in numbers if replica_id(device, each) in available}
            freed += (replica_id(device, each) for each in gone)
            if left := numbers - gone:
                held[device] = left
            else:
                del held[device]
        if freed and self.maybe_surplus(device_type, freed):
            self.look_again()


class _SharingRelay(OwnedRelay[Shared]):
    """Translates: the kubelet names replicas, the plugin gets devices."""

    adds = frozenset({Allocator, PreferredAllocator})

    def __init__(self, owner: Shared, inner: Hooks, device_type: str, inner_type: str) -> None:
        super().__init__(owner, inner, device_type, inner_type)
        if self._rule is None:
            self.offered = inner.offered

    @property
    def _rule(self) -> ShareRule | None:
        return self.owner.rule_of(self.device_type)

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Ask the plugin for each device once, unless the rule forbids it."""
        rule, shared = self._rule, self.owner
        if rule is None:
            return await super().allocate(request)
        ids = [each for container in request.containers for each in container.device_ids]
        try:
            most, distinct = rule.per_container, rule.distinct
            check_shares(request, self.device_type, per_container=most, distinct=distinct)
            if surplus := shared.surplus(self.device_type, ids):
                raise AllocationRefused(surplus[0], StatusCode.NOT_FOUND)
        except AllocationRefused:
            shared.count("refused", self.device_type)
            raise
        answer = await self.inner.allocate(_of_devices(request))
        # After the answer: if the plugin refuses, no container gets the replicas.
        shared.note_given(self.device_type, ids)
        shared.count("allocated", self.device_type)
        return answer

    async def post_allocate(self, response: AllocateResponse, request: AllocateRequest) -> None:
        """Let the plugin edit the answer; its request names devices."""
        await super().post_allocate(response, _of_devices(request) if self._rule else request)

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Let the plugin prepare each device once."""
        ids = _unique_devices(request.device_ids) if self._rule else request.device_ids
        return await super().pre_start_container(request._replace(device_ids=ids))

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Choose by use; the plugin decides between equally used devices."""
        rule = self._rule
        if rule is None:
            return await super().get_preferred_allocation(request)
        chosen = [await self._prefer(rule, each) for each in request.containers]
        self.owner.count("preferred", self.device_type)
        return PreferredAllocationResponse(tuple(chosen))

    async def _prefer(self, rule: ShareRule, asked: ContainerPreferredRequest) -> list[str]:
        shared, total = self.owner, self.owner.total(self.device_type)
        # Only this tells that a container has ended: the API has no call for the end.
        shared.note_free(self.device_type, asked.available)
        doubtful = shared.maybe_surplus(self.device_type, asked.available)
        surplus = set(shared.surplus(self.device_type, doubtful))
        available = [each for each in asked.available if each not in surplus]
        choosing = prefer(
            available,
            asked.must_include,
            asked.size,
            total,
            spreading=rule.allocation,
            distinct=rule.distinct,
        )
        try:
            question = next(choosing)
            while True:
                question = choosing.send(await self._ask_plugin(question))
        except StopIteration as end:
            return cast("list[str]", end.value)

    async def _ask_plugin(self, question: EqualDevices) -> Sequence[str]:
        """Return which of equally used devices the plugin prefers, or the first of them."""
        first = question.devices[: question.size]
        if not self.inner.can_prefer:
            return first
        known = dict.fromkeys((*question.chosen, *question.devices))
        asked = ContainerPreferredRequest(
            (*known,), question.chosen, len(question.chosen) + question.size
        )
        try:
            answer = await self.inner.get_preferred_allocation(PreferredAllocationRequest((asked,)))
            preferred = tuple(answer.containers[0]) if answer.containers else ()
            problem = explain_preference(asked, preferred)
        except Exception as error:  # a failure of the plugin must not fail the choice
            preferred, problem = (), describe(error)
        if problem:
            self.owner.count("preference_ignored", self.device_type)
            _log.warning("%s: its preference is not followed: %s", self.device_type, problem)
            return first
        return [each for each in preferred if each not in question.chosen] or first


def _of_devices(request: AllocateRequest) -> AllocateRequest:
    asked = [
        each._replace(device_ids=_unique_devices(each.device_ids)) for each in request.containers
    ]
    return request._replace(containers=tuple(asked))


def _unique_devices(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(device_of, ids)))


def _rule_text(rule: ShareRule) -> str:
    words = [f"{rule.replicas} ways"]
    words += [f"{each.ids} {each.replicas} ways" for each in rule.rules]
    if rule.per_container is not None:
        words.append(f"at most {rule.per_container} per container")
    if rule.distinct:
        words.append("different devices per container")
    return ", ".join([*words, rule.allocation])
