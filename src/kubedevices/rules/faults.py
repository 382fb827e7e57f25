"""Breaks a plugin on purpose, to test programs that depend on the plugin: `Faulty`.

Simulated devices use it, and it may stand in front of a real plugin, whose answers are then late,
lost or wrong. The plugin still gets every call, except for a refused device.
"""

import asyncio
import contextlib
import fnmatch
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from kubedevices.config.checks import at_least, some_text
from kubedevices.config.durations import duration
from kubedevices.config.keys import Declared, key
from kubedevices.errors import RpcError, StatusCode
from kubedevices.errors.words import counted
from kubedevices.host import deadlines
from kubedevices.plugin.capabilities import (
    AllocateAnswer,
    Allocator,
    ContainerPreStarter,
    PreferredAllocator,
)
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.stoppable import call_on
from kubedevices.rules.middleware import OwnedRelay, RuledMiddleware
from kubedevices.values.allocation import (
    AllocateRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device import Health
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.wildcards import fits

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PreStart(Declared):
    """Faults of PreStartContainer."""

    HINT: ClassVar[str] = "write 'preStart: {delay: 1s, failEvery: 3}'"

    delay: float = duration("how long it takes", default=0.0)
    fail_every: int = key("every n-th fails", default=0, check=at_least(1))


@dataclass(frozen=True, kw_only=True)
class HealthChange(Declared):
    """A change of the health of devices at a given time."""

    HINT: ClassVar[str] = "write '{at: 30s, id: \"GPU-1*\", health: Unhealthy}'"

    at: float = duration("when, after the start")
    id: str = key("glob of device IDs", default="*", check=some_text)
    health: Health = key("Healthy or Unhealthy")


@dataclass(frozen=True, kw_only=True)
class FaultRule(Declared):
    """Faults on purpose, to test programs that depend on the plugin."""

    HINT: ClassVar[str] = "write 'faults: {allocateDelay: 1s}'"

    allocate_delay: float = duration("by how much each answer to Allocate is delayed", default=0.0)
    fail_allocate_every: int = key("every n-th Allocate fails", default=0, check=at_least(1))
    hang_allocate_every: int = key(
        "every n-th Allocate is never answered", default=0, check=at_least(1)
    )
    refuse: tuple[str, ...] = key(
        "globs of IDs: Allocate of such a device fails",
        default=(),
        check=some_text,
        hint="a list of IDs, wildcards allowed",
    )
    drop_stream_every: float = duration(
        "time after which each ListAndWatch stream is closed", default=0.0, least=0.001
    )
    never_list: bool = key("whether ListAndWatch never sends a list", default=False)
    wrong_ids: bool = key(
        "whether GetPreferredAllocation answers with IDs of no device",
        default=False,
        name="wrongIDs",
    )
    pre_start: PreStart | None = key("delays and failures of PreStartContainer", default=None)
    timeline: tuple[HealthChange, ...] = key("when the health of devices changes", default=())


class Faulty(RuledMiddleware[FaultRule]):
    """Causes the faults of a rule, for all types or for some.

    Pass the method `wrap_lists` to the runner as option, because the runner owns the streams.
    `control` is a socket at which the health of devices can be set, as `kubedevices simulate
    --tell` does. Events: `failed_allocations`,
    `hanging_allocations`, `refused`, `failed_starts`, `wrong_preferences`, `dropped_streams`.
    """

    def __init__(
        self,
        scanner: Scanner,
        rules: FaultRule | Mapping[str, FaultRule],
        *,
        control: Path | None = None,
    ) -> None:
        super().__init__(scanner, rules)
        self._control = control
        self._set: dict[tuple[str, str], Health] = {}
        self._tree = DeviceTree()
        # Set by `use`: ends the present timelines.
        self._new_rules = asyncio.Event()

    def line(self) -> str:
        """Return the types with faults, for the log: somebody may have forgotten them."""
        faulty = [name for name, rule in self.named_rules("*") if rule.given]
        return f"faults on purpose: {', '.join(faulty)}" if faulty else ""

    def use(self, rules: FaultRule | Mapping[str, FaultRule]) -> None:
        """Go on with other faults; timelines begin again. From any thread."""
        self._set.clear()
        super().use(rules)
        call_on(self._loop, self._new_rules.set)

    # ------------------------------------------------------------ health

    def set_health(self, glob: str, health: Health, device_type: str = "*") -> int:
        """Set a health until it is set again; return the number of devices that fit now."""
        self._set.pop(
            (device_type, glob), None
        )  # at the end of the dictionary: the last setting counts
        self._set[device_type, glob] = health
        self.look_again()
        return sum(
            len(fnmatch.filter(self._tree.devices(name), glob))
            for name in fnmatch.filter(self._tree, device_type)
        )

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return `tree` with the health that was set."""
        del now
        self._tree = tree
        healths: dict[str, dict[str, Health]] = {}
        for (device_type, glob), health in [*self._set.items()]:
            for name in fnmatch.filter(tree, device_type):
                chosen = fnmatch.filter(tree.devices(name), glob)
                healths.setdefault(name, {}).update(dict.fromkeys(chosen, health))
        return tree.replaced(
            {
                name: {
                    device_id: tree.devices(name)[device_id].with_health(
                        health, "" if health is Health.HEALTHY else "a fault on purpose"
                    )
                    for device_id, health in by_id.items()
                    if tree.devices(name)[device_id].health is not health
                }
                for name, by_id in healths.items()
            }
        )

    async def run_beside(self) -> NoReturn:
        """Follow the timelines, and listen at the control socket; raises `CannotAsk`."""
        async with self._listening():
            while True:
                self._new_rules.clear()
                await self._play()
                await self._new_rules.wait()

    async def _play(self) -> None:
        """Follow the timelines to their end, or until `use` sets other rules."""
        turns = [(turn, name) for name, rule in self.named_rules("*") for turn in rule.timeline]
        turns.sort(key=lambda each: each[0].at)
        loop = asyncio.get_running_loop()
        started = loop.time()
        for turn, name in turns:
            if await deadlines.until(started + turn.at, self._new_rules.wait()):
                return
            concerned = self.set_health(turn.id, turn.health, name)
            _log.info("%s is %s (%s)", turn.id, turn.health, counted(concerned, "device"))

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        if self._control is None:
            yield
            return
        from kubedevices.rules.step_control import StepControl  # noqa: PLC0415 - few listen

        control = StepControl(self._control, self._take_step, self._describe)
        await control.start()
        try:
            _log.info("taking steps at %s", self._control)
            yield
        finally:
            await control.stop()

    def _take_step(self, step: Mapping[str, Any]) -> int:
        rule = step.get("set")
        if not isinstance(rule, Mapping) or step.keys() - {"set", "resource"}:
            raise ValueError("a plugin's devices can only be set: {set: {id: GLOB, health: WORD}}")
        try:
            health = Health(str(rule.get("health")))
        except ValueError:
            raise ValueError(f"health must be one of {', '.join(Health)}") from None
        return self.set_health(str(rule.get("id", "*")), health, str(step.get("resource", "*")))

    def _describe(self) -> dict[str, Any]:
        tree = self.change(self._tree, 0.0)
        return {
            name: {each.id: str(each.health) for each in tree.devices(name).values()}
            for name in tree
        }

    # ------------------------------------------------------------ streams and calls

    async def wrap_lists(
        self, resource: str, lists: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """Pass on the lists of one stream of `resource`, with the faults of the rule."""
        device_type = resource.partition("/")[2]
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            rule = self.rule_of(self.inner_type(device_type)) or FaultRule()
            every = rule.drop_stream_every
            left = started + every - loop.time() if every else None
            try:
                encoded = await asyncio.wait_for(anext(lists), left)
            except StopAsyncIteration:
                return
            except TimeoutError:
                self.count("dropped_streams", device_type)
                _log.info("%s: ending a stream on purpose", resource)
                return
            if not rule.never_list:
                yield encoded

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> "FaultyRelay":
        """Return the relay that causes faults in calls."""
        return FaultyRelay(self, inner, device_type, inner_type)


class FaultyRelay(OwnedRelay[Faulty]):
    """Asks the inner type, and then changes the answer."""

    def __init__(self, owner: Faulty, inner: Hooks, device_type: str, inner_type: str) -> None:
        super().__init__(owner, inner, device_type, inner_type)
        self._allocations = self._starts = 0
        rule = self._rule
        self.offered |= {Allocator}
        if rule.wrong_ids:
            self.offered |= {PreferredAllocator}
        if rule.pre_start is not None:
            self.offered |= {ContainerPreStarter}

    @property
    def _rule(self) -> FaultRule:
        return self.owner.rule_of(self.inner_type) or FaultRule()

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Answer late, not at all or with an error. Calls that the plugin refuses do not count."""
        rule = self._rule
        for container in request.containers:
            for device_id in container.device_ids:
                if fits(device_id, rule.refuse):
                    self.owner.count("refused", self.device_type)
                    raise RpcError(StatusCode.INTERNAL, f"simulated refusal of {device_id}")
        # The plugin gets the call first, so that its state is the state after a real call.
        answer = await super().allocate(request)
        self._allocations += 1
        await asyncio.sleep(rule.allocate_delay)
        if _is_every_nth(self._allocations, rule.hang_allocate_every):
            self.owner.count("hanging_allocations", self.device_type)
            await asyncio.Event().wait()  # until the caller hangs up
        if _is_every_nth(self._allocations, rule.fail_allocate_every):
            self.owner.count("failed_allocations", self.device_type)
            raise RpcError(StatusCode.INTERNAL, f"simulated failure of call {self._allocations}")
        return answer

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Ask the inner type, or answer with IDs of no device."""
        if not self._rule.wrong_ids:
            return await super().get_preferred_allocation(request)
        self.owner.count("wrong_preferences", self.device_type)
        return PreferredAllocationResponse(
            tuple(tuple(f"wrong-{i}" for i in range(each.size)) for each in request.containers)
        )

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Ask the inner type; answer late, and let every n-th call fail."""
        answer = await super().pre_start_container(request)
        rule = self._rule.pre_start or PreStart()
        self._starts += 1
        await asyncio.sleep(rule.delay)
        if _is_every_nth(self._starts, rule.fail_every):
            self.owner.count("failed_starts", self.device_type)
            raise RpcError(StatusCode.INTERNAL, f"simulated failure of start {self._starts}")
        return answer


def _is_every_nth(number: int, every: int) -> bool:
    return every > 0 and number % every == 0
