"""Registers the plugins whose sockets appear in the plugin registry directory.

Here the node calls the plugin, and the plugin does not have to notice a restart of the node. No
file in the directory is ever removed. `registry_state` decides which sockets to register.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kubedevices.errors import (
    BadEndpoint,
    BadPluginName,
    DialError,
    GetInfoFailed,
    KubedevicesError,
    NoHandlerForPlugin,
    NotifyFailed,
    PluginRegistrationFailed,
    PluginValidationFailed,
    RegistrationError,
    VersionNotSupportedByPlugin,
    WatchedSocketNotDialled,
    WireError,
)
from kubedevices.kubelet_api.clients import PluginRegistrationClient
from kubedevices.node.arrival.plugin_directory import make_directory
from kubedevices.node.arrival.registry_scan import RegistryScan
from kubedevices.node.arrival.registry_state import RegisteredPlugin, RegistryState
from kubedevices.values.allocation import API_VERSION, PluginInfo
from kubedevices.values.resource_name import is_resource_name
from kubedevices.wire.unix_grpc import FileIdentity, GrpcChannel

logger = logging.getLogger(__name__)

DEVICE_PLUGIN = "DevicePlugin"


@dataclass(frozen=True)
class WatcherTiming:
    """Times in seconds. The kubelet waits one second for GetInfo: too short on a busy node."""

    interval: float = 1.0
    dial: float = 10.0
    get_info: float = 5.0
    notify: float = 5.0


class PluginHandler(Protocol):
    """Accepts the plugins of one type."""

    def explain(self, info: PluginInfo) -> RegistrationError | None:
        """Return why a plugin with this `info` is not accepted, or None."""

    async def connect(self, info: PluginInfo, socket: Path) -> None:
        """Connect to a plugin that serves at `socket`; raises `RegistrationError`."""

    def disconnect(self, name: str, socket: Path) -> None:
        """Disconnect a plugin whose registration socket is gone."""


class DevicePlugins:
    """Accepts device plugins; `connect` and `disconnect` are methods of the endpoint table."""

    def __init__(
        self,
        connect: Callable[[str, Path], Awaitable[None]],
        disconnect: Callable[[str, Path], None],
    ) -> None:
        self._connect, self.disconnect = connect, disconnect

    def explain(self, info: PluginInfo) -> RegistrationError | None:
        """Check version, name and endpoint."""
        if API_VERSION not in info.supported_versions:
            return VersionNotSupportedByPlugin(API_VERSION, info.supported_versions)
        if not is_resource_name(info.name):
            return BadPluginName(info.name)
        if "\0" in info.endpoint:
            return BadEndpoint(info.endpoint, "no path holds a NUL character")
        return None

    async def connect(self, info: PluginInfo, socket: Path) -> None:
        """Connect to the plugin of a resource."""
        await self._connect(info.name, socket)


def device_plugins(
    connect: Callable[[str, Path], Awaitable[None]], disconnect: Callable[[str, Path], None]
) -> Mapping[str, PluginHandler]:
    """Return the handlers of a node that accepts only device plugins."""
    return {DEVICE_PLUGIN: DevicePlugins(connect, disconnect)}


class PluginWatcher:
    """Watches `directory` and two levels below it; `handlers` has a handler per plugin type."""

    def __init__(
        self,
        directory: Path,
        handlers: Mapping[str, PluginHandler],
        *,
        timing: WatcherTiming | None = None,
    ) -> None:
        self.directory = directory
        self._handlers = handlers
        self._timing = timing or WatcherTiming()
        self._state, self._scan = RegistryState(), RegistryScan(directory)
        self._loop_task: asyncio.Task[None] | None = None
        self._operations: set[asyncio.Task[None]] = set()

    def counts(self) -> dict[Path, tuple[int, int]]:
        """Return for each socket path 1 or 0 for desired and for registered."""
        return self._state.counts()

    async def start(self) -> None:
        """Create the directory and begin to look for plugins; raises `CannotAsk`."""
        make_directory(self.directory, 0o750)
        self._loop_task = asyncio.create_task(self._watch(), name=f"plugins in {self.directory}")

    async def stop(self) -> None:
        """Stop looking for plugins; registered plugins stay registered."""
        tasks = [*self._operations, *([self._loop_task] if self._loop_task else [])]
        self._loop_task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                # In a thread: a stranger may have put any number of files there.
                self._act_on(await asyncio.to_thread(self._scan.look))
            except OSError as error:  # the plugins may still be there, so none is disconnected
                logger.warning("%s cannot be read now: %s", self.directory, error.strerror)
            # One look per second and no file events: the kubelet's reconcile loop also acts once a
            # second.
            await asyncio.sleep(self._timing.interval)

    def _act_on(self, found: dict[Path, FileIdentity]) -> None:
        plan = self._state.plan(found, asyncio.get_running_loop().time())
        for path in plan.unregister:
            self._unregister(path)
        for path in plan.register:
            name = f"registering {path}"
            task = asyncio.create_task(self._register(path, found[path]), name=name)
            self._operations.add(task)
            task.add_done_callback(self._operations.discard)

    def _unregister(self, path: Path) -> None:
        plugin = self._state.unregistered(path)
        if plugin is not None:
            logger.info("%s: its socket %s is gone", plugin.resource, path)
            self._handlers[plugin.type].disconnect(plugin.resource, plugin.socket)

    # ------------------------------------------------------------ one plugin

    async def _register(self, path: Path, file: FileIdentity) -> None:
        loop = asyncio.get_running_loop()
        try:
            plugin = await self._introduce(path)
        except (RegistrationError, WireError) as error:
            pause = self._state.failed(path, loop.time())
            logger.warning("%s (again in %.1f s)", error, pause)
        except Exception:  # after a defect of ours, the plugin is tried again
            logger.exception("registering %s failed", path)
            self._state.failed(path, loop.time())
        else:
            self._state.registered(path, plugin, file)

    async def _introduce(self, path: Path) -> RegisteredPlugin:
        """Ask the socket for its plugin, connect to it, and notify it; undo this on failure."""
        try:
            channel = await GrpcChannel.dial(path, timeout=self._timing.dial, follow_links=False)
        except DialError as error:
            raise WatchedSocketNotDialled(str(path), error.reason) from error
        async with channel:
            client = PluginRegistrationClient(channel)
            try:
                info = await client.get_info(timeout=self._timing.get_info)
            except KubedevicesError as error:
                raise GetInfoFailed(str(path), str(error)) from error
            socket = serving_socket(info.endpoint, path, self.directory)
            plugin = RegisteredPlugin(info.name, socket, info.type)
            try:
                await self._accept(path, info, socket)
            except RegistrationError as error:
                with suppress(NotifyFailed):
                    await self._notify(client, path, str(error))
                raise
            try:
                # As kubelets from 1.36 on (kubernetes#133335): a plugin that could not be notified
                # is disconnected and tried again. Earlier kubelets leave it half registered until
                # its socket is created again.
                await self._notify(client, path, "")
            except NotifyFailed:
                self._handlers[info.type].disconnect(info.name, socket)
                raise
        return plugin

    async def _accept(self, path: Path, info: PluginInfo, socket: Path) -> None:
        handler = self._handlers.get(info.type)
        if handler is None:
            raise NoHandlerForPlugin(info.type, str(path))
        if problem := handler.explain(info):
            raise PluginValidationFailed(str(problem))
        try:
            await handler.connect(info, socket)
        except RegistrationError as error:
            raise PluginRegistrationFailed(str(error)) from error

    async def _notify(self, client: PluginRegistrationClient, path: Path, error: str) -> None:
        try:
            await client.notify_registration_status(
                registered=not error, error=error, timeout=self._timing.notify
            )
        except KubedevicesError as problem:
            raise NotifyFailed(str(path), str(problem)) from problem


def serving_socket(endpoint: str, found_at: Path, registry: Path) -> Path:
    """Return where the plugin serves whose registration socket is at `found_at`.

    As in the kubelet, `endpoint` is a whole path: a plugin may serve in another directory. But a
    plugin in a container announces the path in its own mount. If that path does not exist here and
    the directory of its registration socket, or `registry`, has a file of this name, the plugin
    serves there.
    """
    announced = Path(endpoint)
    if not endpoint:
        return found_at
    if "\0" in endpoint or os.path.lexists(announced):
        return announced
    moved = (directory / announced.name for directory in (found_at.parent, registry))
    return next((each for each in moved if os.path.lexists(each)), announced)
