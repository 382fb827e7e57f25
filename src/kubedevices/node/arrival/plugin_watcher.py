"""Registers the plugins whose sockets appear in the plugin registry directory.

The other way in: here the node comes to the plugin, so that a plugin need not notice a restart of
the node. Nothing in the directory is ever removed by us. `registry_state` decides what to do.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kubedevices.allocation import API_VERSION, PluginInfo
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
from kubedevices.node.arrival.registry_state import RegisteredPlugin, RegistryState
from kubedevices.resource_name import is_resource_name
from kubedevices.wire.unix_grpc import FileIdentity, GrpcChannel

logger = logging.getLogger(__name__)

DEVICE_PLUGIN = "DevicePlugin"


@dataclass(frozen=True)
class WatcherTiming:
    """Seconds. The kubelet gives GetInfo one second, which is too short on a busy node."""

    interval: float = 1.0
    dial: float = 10.0
    get_info: float = 5.0
    notify: float = 5.0


class PluginHandler(Protocol):
    """Takes in the plugins of one type."""

    def explain(self, info: PluginInfo) -> RegistrationError | None:
        """Return why a plugin that says `info` is not accepted, or None."""

    async def connect(self, info: PluginInfo, socket: Path) -> None:
        """Take in a plugin that serves at `socket`; raises `RegistrationError`."""

    def disconnect(self, name: str, socket: Path) -> None:
        """Let it go: the socket by which it was found is gone."""


class DevicePlugins:
    """Takes in device plugins; `connect` and `disconnect` are the endpoint table's."""

    def __init__(
        self,
        connect: Callable[[str, Path], Awaitable[None]],
        disconnect: Callable[[str, Path], None],
    ) -> None:
        self._connect, self.disconnect = connect, disconnect

    def explain(self, info: PluginInfo) -> RegistrationError | None:
        """Check version, name and endpoint."""
        return explain_plugin(info)

    async def connect(self, info: PluginInfo, socket: Path) -> None:
        """Connect to the plugin of a resource."""
        await self._connect(info.name, socket)


def device_plugins(
    connect: Callable[[str, Path], Awaitable[None]], disconnect: Callable[[str, Path], None]
) -> Mapping[str, PluginHandler]:
    """Return the handlers of a node that takes in device plugins only."""
    return {DEVICE_PLUGIN: DevicePlugins(connect, disconnect)}


class PluginWatcher:
    """Watches `directory` and what is below it; `handlers` by the type that a plugin says."""

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
        self._state = RegistryState()
        self._loop_task: asyncio.Task[None] | None = None
        self._operations: set[asyncio.Task[None]] = set()

    def counts(self) -> dict[Path, tuple[int, int]]:
        """Return per socket path whether it is desired and whether it is registered, as 1 or 0."""
        return self._state.counts()

    async def start(self) -> None:
        """Make the directory and look for plugins from now on; raises `CannotAsk`."""
        make_directory(self.directory, 0o750)
        self._loop_task = asyncio.create_task(self._watch(), name=f"plugins in {self.directory}")

    async def stop(self) -> None:
        """Stop looking; the plugins that are registered stay so."""
        tasks = [*self._operations, *([self._loop_task] if self._loop_task else [])]
        self._loop_task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                self._act_on(find_sockets(self.directory))
            except OSError as error:  # which says nothing about the plugins
                logger.warning("%s cannot be read now: %s", self.directory, error.strerror)
            # A look per second instead of file events: a kubelet's reconcile loop acts once a
            # second as well.
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
        except Exception:  # a bug of ours must not leave the plugin behind for ever
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
            socket = Path(info.endpoint) if info.endpoint else path
            # A kubelet does not join this path with any directory: a plugin may serve elsewhere.
            plugin = RegisteredPlugin(info.name, socket, info.type)
            try:
                await self._accept(path, info, socket)
            except RegistrationError as error:
                with suppress(NotifyFailed):
                    await self._notify(client, path, str(error))
                raise
            try:
                # As kubelets do from 1.36 on (kubernetes#133335): a plugin that could not be told
                # is undone and tried again. Earlier ones leave it half registered until its socket
                # is made anew.
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


def explain_plugin(info: PluginInfo) -> RegistrationError | None:
    """Return why a device plugin that says `info` is not accepted, or None."""
    if API_VERSION not in info.supported_versions:
        return VersionNotSupportedByPlugin(API_VERSION, info.supported_versions)
    if not is_resource_name(info.name):
        return BadPluginName(info.name)
    if "\0" in info.endpoint:
        return BadEndpoint(info.endpoint, "no path holds a NUL character")
    return None


def find_sockets(directory: Path) -> dict[Path, FileIdentity]:
    """Return every socket in `directory` and below, with which file it is.

    Names that begin with a dot are skipped: their owners have not finished them. Links are not
    followed. Raises `OSError`, but a folder that is gone or closed to us counts as empty.
    """

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            raise error

    found: dict[Path, FileIdentity] = {}
    for folder, folders, names in os.walk(directory, onerror=failed):
        # Changed in place, because os.walk goes on with this very list.
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(folder, name)
            if name.startswith(".") or not _is_socket(path):
                continue
            identity = FileIdentity.of(path)
            if identity is not None:
                found[path] = identity
    return found


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False
