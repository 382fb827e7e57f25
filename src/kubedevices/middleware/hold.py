"""Keeps the device list while a plugin is away, and lets Allocate wait for the plugin.

A kubelet admits pods one after the other and without a deadline. The next pod in its queue may be
the plugin's own pod, which a waiting Allocate would block. So all calls of one absence share one
time limit (`allocateWait`). When the limit is reached, calls fail at once. After `hold` seconds all
devices turn Unhealthy.

`presence` of the inner scanner says whether the plugin is away, `absence` decides what to do.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from kubedevices import deadlines
from kubedevices.allocation import (
    AllocateRequest,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.device import Health
from kubedevices.device_tree import DeviceTree
from kubedevices.errors import PluginAway, RpcError, StatusCode, UsageError
from kubedevices.middleware.absence import Absence, HoldRule
from kubedevices.middleware.middleware import Middleware, Relay, innermost
from kubedevices.middleware.presence import Presence, presence_of
from kubedevices.plugin import hook_threads
from kubedevices.plugin.capabilities import AllocateAnswer
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.notifier import Notifier
from kubedevices.plugin.scanner import Scanner

Answer = TypeVar("Answer")

_NOTICE = 1.0
"""Seconds at most from a failed call until `presence` says that the plugin is away."""

_log = logging.getLogger(__name__)


class Held(Middleware):
    """Keeps the list of a plugin that is away, and lets its calls wait.

    If the inner scanner has no `presence`, its plugin counts as always connected. With
    `rule.over_reboot` a list per resource (`domain/device type`) is saved in `state_dir`. Events:
    `absences`, `waited` and `refused` (calls), `failed_writes` (of a saved list).
    """

    def __init__(
        self,
        scanner: Scanner,
        rule: HoldRule | None = None,
        *,
        domain: str = "",
        state_dir: Path | None = None,
    ) -> None:
        super().__init__(scanner)
        self.absence = Absence(rule or HoldRule())
        self._domain, self._state_dir = domain, state_dir
        self._check(self.absence.rule)
        self.presence = presence_of(scanner) or Presence(is_away=False)
        # The last tree of the connected plugin; the tree of an absence has no devices.
        self._last: DeviceTree | None = None
        self._has_to_save = asyncio.Event()

    def line(self) -> str:
        """Return the rule in one line."""
        rule = self.absence.rule
        if not rule.hold:
            return ""
        reboot = ", also over a reboot" if rule.over_reboot else ""
        return (
            f"hold: a list stays for {rule.hold:g} s while its plugin is away{reboot}; calls wait "
            f"for {rule.allocate_wait:g} s in all"
        )

    def use(self, rule: HoldRule) -> None:
        """Go on with another rule, also for the present absence. From any thread."""
        self._check(rule)
        self.absence.rule = rule
        self.look_again()

    def _check(self, rule: HoldRule) -> None:
        if rule.over_reboot and not (self._domain and self._state_dir):
            raise UsageError("hold over a reboot needs a domain and a state directory")

    # ------------------------------------------------------------ lists

    def change(self, tree: DeviceTree, now: float) -> DeviceTree:
        """Return the last list while the plugin is away; after `hold`, with Unhealthy devices."""
        absence = self.absence
        until = absence.holds_until()
        if until is None:
            self._last = tree
            self._save_soon()
            return tree
        held = self._last if self._last is not None else tree
        if absence.is_held(now):
            self.look_again(until)
            return held
        self._save_soon()
        return all_unhealthy(held)

    async def scan(self, notifier: Notifier) -> None:
        """Offer the saved list, then follow the plugin."""
        if self.presence.is_away:
            # Do this before the inner scan starts: its first tree is empty if the plugin is away.
            self.absence.begin(asyncio.get_running_loop().time())
            if self.absence.rule.over_reboot:
                await self._read_saved()
        await super().scan(notifier)

    async def run_beside(self) -> NoReturn:
        """Record when the plugin leaves and returns, and save its list with `over_reboot`."""
        with self.presence.listening(self._note_presence):
            self._note_presence()  # the presence may have changed since the scan began
            while True:
                await self._has_to_save.wait()
                self._has_to_save.clear()
                if self.absence.rule.over_reboot:
                    await self._write_saved()

    def _note_presence(self) -> None:
        now = asyncio.get_running_loop().time()
        is_known_away = self.absence.since is not None
        if self.presence.is_away:
            self.absence.begin(now)
            if not is_known_away:
                self.count("absences")
                hold = self.absence.rule.hold
                _log.warning("the plugin is away: its devices stay as they are for %g s", hold)
        elif is_known_away:
            away = now - (self.absence.since or now)
            self.absence.end()
            _log.info("the plugin is back (it was away for %.1f s)", away)
        self.look_again()

    # ------------------------------------------------------------ calls

    def relay(self, inner: Hooks, device_type: str, inner_type: str) -> "HeldRelay":
        """Return the relay that waits for the plugin."""
        return HeldRelay(inner, device_type, inner_type, self)

    async def wait_for_plugin(self, device_type: str) -> None:
        """Wait for the plugin if it is away; raises `RpcError` when that takes too long."""
        if not self.presence.is_away:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        until = self.absence.begin_wait(began)
        is_back = False
        try:
            if until > began:  # when the time is used up, fail at once
                with contextlib.suppress(TimeoutError):
                    async with deadlines.timeout_at(until):
                        await self.presence.wait_here()
                        is_back = True
        finally:
            self.absence.end_wait(loop.time())
        self.count("waited" if is_back else "refused", device_type)
        if not is_back:
            raise RpcError(StatusCode.UNAVAILABLE, self._why_away(device_type, loop.time() - began))

    def _why_away(self, device_type: str, waited: float) -> str:
        resource = f"{self._domain}/{device_type}" if self._domain else device_type
        since = self.absence.since
        now = asyncio.get_running_loop().time()
        for_long = f" for {now - since:.0f} s" if since is not None else ""
        share = f"all calls of an absence together wait for {self.absence.rule.allocate_wait:g} s"
        return (
            f"the plugin of {resource} has been away{for_long}; waited {waited:.1f} s, {share} "
            "(allocateWait): look at its pod and its log"
        )

    # ------------------------------------------------------------ over a reboot

    def _save_soon(self) -> None:
        loop = self._loop
        if loop is not None and self.absence.rule.over_reboot:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._has_to_save.set)

    async def _read_saved(self) -> None:
        from kubedevices.middleware.saved_list import read_saved_lists  # noqa: PLC0415 - few save any

        assert self._state_dir is not None
        saved, problems = await hook_threads.call(read_saved_lists, self._state_dir, self._domain)
        for problem in problems:
            _log.warning("%s: its devices are offered when the plugin is back", problem)
        if not saved:
            return
        self._inner_tree = DeviceTree({name: each.devices for name, each in saved.items()})
        _log.info("offering the saved lists: %r", self._inner_tree)
        plugin: Any = innermost(self.scanner)
        if isinstance(getattr(plugin, "options", None), PluginOptions):
            # A kubelet asks for the options before the plugin is back.
            plugin.options = next(iter(saved.values())).options

    async def _write_saved(self) -> None:
        from kubedevices.middleware.saved_list import SavedList, write_saved_lists  # noqa: PLC0415

        tree = self._last if self._last is not None else self.inner_tree
        now = asyncio.get_running_loop().time()
        if self.absence.since is not None and not self.absence.is_held(now):
            # After `hold` the devices are Unhealthy. The saved list must not make them healthy
            # after the next boot.
            tree = all_unhealthy(tree)
        saved = {
            name: SavedList(
                (*tree.devices(name).values(),), Hooks(self.scanner.abilities_of(name)).options
            )
            for name in tree
        }
        assert self._state_dir is not None
        try:
            await hook_threads.call(write_saved_lists, self._state_dir, self._domain, saved)
        except OSError as error:
            self.count("failed_writes")
            _log.warning("the list cannot be saved for the next boot: %s", error)


class HeldRelay(Relay):
    """Waits for the plugin before each call."""

    def __init__(self, inner: Hooks, device_type: str, inner_type: str, held: Held) -> None:
        super().__init__(inner, device_type, inner_type)
        self._held = held

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
        if not self._held.presence.is_away:
            with contextlib.suppress(PluginAway):
                return await super().get_preferred_allocation(request)
        return PreferredAllocationResponse(tuple(() for _ in request.containers))

    async def _ask(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make the call. If the plugin leaves meanwhile, wait for it and make the call again."""
        await self._held.wait_for_plugin(self.device_type)
        try:
            return await call()
        # The plugin may get one request twice. Plugins must accept this: a kubelet, too, calls
        # Allocate again for the same devices (init container, then app container).
        except PluginAway:
            # The call may fail shortly before `presence` says that the plugin is away.
            with contextlib.suppress(TimeoutError):
                async with deadlines.timeout(_NOTICE):
                    await self._held.presence.wait_away()
        await self._held.wait_for_plugin(self.device_type)
        return await call()


def all_unhealthy(tree: DeviceTree) -> DeviceTree:
    """Return `tree` with every device Unhealthy."""
    return tree.replaced(
        {
            name: {
                each.id: replace(each, health=Health.UNHEALTHY)
                for each in tree.devices(name).values()
                if each.is_healthy
            }
            for name in tree
        }
    )
