"""A device plugin and a DRA driver of one scanner, and devices that go from one to the other.

Each half is begun when it is needed first. The driver is needed too while claims of it are
prepared, or slices of it may be there, whatever the mode is: pods give their claims back to it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

from kubedevices.device_tree import DeviceTree
from kubedevices.dra.driver import DraDriver
from kubedevices.dra.guard import KubeletGuard
from kubedevices.dra.names import DeviceKey, device_labels
from kubedevices.dra.options import DraSettings
from kubedevices.dra.plugin_view import PluginView
from kubedevices.dra.traces import StateFiles
from kubedevices.errors import UsageError
from kubedevices.host.boot_id import read_boot_id
from kubedevices.plugin import hook_threads, scanning
from kubedevices.plugin.capabilities import PostAllocator
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.options import Settings
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.tree_updates import TreeUpdates
from kubedevices.two_apis.custody import Custody, CustodyTiming
from kubedevices.two_apis.halves import HalfScanner, PluginHalf
from kubedevices.two_apis.held_note import HeldNote
from kubedevices.two_apis.mode_source import ModeSource
from kubedevices.two_apis.modes_of_devices import Mode, Selector
from kubedevices.two_apis.options import of_drivers, of_plugins

_log = logging.getLogger(__name__)


class ApiSwitch:
    """Serves `scanner` in the mode that `source` says, device by device.

    Raises `UsageError` for what cannot work in any of the modes.
    """

    def __init__(
        self,
        scanner: Scanner,
        domain: str,
        source: ModeSource,
        selector: Selector,
        options: Mapping[str, Any],
    ) -> None:
        scanning.check_scanner(scanner)
        self.domain = domain
        self._scanner, self._source, self._selector = scanner, source, selector
        self._timing: CustodyTiming = options.get("custody_timing") or CustodyTiming()
        self._custody = Custody(self._timing)
        settings = DraSettings(**of_drivers(options))
        self._guard = _SwitchGuard(
            self, KubeletGuard(domain, settings.pod_resources, settings.guard_timing)
        )
        self._halves = PluginHalf(scanner, self._custody), HalfScanner(scanner)
        self.plugin = PluginRunner(self._halves[0], domain=domain, **of_plugins(options))
        """The device plugin; it serves nothing while no device is in its API."""

        self.driver = DraDriver(
            self._halves[1], domain=domain, guard=self._guard, **of_drivers(options)
        )
        """The DRA driver; it runs from when it is needed first."""

        self._traces = StateFiles(settings.data_dir(domain))
        self._note = HeldNote(settings.data_dir(domain), read_boot_id())
        # `_noted`: what the file says. `_returning`: what it said at the start, after a reboot, of
        # pods that are not admitted again yet; their devices go back to the device plugin for so
        # long.
        self._noted: frozenset[DeviceKey] = frozenset()
        self._returning: frozenset[DeviceKey] = frozenset()
        self._note_problem = ""
        self._watched_since: float | None = None
        self._tree: DeviceTree | None = None
        self._labels: Mapping[DeviceKey, str] = {}
        self._checked: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken, self._stopped = asyncio.Event(), asyncio.Event()
        # As in `_halves`: the device plugin first, the driver second.
        self._needed = asyncio.Event(), asyncio.Event()
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<ApiSwitch {self.domain}: {self.mode}, {self.plugin!r}, {self.driver!r}>"

    @property
    def mode(self) -> Mode:
        """The mode of the node, as it is to be."""
        return self._source.mode

    @property
    def offered_by_plugin(self) -> Collection[DeviceKey]:
        """The devices that are in the device plugin API now."""
        return self._custody.offered

    @property
    def has_scanned(self) -> bool:
        """Whether it is known which devices there are."""
        return self._tree is not None

    @property
    def settings(self) -> Settings:
        """What was chosen for the device plugin."""
        return self.plugin.settings

    @property
    def has_started(self) -> bool:
        """Whether everything that was begun is served."""
        plugin, driver = (each.is_set() for each in self._needed)
        return (
            self._tree is not None
            and (self.plugin.has_started or not plugin)
            and (self.driver.has_started or not driver)
        )

    def stop(self) -> None:
        """End `run`. From any thread, any number of times, also before it began."""
        self._is_stopped = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it ended by itself
                self._loop.call_soon_threadsafe(self._stopped.set)

    def unlink_sockets(self) -> None:
        """Remove our socket files at once: for an exit that cannot wait for `run`."""
        self.plugin.unlink_sockets()
        self.driver.unlink_sockets()

    async def run(self) -> None:
        """Scan and serve until the scanner ends, `stop` is called, or something fails for good."""
        self._loop = asyncio.get_running_loop()
        if self._is_stopped:
            return
        await self._source.begin()
        # Claims or slices of an earlier process: pods give them back to the driver, whatever the
        # mode is.
        if await hook_threads.call(self._traces.are_there):
            self._needed[1].set()
        self._noted, is_after_reboot = await hook_threads.call(self._note.read)
        self._returning = self._noted if is_after_reboot else frozenset()
        _log.info("the mode of this node is %s", self.mode)
        updates = TreeUpdates()
        scan = asyncio.create_task(scanning.scan(self._scanner, updates.notifier), name="scan")
        try:
            await run_together(
                ("mode", self._source.run(self._woken.set)),
                ("devices", self._follow(updates)),
                ("custody", self._keep_custody()),
                ("device plugin", self._run_when(self._needed[0], self.plugin.run)),
                ("DRA driver", self._run_when(self._needed[1], self.driver.run)),
                ("end of the scan", self._wait_for(scan)),
                ("stop", self._wait_stopped(updates)),
            )
        finally:
            updates.stop()
            scan.cancel()
            await scanning.await_end(scan, self._scanner, self.settings.timing.exit_grace)

    async def _wait_for(self, scan: asyncio.Task[None]) -> None:
        await asyncio.shield(scan)

    async def _wait_stopped(self, updates: TreeUpdates) -> None:
        await self._stopped.wait()
        updates.stop()

    async def _run_when(self, needed: asyncio.Event, run: Callable[[], Any]) -> None:
        await needed.wait()
        await run()

    # ------------------------------------------------------------ custody

    async def _follow(self, updates: TreeUpdates) -> NoReturn:
        while True:
            tree, _ = await updates.next()
            for device_type in tree:
                self._check_abilities(device_type)
            self._tree, self._labels = tree, device_labels(tree)
            self._woken.set()

    def _check_abilities(self, device_type: str) -> None:
        """Refuse at once an ability that only one of the modes has."""
        if device_type not in self._checked:
            hooks = Hooks(self._scanner.abilities_of(device_type))
            if PostAllocator in hooks.offered:
                raise UsageError(
                    f"{hooks.name}.post_allocate() cannot be used where the mode may become dra: "
                    "there is no answer to change (answer in allocate())"
                )
            self._checked.add(device_type)

    async def _keep_custody(self) -> NoReturn:
        """Decide again at each change, and while a device is on its way."""
        while True:
            # Polled while a device is on its way: what it waits for (claims, slices, pods) tells
            # nobody.
            is_pending = self._decide()
            pause = self._timing.look if await self._write_note() or is_pending else None
            if self._needed[1].is_set() and self.mode == "device-plugin":
                await self.driver.forget_slices()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            self._woken.clear()

    def _decide(self) -> bool:
        """Give each half its devices; True if a device is not yet where it is wanted."""
        if (tree := self._tree) is None:
            return False
        mode, now = self.mode, asyncio.get_running_loop().time()
        self._let_return()
        self._custody.decide(self._labels, self.wants_dra, self._kept_by_dra, now)
        offered = self._custody.offered
        given = self._tree_of_plugin(tree)
        # The device plugin gets its tree before the driver publishes (`refresh` below): a device
        # leaves one API before it is in the other.
        self._halves[0].give(given)
        self._halves[1].give(tree)
        if len(given):
            self._needed[0].set()
        if mode != "device-plugin":
            self._needed[1].set()
        return (
            self._guard.refresh(tree)
            or any(key not in offered and not self.wants_dra(key) for key in self._labels)
            or bool(self._returning)
        )

    def _tree_of_plugin(self, tree: DeviceTree) -> DeviceTree:
        """Return the offered devices, and as empty types those of which a pod holds a device.

        A kubelet starts a container of such a pod again only while it knows a plugin of the name.
        """
        offered = self._custody.offered
        if len(offered) == len(self._labels):
            return tree
        kept = {kind for kind, _ in self._held()}
        devices = {
            kind: [each for each in tree.devices(kind).values() if (kind, each.id) in offered]
            for kind in tree
        }
        return DeviceTree({kind: some for kind, some in devices.items() if some or kind in kept})

    # ------------------------------------------------------------ held devices

    def _held(self) -> frozenset[DeviceKey]:
        """Return the devices for which DRA waits, because a pod holds them."""
        view = self._guard.view
        return frozenset(filter(self.wants_dra, view.held)) if view is not None else frozenset()

    def _let_return(self) -> None:
        """After a reboot, take devices back whose pods are admitted again, or are no more.

        A kubelet does not know its pods before it asked the API server for them.
        """
        if not self._returning:
            return
        if not self.plugin.is_ready:
            self._watched_since = None
        elif self._watched_since is None:
            self._watched_since = asyncio.get_running_loop().time()
        if (view := self._guard.view) is not None:
            knows_pods = (
                self._watched_since is not None
                and view.at >= self._watched_since + self._timing.returning
                and self.driver.publisher.is_published
            )
            self._returning = frozenset(
                key for key in self._returning if key not in view.held and not knows_pods
            )

    async def _write_note(self) -> bool:
        """Write which devices are held, if that changed; True if it has to be tried again."""
        held = self._held() | self._returning
        if self._guard.view is None or held == self._noted:
            return False
        try:
            await hook_threads.call(self._note.write, held)
        except OSError as error:
            if str(error) != self._note_problem:
                _log.error("cannot note which devices pods hold: %s", error)
            self._note_problem = str(error)
            return True
        # Only now may DRA have what is no longer held: a kill before the write must not lose the
        # note.
        self._noted, self._note_problem = held, ""
        self._woken.set()
        return False

    def was_held(self, key: DeviceKey) -> bool:
        """Whether the note still says that a pod of the device plugin has a device."""
        return key in self._noted

    def _kept_by_dra(self, key: DeviceKey) -> str:
        if key in self._returning:  # it was in no slice when the host went down
            return ""
        return self.driver.keeps(self._labels[key]) if self._needed[1].is_set() else ""

    def wants_dra(self, key: DeviceKey) -> bool:
        """Whether a device is to be in DRA: not while the pods of before a reboot return."""
        return key not in self._returning and self._selector.wants_dra(key, self.mode)

    def kept_by_plugin(self, key: DeviceKey, asked_at: float) -> str:
        """Return why DRA must not have a device, given when the kubelet was asked."""
        now = asyncio.get_running_loop().time()
        return self._custody.kept_by_plugin(key, now, asked_at)

    def wake(self) -> None:
        """Decide again."""
        self._woken.set()


class _SwitchGuard:
    """Lets the driver publish what the mode gives to it, once the device plugin API is done."""

    def __init__(self, switch: ApiSwitch, kubelet: KubeletGuard) -> None:
        self._switch, self._kubelet = switch, kubelet
        self._changed: Callable[[], None] | None = None

    @property
    def view(self) -> PluginView | None:
        """What the kubelet said last."""
        return self._kubelet.view

    @property
    def publishes(self) -> bool:
        """Whether any device may be in DRA."""
        return self._switch.mode != "device-plugin"

    def withheld(self, tree: DeviceTree) -> Mapping[DeviceKey, str] | None:
        """Return the devices of the other API."""
        if (view := self._kubelet.view) is None:
            return None
        switch = self._switch
        keys = [(kind, name) for kind in tree for name in tree.devices(kind)]
        wanted = [key for key in keys if switch.wants_dra(key)]
        reasons = {
            key: why
            for key in wanted
            if (why := view.reason(key) or switch.kept_by_plugin(key, view.at))
            or (why := "a pod held it until now" if switch.was_held(key) else "")
        }
        self._kubelet.wait_for(reasons)
        return dict.fromkeys({*keys} - {*wanted}, "it is to be in the other API") | reasons

    async def refusal(self, keys: Collection[DeviceKey]) -> str:
        """Return why a claim cannot have a device that it never had.

        The mode does not count: the scheduler may have decided just before it changed.
        """
        now = asyncio.get_running_loop().time()
        for key in keys:
            if why := self._switch.kept_by_plugin(key, now):
                return f"device {key[1]} cannot be used: {why}"
        return await self._kubelet.refusal(keys)

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Follow the kubelet; the switch tells of its own changes."""
        self._changed = changed
        changed()

        def tell() -> None:
            changed()
            self._switch.wake()

        await self._kubelet.run(tell)

    def refresh(self, tree: DeviceTree) -> bool:
        """Let the driver publish anew; True while a device waits to be published."""
        withheld = self.withheld(tree)
        if self._changed is not None:
            self._changed()
        return self.publishes and (withheld is None or self._kubelet.is_waiting)
