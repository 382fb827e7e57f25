"""Decides what a node gets of a plugin that is away, and lets Allocate wait for the plugin.

A kubelet admits pods one after the other and without a deadline. The next pod in its queue may be
the plugin's own pod, which a waiting Allocate would block. So calls wait until `allocateWait`
seconds after the plugin left, and then fail at once.

The scanner of the plugin keeps the last list (see `presence`), so this middleware can be the
outermost: filters, cordons, checks and replicas work on the kept list as on any other, and no rule
takes the health that this middleware gives for the health of a device.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import NoReturn, TypeAlias, TypeVar

from kubedevices.errors import KubedevicesError, PluginAway, RpcError, StatusCode
from kubedevices.host import deadlines
from kubedevices.plugin.capabilities import AllocateAnswer
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.stoppable import call_on
from kubedevices.rules.hold_rule import AwayOffer, HoldRule
from kubedevices.rules.middleware import Middleware, OwnedRelay
from kubedevices.rules.presence import Presence, presence_of
from kubedevices.values.allocation import (
    AllocateRequest,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device import Health
from kubedevices.values.device_tree import DeviceTree
from kubedevices.values.proxied_plugin import AWAY

Answer = TypeVar("Answer")

Holders: TypeAlias = Callable[[], Awaitable[Collection[tuple[str, str]]]]
"""Returns (device type, device ID) of every device that a pod holds; raises `KubedevicesError`."""

_NOTICE = 1.0
"""Seconds at most from a failed call until `presence` says that the plugin is away."""

_ASK_AGAIN = 5.0
"""Seconds between two questions which devices pods hold, while only these devices are offered."""

_log = logging.getLogger(__name__)


class Held(Middleware):
    """Offers the list of a plugin that is away by `rule`, and lets its calls wait.

    If the inner scanner has no `presence`, its plugin counts as always connected. Without `holders`
    nobody knows which devices pods hold: then all devices turn Unhealthy when calls wait no longer.
    Events: `absences`, `waited` and `refused` (calls).
    """

    def __init__(
        self,
        scanner: Scanner,
        rule: HoldRule | None = None,
        *,
        domain: str = "",
        holders: Holders | None = None,
    ) -> None:
        super().__init__(scanner)
        self.rule = rule or HoldRule()
        self._domain, self._holders = domain, holders
        self.presence = presence_of(scanner) or Presence(is_away=False)
        # What pods hold, by the last answer; None: not asked yet in this absence.
        self._in_use: frozenset[tuple[str, str]] | None = None
        self._has_changed = asyncio.Event()

    def line(self) -> str:
        """Return the rule in one line."""
        rule = self.rule
        if rule.hold is None:
            return ""
        return (
            f"hold: a list stays for {rule.hold:g} s while its plugin is away; calls wait "
            f"for {rule.allocate_wait:g} s, then free devices are Unhealthy"
        )

    def use(self, rule: HoldRule) -> None:
        """Go on with another rule, also for the present absence. From any thread."""
        self.rule = rule
        self._reconsider()

    # ------------------------------------------------------------ lists

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return what a node gets of the last list."""
        since = self.presence.away_since(now)
        if since is None:
            return tree
        offer, until = self.rule.offer(since, now)
        if until is not None:
            self.look_again(until)
        if offer is AwayOffer.ALL:
            return tree
        if offer is AwayOffer.NOTHING:
            return DeviceTree()
        if offer is AwayOffer.UNHEALTHY:
            return _unhealthy_except(tree, ())
        if self._in_use is None:
            # `run_beside` asks now. Meanwhile the list stays: the devices of running pods must not
            # look broken for a moment.
            self._reconsider()
            return tree
        return _unhealthy_except(tree, self._in_use)

    async def run_beside(self) -> NoReturn:
        """Record when the plugin leaves and returns; ask what pods hold while that matters."""
        was_away, looked_at = False, (False, self.rule, self._in_use)
        with self.presence.listening(self._reconsider):
            while True:
                self._has_changed.clear()
                if self.presence.is_away is not was_away:
                    was_away = not was_away
                    self._record_absence(is_away=was_away)
                pause = await self._ask_holders()
                if (seen := (self.presence.is_away, self.rule, self._in_use)) != looked_at:
                    looked_at = seen
                    self.look_again()
                await deadlines.within(pause, self._has_changed.wait())

    def _record_absence(self, *, is_away: bool) -> None:
        if not is_away:
            _log.info("the plugin is back")
            return
        self.count("absences")
        if self.rule.hold is not None:
            _log.warning("the plugin is away: its list stays for %g s", self.rule.hold)

    async def _ask_holders(self) -> float | None:
        """Ask what pods hold if that matters now; return when to ask again, in seconds."""
        now = asyncio.get_running_loop().time()
        since = self.presence.away_since(now)
        if since is None or self.rule.offer(since, now)[0] is not AwayOffer.HELD:
            self._in_use = None
            return None
        in_use: Collection[tuple[str, str]] = ()
        if self._holders is not None:
            try:
                in_use = await self._holders()
            except KubedevicesError as error:
                if self._in_use is None:
                    text = "which devices pods hold is unknown, all turn Unhealthy: %s"
                    _log.warning(text, error)
        self._in_use = frozenset(in_use)
        return _ASK_AGAIN

    def _reconsider(self) -> None:
        call_on(self._loop, self._has_changed.set)

    # ------------------------------------------------------------ calls

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> "HeldRelay":
        """Return the relay that waits for the plugin."""
        return HeldRelay(self, inner, device_type, inner_type)

    async def wait_for_plugin(self, device_type: str) -> None:
        """Wait for the plugin if it is away; raises `RpcError` when that takes too long."""
        began = asyncio.get_running_loop().time()
        since = self.presence.away_since(began)
        if since is None or self.rule.hold is None:
            return
        until = self.rule.calls_wait_until(since)
        is_back = await deadlines.until(until, self.presence.wait_here())
        self.count("waited" if is_back else "refused", device_type)
        if not is_back:
            raise RpcError(StatusCode.UNAVAILABLE, self._why_away(device_type, since, began))

    def _why_away(self, device_type: str, since: float, began: float) -> str:
        resource = f"{self._domain}/{device_type}" if self._domain else device_type
        now = asyncio.get_running_loop().time()
        return (
            f"the plugin of {resource} has been away for {now - since:.0f} s; waited "
            f"{now - began:.1f} s, calls wait until {self.rule.allocate_wait:g} s after it left "
            "(allocateWait): look at its pod and its log"
        )


class HeldRelay(OwnedRelay[Held]):
    """Waits for the plugin before each call."""

    async def allocate(self, request: AllocateRequest) -> AllocateAnswer:
        """Wait until the plugin is connected, then pass the call on."""
        return await self._ask(lambda: super(HeldRelay, self).allocate(request))

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse:
        """Wait until the plugin is connected, then pass the call on."""
        return await self._ask(lambda: super(HeldRelay, self).pre_start_container(request))

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Pass the call on if the plugin is connected; otherwise answer at once: no preference."""
        held = self.owner
        if held.rule.hold is None:
            return await super().get_preferred_allocation(request)
        if not held.presence.is_away:
            with contextlib.suppress(PluginAway):
                return await super().get_preferred_allocation(request)
        return PreferredAllocationResponse(tuple(() for _ in request.containers))

    async def _ask(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make the call. If the plugin leaves meanwhile, wait for it and make the call again."""
        if self.owner.rule.hold is None:
            return await call()
        await self.owner.wait_for_plugin(self.device_type)
        try:
            return await call()
        # The plugin may get one request twice. Plugins must accept this: a kubelet, too, calls
        # Allocate again for the same devices (init container, then app container).
        except PluginAway:
            # The call may fail shortly before `presence` says that the plugin is away.
            await deadlines.within(_NOTICE, self.owner.presence.wait_away())
        await self.owner.wait_for_plugin(self.device_type)
        return await call()


def _unhealthy_except(tree: DeviceTree, in_use: Collection[tuple[str, str]]) -> DeviceTree:
    """Return `tree` with every device Unhealthy that is not `in_use`."""
    return tree.replaced(
        {
            name: {
                each.id: each.with_health(Health.UNHEALTHY, AWAY)
                for each in tree.devices(name).values()
                if each.is_healthy and (name, each.id) not in in_use
            }
            for name in tree
        }
    )
