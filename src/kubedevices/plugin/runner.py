"""A plugin from start to stop: one scanner, one served type per device type.

Plugin authors use it through `run` and `serve` of `kubedevices.serving.modes`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, Unpack

from kubedevices.errors import DeviceListTooLarge, InvalidResourceName
from kubedevices.host.file_watch import FileWatch
from kubedevices.plugin import hook_threads, scan_task
from kubedevices.plugin.cdi import CdiFiles
from kubedevices.plugin.hooks import Hooks
from kubedevices.plugin.options import RunnerOptions, Settings
from kubedevices.plugin.scan_task import TreeUpdates
from kubedevices.plugin.scanner import Scanner
from kubedevices.plugin.served_type import ServedType, run_together
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.stoppable import Stoppable
from kubedevices.values.device_tree import DeviceTree, TreeChange
from kubedevices.values.resource_name import ResourceName, explain_resource_name

Beside: TypeAlias = Callable[["PluginRunner"], contextlib.AbstractAsyncContextManager[object]]

_log = logging.getLogger(__name__)


class PluginRunner(Stoppable):
    """Serves the devices of `scanner` as resources `domain/device type`.

    Call `run` once, and `stop` at any time. Raises `UsageError` for a wrong scanner, domain or
    option.
    """

    def __init__(self, scanner: Scanner, *, domain: str, **options: Unpack[RunnerOptions]) -> None:
        super().__init__()
        scan_task.check_scanner(scanner)
        if problem := explain_resource_name(f"{domain}/any"):
            raise InvalidResourceName(f"{domain}/…", problem)
        self.domain = domain
        self._scanner = scanner
        self.settings = Settings(**options)
        self._hooks = Hooks(scanner)
        self._cdi = CdiFiles(domain, self.settings)
        self._running: dict[str, _Running] = {}
        self._ending: set[_Running] = set()
        self._watch = FileWatch(interval=self.settings.timing.look_interval, names_only=True)
        self._has_scanned = False

    def __repr__(self) -> str:
        types = ", ".join(
            f"{name}{'' if running.served.is_registered else ' (not registered)'}"
            for name, running in self._running.items()
        )
        return f"<PluginRunner {self.domain}: {types or 'no devices'}>"

    @property
    def servers(self) -> Mapping[str, PluginServer]:
        """The plugin server of each device type that is served now."""
        return MappingProxyType(
            {
                name: running.served.server
                for name, running in self._running.items()
                if running.served.server is not None
            }
        )

    @property
    def has_scanned(self) -> bool:
        """Whether the scanner has reported a tree, also an empty tree."""
        return self._has_scanned

    @property
    def is_ready(self) -> bool:
        """Whether a kubelet is registered and has a stream for each device type that was found.

        The stream is required because a kubelet without a stream allocates no device. With
        `registration="none"` it is enough that every type is served. False while a list is too
        large, so that devices are left out (`too_large`).
        """
        return self._has_scanned and all(map(self._is_ready, self._running))

    @property
    def too_large(self) -> Mapping[str, DeviceListTooLarge]:
        """The device types whose devices are not all offered, and why."""
        return {
            name: running.served.too_large
            for name, running in self._running.items()
            if running.served.too_large is not None
        }

    @property
    def has_started(self) -> bool:
        """Whether everything that was found is served; a kubelet may start later.

        Also true while the plugin waits for the directory that only the kubelet creates.
        """
        if not self._has_scanned:
            return False
        return all(map(self.is_serving, self._running)) or not self.settings.directory.exists()

    def _is_ready(self, device_type: str) -> bool:
        if device_type in self.too_large:
            return False
        if self.settings.registration == "none":
            return self.is_serving(device_type)
        server = self.servers.get(device_type)
        return server is not None and len(server.streams) > 0 and self.is_registered(device_type)

    def is_serving(self, device_type: str) -> bool:
        """Whether the socket of `device_type` is bound and accepts calls."""
        running = self._running.get(device_type)
        return running is not None and running.served.is_serving

    def is_registered(self, device_type: str) -> bool:
        """Whether a kubelet accepted our registration of `device_type`."""
        running = self._running.get(device_type)
        return running is not None and running.served.is_registered

    def unlink_sockets(self) -> None:
        """Remove our socket files at once; for an exit that cannot wait for `run`."""
        for running in [*self._running.values(), *self._ending]:
            if running.served.registrar is not None:
                running.served.registrar.unlink_socket()

    async def run(self) -> None:
        """Scan and serve until the scanner ends, `stop` is called, or a lasting error occurs.

        Raises `ScanFailed`, or the error that ended a server. At the end no socket is left.
        """
        if not self._begin():
            return
        timing = self.settings.timing
        try:
            async with scan_task.scanning(self._scanner, timing.exit_grace) as (updates, scan):
                with self._watch:
                    await run_together(
                        ("device types", self._follow(updates, scan)),
                        # Lets a scanner that waits for the stop end while the servers stop.
                        ("stop", self._wait_stopped(updates.stop)),
                    )
        finally:
            # `_follow` has ended the servers. Threads come last, because the scan may run in one.
            self._cdi.close()
            await hook_threads.settle(timing.hook_grace)

    # ------------------------------------------------------------ device types

    async def _follow(self, updates: TreeUpdates, scan: asyncio.Task[None]) -> None:
        """Apply the scanner's trees until it ends; raises an error of the scanner or of a type."""
        change = asyncio.create_task(updates.next(), name="next tree")
        try:
            while True:
                tasks = [running.task for running in self._running.values()]
                await asyncio.wait({scan, change, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()  # raises: a served type only ends with an error
                if scan.done():
                    scan.result()
                    if not self._is_stopped:
                        _log.info("the scanner has ended")
                    return
                if change.done():
                    tree, difference = change.result()
                    await self._cdi.follow(tree)
                    # CDI files before the list: a kubelet may allocate as soon as it reads the
                    # list, and the runtime then needs the files.
                    self._apply(tree, difference)
                    if not self._has_scanned and not tree:
                        _log.info("the scanner reports no devices: nothing is served until it does")
                    self._has_scanned = True
                    change = asyncio.create_task(updates.next(), name="next tree")
        finally:
            change.cancel()
            for name in list(self._running):
                self._remove(name)
            if self._ending:
                await asyncio.wait({running.task for running in self._ending})

    def _apply(self, tree: DeviceTree, change: TreeChange) -> None:
        for name in change.added:
            self._add(name, tree)
        for name in change.updated:
            self._running[name].served.update(tree.devices(name), tree.sent(name))
        for name in change.removed:
            self._remove(name)

    def _add(self, device_type: str, tree: DeviceTree) -> None:
        resource = ResourceName(self.domain, device_type)
        served = ServedType(
            resource,
            tree.devices(device_type),
            hooks=self._hooks_of(device_type),
            settings=self.settings,
            watch=self._watch,
            cdi=self._cdi,
            sent=tree.sent(device_type),
        )
        # If a type comes back while its former server still answers a call, both servers have the
        # same socket path.
        before = {old.task for old in self._ending if old.served.resource == served.resource}

        async def serve_when_free() -> None:
            if before:
                await asyncio.wait(before)
            await served.run()

        task = asyncio.create_task(serve_when_free(), name=str(resource))
        self._running[device_type] = _Running(served, task)

    def _hooks_of(self, device_type: str) -> Hooks:
        owner = self._scanner.abilities_of(device_type)
        return self._hooks if owner is self._scanner else Hooks(owner)

    def _remove(self, device_type: str) -> None:
        """Stop a type. Its running calls may finish; nobody waits for them here."""
        ending = self._running.pop(device_type)
        self._ending.add(ending)
        was_serving = ending.served.is_serving
        ending.task.add_done_callback(lambda _: self._forget(ending, was_serving=was_serving))
        ending.task.cancel()

    def _forget(self, ended: "_Running", *, was_serving: bool) -> None:
        self._ending.discard(ended)
        if not ended.task.cancelled() and (error := ended.task.exception()):
            _log.debug("%s ended with an error", ended.served.resource, exc_info=error)
        if was_serving:
            _log.info("%s: no longer served", ended.served.resource)


class _Running(NamedTuple):
    """A served type and the task that runs it."""

    served: ServedType
    task: asyncio.Task[None]
