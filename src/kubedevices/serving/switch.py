"""A device plugin and a DRA driver of one scanner, and devices that move between them. asyncio.

The device plugin and the driver each start when they are needed for the first time. In any mode the
driver is needed while it has prepared claims or may have slices, because the kubelet calls it to
unprepare the claims.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

from kubedevices.dra.device_plugin_guard import KubeletGuard
from kubedevices.dra.device_plugin_view import PluginView
from kubedevices.dra.driver import DraDriver
from kubedevices.dra.names import DeviceKey, device_labels
from kubedevices.dra.options import DraSettings
from kubedevices.dra.state_files import StateFiles
from kubedevices.host import deadlines
from kubedevices.host.boot_id import read_boot_id
from kubedevices.plugin import hook_threads, scan_task
from kubedevices.plugin.options import Settings
from kubedevices.plugin.runner import PluginRunner
from kubedevices.plugin.scan_task import TreeUpdates
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.served_type import run_together
from kubedevices.plugin.stoppable import Stoppable
from kubedevices.serving.api_scanners import ApiScanner, PluginApiScanner
from kubedevices.serving.handover import Handover, HandoverTiming
from kubedevices.serving.held_devices_file import HeldDevicesFile
from kubedevices.serving.mode_source import ModeSource
from kubedevices.serving.modes_of_devices import DraSelector, Mode
from kubedevices.serving.options import of_drivers, of_plugins
from kubedevices.values.device_tree import DeviceTree

_log = logging.getLogger(__name__)


class ApiSwitch(Stoppable):
    """Serves `scanner` in the mode of `source`; each device is in one API at a time.

    Raises `UsageError` for options that are invalid in any mode.
    """

    def __init__(
        self,
        scanner: Scanner,
        domain: str,
        source: ModeSource,
        selector: DraSelector,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__()
        scan_task.check_scanner(scanner)
        self.domain = domain
        self._scanner, self._source, self._selector = scanner, source, selector
        self._timing: HandoverTiming = options.get("handover_timing") or HandoverTiming()
        self._handover = Handover(self._timing)
        settings = DraSettings(**of_drivers(options))
        self._guard = _SwitchGuard(
            self, KubeletGuard(domain, settings.pod_resources, settings.guard_timing)
        )
        self._plugin_scanner = PluginApiScanner(scanner, self._handover)
        self._driver_scanner = ApiScanner(scanner)
        self.plugin = PluginRunner(self._plugin_scanner, domain=domain, **of_plugins(options))
        """The device plugin; it serves nothing while no device is in its API."""

        self.driver = DraDriver(
            self._driver_scanner, domain=domain, guard=self._guard, **of_drivers(options)
        )
        """The DRA driver; it starts when it is needed for the first time."""

        self._state_files = StateFiles(settings.data_dir(domain))
        self._held_file = HeldDevicesFile(settings.data_dir(domain), read_boot_id())
        self._held_in_file: frozenset[DeviceKey] = frozenset()
        # After a reboot: devices in the file whose pods the kubelet has not admitted again yet. The
        # device plugin offers them until then.
        self._returning: frozenset[DeviceKey] = frozenset()
        self._file_problem = ""
        self._watched_since: float | None = None  # the kubelet streams its lists
        self._tree: DeviceTree | None = None
        self._labels: Mapping[DeviceKey, str] = {}
        self._woken = asyncio.Event()
        self._plugin_needed, self._driver_needed = asyncio.Event(), asyncio.Event()
        self._has_decided = False
        # Devices in slices of an earlier process that the handover does not know yet.
        self._published_before: frozenset[str] | None = frozenset()

    def __repr__(self) -> str:
        return f"<ApiSwitch {self.domain}: {self.mode}, {self.plugin!r}, {self.driver!r}>"

    @property
    def mode(self) -> Mode:
        """The wanted mode of the node. Devices may still be moving."""
        return self._source.mode

    @property
    def offered_by_plugin(self) -> Collection[DeviceKey]:
        """The devices that the device plugin offers now."""
        return self._handover.offered

    @property
    def has_scanned(self) -> bool:
        """Whether the scanner has reported a device tree."""
        return self._tree is not None

    @property
    def settings(self) -> Settings:
        """The settings of the device plugin."""
        return self.plugin.settings

    @property
    def has_started(self) -> bool:
        """Whether the device plugin and the driver are served, as far as they are needed."""
        return (
            self._has_decided  # before, nothing says what is needed
            and (self.plugin.has_started or not self._plugin_needed.is_set())
            and (self.driver.has_started or not self._driver_needed.is_set())
        )

    def unlink_sockets(self) -> None:
        """Remove the socket files of this process at once: for an exit that cannot wait."""
        self.plugin.unlink_sockets()
        self.driver.unlink_sockets()

    async def run(self) -> None:
        """Scan and serve until the scanner ends, `stop` is called, or an error ends a part."""
        if not self._begin():
            return
        await self._source.begin()
        # After an earlier process with claims or slices, the driver is needed in any mode.
        if await hook_threads.call(self._state_files.need_a_driver):
            self._driver_needed.set()
            self._published_before = await hook_threads.call(self._state_files.published)
        self._held_in_file, is_after_reboot = await hook_threads.call(self._held_file.read)
        self._returning = self._held_in_file if is_after_reboot else frozenset()
        _log.info("the mode of this node is %s", self.mode)
        grace = self.settings.timing.exit_grace
        async with scan_task.scanning(self._scanner, grace) as (updates, scan):
            await run_together(
                ("mode", self._source.run(self._woken.set)),
                ("devices", self._follow(updates)),
                ("handover", self._run_handover()),
                ("device plugin", self._run_when(self._plugin_needed, self.plugin.run)),
                ("DRA driver", self._run_when(self._driver_needed, self.driver.run)),
                ("allocated claims", self.driver.allocations.run(self._woken.set)),
                ("end of the scan", scan_task.end_of(scan)),
                ("stop", self._wait_stopped(updates.stop)),
            )

    async def _run_when(self, needed: asyncio.Event, run: Callable[[], Any]) -> None:
        await needed.wait()
        await run()

    # ------------------------------------------------------------ handover of devices

    async def _follow(self, updates: TreeUpdates) -> NoReturn:
        while True:
            tree, _ = await updates.next()
            self._tree, self._labels = tree, device_labels(tree)
            self._woken.set()

    async def _run_handover(self) -> NoReturn:
        """Decide again after each change, and at intervals while a device waits."""
        while True:
            # Poll while a device waits for the end of claims, slices or pods: there is no event for
            # these.
            is_pending = self._decide()
            pause = self._timing.look if await self._write_held_file() or is_pending else None
            await self._forget_slices(is_pending=is_pending)
            await deadlines.within(pause, self._woken.wait())
            self._woken.clear()

    async def _forget_slices(self, *, is_pending: bool) -> None:
        """Record which devices have left DRA: the next process offers them at once."""
        if not self._driver_needed.is_set() or not self.driver.knows_claims:
            return
        offered = [self._labels[key] for key in self._handover.offered if key in self._labels]
        await self.driver.forget_devices(offered)
        if self.mode == "device-plugin" and not is_pending:
            await self.driver.forget_slices()

    def _decide(self) -> bool:
        """Give each API its devices; return True if a device is not yet in its wanted API."""
        if (tree := self._tree) is None:
            return False
        mode, now = self.mode, asyncio.get_running_loop().time()
        self._driver_scanner.report(tree)
        if self._driver_needed.is_set() and not self.driver.knows_claims:
            return True  # the driver begins with the first tree
        self._note_earlier_slices(now)
        self._update_returning()
        self._handover.decide(self._labels, self.wants_dra, self._kept_by_dra, self._allocated, now)
        offered = self._handover.offered
        plugin_tree = self._plugin_tree(tree)
        # Report to the device plugin before the driver publishes (`refresh` below): a device leaves
        # one API before it enters the other.
        self._plugin_scanner.report(plugin_tree)
        if len(plugin_tree):
            self._plugin_needed.set()
        if mode != "device-plugin":
            self._driver_needed.set()
        self._has_decided = True
        return (
            self._guard.refresh(tree)
            or any(key not in offered and not self.wants_dra(key) for key in self._labels)
            or bool(self._returning)
        )

    def _note_earlier_slices(self, now: float) -> None:
        """Tell the handover which devices an earlier process published; None: maybe any."""
        before = self._published_before
        if before is not None and not before:
            return
        keys = [key for key, label in self._labels.items() if before is None or label in before]
        self._handover.was_in_slices(keys, now)
        # A device of the file that appears later is noted then.
        noted = {self._labels[key] for key in keys}
        self._published_before = frozenset() if before is None else before - noted

    def _plugin_tree(self, tree: DeviceTree) -> DeviceTree:
        """Return the offered devices, and an empty device type if a pod still holds a device of it.

        The kubelet restarts a container of such a pod only while a plugin of this name is
        registered.
        """
        offered = self._handover.offered
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
        """Return the devices that are wanted in DRA, but that a pod of the device plugin holds."""
        view = self._guard.view
        return frozenset(filter(self.wants_dra, view.held)) if view is not None else frozenset()

    def _update_returning(self) -> None:
        """After a reboot, remove devices from `_returning` whose pods are admitted or deleted.

        A pod counts as deleted only when the kubelet must know its pods: it has streamed the lists
        of the device plugin for some time, and the API server answers.
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

    async def _write_held_file(self) -> bool:
        """Write the held devices to the file if they changed; return True if the write failed."""
        held = self._held() | self._returning
        if self._guard.view is None or held == self._held_in_file:
            return False
        try:
            await hook_threads.call(self._held_file.write, held)
        except OSError as error:
            if str(error) != self._file_problem:
                _log.error("cannot write the file of devices that pods hold: %s", error)
            self._file_problem = str(error)
            return True
        # Only after the write may DRA have a device that is no longer held: otherwise a kill in
        # between would leave a wrong file.
        self._held_in_file, self._file_problem = held, ""
        self._woken.set()
        return False

    def was_held(self, key: DeviceKey) -> bool:
        """Whether the file still says that a pod of the device plugin holds the device."""
        return key in self._held_in_file

    def _kept_by_dra(self, key: DeviceKey) -> str:
        if key in self._returning:  # before the reboot the device was in no slice
            return ""
        return self.driver.reason_to_keep(self._labels[key]) if self._driver_needed.is_set() else ""

    def _allocated(self, key: DeviceKey, since: float) -> str:
        """Return why a claim may have a device: its pod is not started yet, or has just ended."""
        return self.driver.allocations.reason(self._labels[key], since)

    def wants_dra(self, key: DeviceKey) -> bool:
        """Whether a device is wanted in DRA. It is not while its pod returns after a reboot."""
        return key not in self._returning and self._selector.wants_dra(key, self.mode)

    def kept_by_plugin(self, key: DeviceKey, asked_at: float) -> str:
        """Return why DRA must not have a device; `asked_at` as in `Handover.kept_by_plugin`."""
        now = asyncio.get_running_loop().time()
        return self._handover.kept_by_plugin(key, now, asked_at)

    def wake(self) -> None:
        """Let the handover decide again."""
        self._woken.set()


class _SwitchGuard:
    """The driver's guard: devices wanted in DRA are published when they left the other API."""

    def __init__(self, switch: ApiSwitch, kubelet: KubeletGuard) -> None:
        self._switch, self._kubelet = switch, kubelet
        self.claims_of_pods = kubelet.claims_of_pods
        self._changed: Callable[[], None] | None = None

    @property
    def view(self) -> PluginView | None:
        """The kubelet's last answers."""
        return self._kubelet.view

    @property
    def publishes(self) -> bool:
        """Whether the mode allows any device in DRA."""
        return self._switch.mode != "device-plugin"

    def withheld(self, tree: DeviceTree) -> Mapping[DeviceKey, str] | None:
        """Return the devices that must not be in a slice, each with the reason."""
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
        return dict.fromkeys({*keys} - {*wanted}, "it is for the device plugin API") | reasons

    async def refusal(self, keys: Collection[DeviceKey]) -> str:
        """Return why a claim cannot have a device that is new to it; empty if it can.

        The mode does not count: the scheduler may have decided just before the mode changed.
        """
        now = asyncio.get_running_loop().time()
        for key in keys:
            if why := self._switch.kept_by_plugin(key, now):
                return f"device {key[1]} cannot be used: {why}"
        return await self._kubelet.refusal(keys)

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Follow the kubelet's answers; a change wakes the switch, which calls `refresh`."""
        self._changed = changed
        await self._kubelet.run(self._switch.wake)

    def refresh(self, tree: DeviceTree) -> bool:
        """Let the driver publish again; return True while a device waits to be published."""
        self.withheld(tree)  # updates `is_waiting`
        if self._changed is not None:
            self._changed()
        return self.publishes and self._kubelet.is_waiting
