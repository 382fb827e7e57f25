"""The directory in which plugins behind the proxy register; each resource gets a scanner.

Unlike a kubelet, the proxy never removes sockets from the directory: plugins may listen on them,
and some plugins register only once. The proxy remembers their sockets (`known_sockets`) and
connects to them again after its own restart.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from kubedevices.errors import (
    CannotAsk,
    DialPluginFailed,
    PluginOptionsFailed,
    RegistrationError,
    TooManyPlugins,
)
from kubedevices.node.arrival.endpoint_table import PLUGIN_LIMIT, PLUGINS_OF_PEER
from kubedevices.node.arrival.list_memory import PluginLists
from kubedevices.node.arrival.plugin_directory import (
    StateLock,
    accepts_connections,
    claim_plugin_directory,
    make_directory,
)
from kubedevices.node.arrival.plugin_watcher import PluginWatcher, device_plugins
from kubedevices.node.arrival.registration import RegistrationServer, registration_socket
from kubedevices.plugin.supervised_tasks import SupervisedTasks
from kubedevices.proxy.known_sockets import KnownSockets
from kubedevices.proxy.plugin_calls import CallLimits
from kubedevices.proxy.plugin_scanner import PluginScanner
from kubedevices.proxy.saved_list import SavedList
from kubedevices.values.resource_name import ResourceName
from kubedevices.wire.peers import NOBODY, Peer

LOCK_NAME = "proxy.lock"
"""In the state directory, which a kubedevices node may use too."""

_DIAL_KNOWN = 2.0
"""Seconds to connect to a remembered socket: no plugin waits for an answer to Register."""

_FIRST_PAUSE, _LAST_PAUSE = 0.5, 30.0
"""Seconds between two dials of a remembered plugin that listens and does not answer."""

_log = logging.getLogger(__name__)


class InsideDirectory:
    """Accepts plugins at `plugin_dir`; calls `appeared` with the scanner of each new resource.

    `vanished` is called with a scanner that is forgotten: its plugin is gone, and it has no list or
    others need its place. `is_repaired` says whether the plugin of a resource may lack
    GetDevicePluginOptions.
    """

    def __init__(
        self,
        plugin_dir: Path,
        state_dir: Path,
        appeared: Callable[[PluginScanner], None],
        *,
        registry_dir: Path | None = None,
        limits: CallLimits = CallLimits(),  # noqa: B008 - a frozen value
        is_repaired: Callable[[str], bool] = lambda _: True,
        vanished: Callable[[PluginScanner], None] = lambda _: None,
    ) -> None:
        self._is_mended = is_repaired
        self.plugin_dir, self._state_dir = plugin_dir, state_dir
        self._appeared, self._vanished, self._limits = appeared, vanished, limits
        self._lists = PluginLists()
        self._closing: set[asyncio.Task[None]] = set()
        self._known = KnownSockets(state_dir)
        self._lock = StateLock(state_dir, LOCK_NAME, program="proxy")
        self._registration = RegistrationServer(plugin_dir, self.connect)
        self._watcher = (
            PluginWatcher(registry_dir, device_plugins(self.connect, self.disconnect))
            if registry_dir
            else None
        )
        self.tasks = SupervisedTasks()
        self.scanners: dict[str, PluginScanner] = {}

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Accept plugins while the context lasts; raises `CannotAsk`."""
        make_directory(self._state_dir, 0o750)
        claim_plugin_directory(
            registration_socket(self.plugin_dir), server="another proxy", option="--plugin-dir"
        )
        self._lock.acquire()
        tasks = self.tasks
        try:
            # Before plugins can register: a registration that comes during the load would be
            # overwritten.
            known = self._known.load()
            for name, socket in known.items():
                tasks.start(f"known plugin of {name}", partial(self._dial_again, name, socket))
            tasks.start("known sockets", self._known.keep)
            await self._registration.start()
            if self._watcher is not None:
                await self._watcher.start()
            yield
        finally:
            if self._watcher is not None:
                await self._watcher.stop()
            await self._registration.stop()
            await tasks.stop()
            await asyncio.gather(*(each.close() for each in self.scanners.values()), *self._closing)
            self._lock.release()

    async def _dial_again(self, resource: str, socket: Path) -> None:
        """Connect to a remembered plugin; forget it when no process listens on its socket.

        There are three cases. It answers: connected. It listens and does not answer, for example
        because a whole node starts: it may be a plugin that registers only once, so it is dialled
        again. It has registered by itself: it has a newer connection.
        """
        pause = _FIRST_PAUSE
        while (known := self.scanners.get(resource)) is None or known.current() is None:
            try:
                # A plugin that starts later registers by itself. If it were dialled too, its first
                # stream would end when it registers, and some plugins exit when a stream ends.
                if not accepts_connections(socket):
                    raise CannotAsk("no process listens there")
                await self.connect(resource, socket, dial=_DIAL_KNOWN)
            except (DialPluginFailed, PluginOptionsFailed) as error:
                _log.info("%s: its plugin at %s is dialled again: %s", resource, socket, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
            except (CannotAsk, RegistrationError) as error:
                _log.info("%s: its plugin is not at %s any more: %s", resource, socket, error)
                self._known.remove(resource, socket)
                return

    async def connect(self, resource: str, socket: Path, *, dial: float = 10) -> None:
        """Connect to the plugin of `resource`; raises `RegistrationError`."""
        scanner = self.scanners.get(resource)
        if scanner is None:
            self._check_room(resource)
            scanner = self._scanner(resource)
        scanner.is_repaired = self._is_mended(resource)
        # Again: only now we know its process, and others may have connected meanwhile.
        await scanner.connect(
            socket, dial=dial, check=lambda made: self._check_room(resource, made.peer)
        )
        if self.scanners.setdefault(resource, scanner) is not scanner:
            # Two instances registered at the same time, and the other instance was faster.
            await scanner.close()
            await self.scanners[resource].connect(socket, dial=dial)
            scanner = self.scanners[resource]
        elif scanner.has_list:
            self._announce(scanner)
        # Only an instance that answered is remembered.
        self._known.add(resource, socket)

    def _announce(self, scanner: PluginScanner) -> None:
        """Tell about a resource that has a list: a neighbour can register many that never have."""
        if not scanner.is_announced and self.scanners.get(str(scanner.resource)) is scanner:
            scanner.is_announced = True
            self._appeared(scanner)

    def expect(self, resource: str, saved: SavedList) -> None:
        """Offer a saved list before the plugin of `resource` registers."""
        scanner = self._scanner(resource)
        if self.scanners.setdefault(resource, scanner) is scanner:
            scanner.restore(saved.devices, saved.options)
            self._announce(scanner)

    def _scanner(self, resource: str) -> PluginScanner:
        scanner = PluginScanner(ResourceName.parse(resource), self._limits, lists=self._lists)
        scanner.is_useless = partial(self._forget, scanner)
        scanner.has_first_list = partial(self._announce, scanner)
        return scanner

    # ------------------------------------------------------------ places

    def _check_room(self, resource: str, peer: Peer = NOBODY) -> None:
        """Make room for a new resource; raises `TooManyPlugins`.

        A resource without a plugin goes for the new one, and only if the place is needed: `hold`
        offers its devices. Of these, the process that used most names loses a resource.
        """
        known = self.scanners.get(resource)
        if known is not None and (not peer.is_known or known.peer.key == peer.key):
            return  # its plugin restarts
        names = Counter(each.peer.key for each in self.scanners.values())
        if peer.is_known and names[peer.key] >= PLUGINS_OF_PEER:
            among = [each for each in self.scanners.values() if each.peer.key == peer.key]
            problem = TooManyPlugins(resource, PLUGINS_OF_PEER, " of one process")
        elif known is None and len(self.scanners) >= PLUGIN_LIMIT:
            among = [*self.scanners.values()]
            problem = TooManyPlugins(resource, PLUGIN_LIMIT)
        else:
            return
        away = [each for each in among if each.current() is None]
        if not away:
            raise problem
        now = asyncio.get_running_loop().time()
        leaves = max(away, key=lambda each: (names[each.peer.key], now - each.away_since(now)))
        _log.warning("%s: forgotten, %s needs its place", leaves.resource, resource)
        self._forget(leaves)

    def _forget(self, scanner: PluginScanner) -> None:
        """Forget a resource without a plugin; the next registration creates it again."""
        name = str(scanner.resource)
        if self.scanners.get(name) is not scanner:
            return
        del self.scanners[name]
        self._known.forget(name)
        # At once: the same plugin may be registering again with this scanner.
        scanner.abandon()
        closing = asyncio.create_task(scanner.end_closing(), name=f"forgetting {name}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        if scanner.is_announced:
            scanner.is_announced = False
            self._vanished(scanner)

    def disconnect(self, resource: str, socket: Path) -> None:
        """Disconnect the plugin at `socket`, because it removed its registration socket."""
        if scanner := self.scanners.get(resource):
            scanner.disconnect(socket)
