"""`Probe`: a kubelet's two directories and kubelet.sock, and the faults of a kubelet.

Each fault is one method, named after the event on a node. A mistake of a plugin raises nothing
here; `arrivals` and the sessions record it.
"""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from kubedevices.errors import RpcError, SocketInUse, StatusCode
from kubedevices.host.listing import names
from kubedevices.kubelet_api.services import registration_methods
from kubedevices.node.arrival.plugin_directory import accepts_connections, clean_plugin_directory
from kubedevices.testing.kubelet.arrival import LIKE_A_KUBELET, Arrival, RegisterBehavior
from kubedevices.testing.kubelet.change_signal import ChangeSignal
from kubedevices.testing.kubelet.no_pods import NoPods
from kubedevices.testing.kubelet.reception import Reception, TimedCall, by_the_clock
from kubedevices.testing.kubelet.watcher import RegistryWatcher
from kubedevices.values.allocation import RegisterRequest
from kubedevices.values.device import Health, ReportedDevice
from kubedevices.values.socket_paths import KUBELET_SOCKET_NAME
from kubedevices.wire.unix_grpc import GrpcServer, UnaryMethod
from kubedevices.wire.unix_socket import move_into_place, temporary_name

if TYPE_CHECKING:
    from kubedevices.testing.kubelet.session import PluginSession

Wipe = Literal["everything", "sockets", "nothing"]
"""What a starting kubelet removes from its plugin directory.

"everything" except the checkpoint: a kubelet up to 1.32. "sockets": a newer kubelet. "nothing" but
kubelet.sock: a kubelet that cannot clean its directory.
"""

OLD_REGISTER = "/deviceplugin.Registration/Register"
"""The Register method of API v1alpha, which no kubelet serves any more."""


class Probe:
    """A kubelet in `socket_dir` that tests control. `async with` stops it at the end.

    `pod_resources` is the path for a podresources socket. `outside` returns our path for a path
    that plugins send: they may see another file system. `ask` makes a call to a plugin within a
    limit of seconds.
    """

    def __init__(
        self,
        socket_dir: Path,
        registry_dir: Path | None = None,
        pod_resources: Path | None = None,
        *,
        dial_limit: float = 10,
        outside: Callable[[str], Path] = Path,
        ask: TimedCall = by_the_clock,
    ) -> None:
        self.socket_dir = socket_dir
        self.kubelet_socket = socket_dir / KUBELET_SOCKET_NAME
        self.change_signal = ChangeSignal()
        self.behavior: RegisterBehavior = LIKE_A_KUBELET
        self.arrivals: list[Arrival] = []
        self.plugins: dict[str, PluginSession] = {}
        self.old_calls = 0  # calls of Register in v1alpha
        self._reception = Reception(socket_dir, self.change_signal, dial_limit, outside, ask)
        self._server: GrpcServer | None = None
        self._sessions: list[PluginSession] = []
        self._pod_resources = NoPods(pod_resources, self.devices) if pod_resources else None
        self._watcher = (
            RegistryWatcher(registry_dir, self.admit, self.change_signal) if registry_dir else None
        )

    def __repr__(self) -> str:
        state = "running" if self.is_running else "away"
        return f"<Probe {self.socket_dir} {state} plugins={sorted(self.plugins)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def is_running(self) -> bool:
        """Whether kubelet.sock accepts connections."""
        return self._server is not None

    # ------------------------------------------------------------ a kubelet's usual work

    async def start(self, *, refusing: float = 0) -> None:
        """Listen on kubelet.sock, a new file. Raises `SocketInUse`, a `CannotAsk`.

        A real kubelet binds its socket and listens shortly after that. `refusing` is the number of
        seconds between the two steps, in which kubelet.sock refuses connections.
        """
        if accepts_connections(self.kubelet_socket):
            raise SocketInUse(str(self.kubelet_socket), "a kubelet runs here; nothing was changed")
        if refusing:
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.bind(str(self.kubelet_socket))
                await asyncio.sleep(refusing)
        unfinished = temporary_name(self.kubelet_socket)
        methods = {**registration_methods(self), OLD_REGISTER: UnaryMethod(self._old_register)}
        server = GrpcServer(methods, name="probe")
        await server.start(unfinished)
        # We rename the socket, so the server does not remove the file when it stops. A kubelet
        # leaves its socket file as well.
        if not refusing:
            self.kubelet_socket.unlink(missing_ok=True)
        move_into_place(unfinished, self.kubelet_socket)
        self._server = server
        if self._watcher:
            self._watcher.start()
        if self._pod_resources:
            await self._pod_resources.start()

    async def stop(self, *, leave_socket: bool = False) -> None:
        """Stop as if the process ended: close all connections without any other call.

        `leave_socket` leaves the socket file, as a real kubelet does.
        """
        if self._watcher:
            await self._watcher.stop()
        if self._pod_resources:
            await self._pod_resources.stop()
        server, self._server = self._server, None
        if server:
            await server.stop()
            if not leave_socket:
                self.kubelet_socket.unlink(missing_ok=True)
        await self.drop_connections()

    async def drop_connections(self) -> None:
        """Close the connections to all plugins, and forget them until they register again."""
        sessions, self._sessions = self._sessions, []
        self.plugins.clear()
        for session in sessions:
            await session.close()

    async def register(self, request: RegisterRequest) -> None:
        """Answer Register; the gRPC server calls this."""
        arrival = Arrival(request, asyncio.get_running_loop().time())
        await self.admit(arrival)

    async def _old_register(self, payload: bytes) -> bytes:
        """Answer the Register of v1alpha like a kubelet, which does not know this method."""
        self.old_calls += 1
        self.change_signal.notify()
        raise RpcError(StatusCode.UNIMPLEMENTED, "unknown service deviceplugin.Registration")

    async def admit(self, arrival: Arrival) -> None:
        """Admit a plugin, however it came; raises the `RpcError` for the answer."""
        behavior = self.behavior
        self.arrivals.append(arrival)
        self.change_signal.notify()
        await self._reception.receive(arrival, behavior)
        session = arrival.session
        assert session
        self._sessions.append(session)
        self.plugins[arrival.resource] = session
        if behavior.unopened != arrival.resource:
            session.stream = session.open_stream()
        arrival.accepted_at = asyncio.get_running_loop().time()
        self.change_signal.notify()

    # ------------------------------------------------------------ faults

    async def restart(
        self,
        *,
        wipe: Wipe = "everything",
        away: float = 0,
        wiped_early: float = 0,
        refusing: float = 0,
    ) -> None:
        """Stop, and after `away` seconds clean the plugin directory as `wipe` says and start again.

        A kubelet cleans the directory when it starts. `wiped_early` is the number of seconds before
        the start at which somebody else cleans it. `refusing` is an argument of `start`.
        """
        await self.stop(leave_socket=True)
        await asyncio.sleep(away - wiped_early)
        wipe_plugin_directory(self.kubelet_socket, wipe)
        await asyncio.sleep(wiped_early)
        await self.start(refusing=refusing)

    def remove_plugin_sockets(self) -> list[Path]:
        """Remove the sockets of all registered plugins, and no other file; return their paths."""
        removed = sorted({session.socket for session in self.plugins.values()})
        for path in removed:
            path.unlink(missing_ok=True)
        return removed

    @contextlib.contextmanager
    def behaving(self, behavior: RegisterBehavior) -> Iterator[None]:
        """Answer Register as `behavior` says until the end of `with`."""
        before, self.behavior = self.behavior, behavior
        try:
            yield
        finally:
            self.behavior = before

    # ------------------------------------------------------------ looking

    def accepted(self, since: float = 0) -> dict[str, Arrival]:
        """Return the last accepted arrival of each resource, at or after the loop time `since`."""
        return {each.resource: each for each in self.arrivals if each.is_accepted(since)}

    def devices(self) -> Iterator[tuple[str, ReportedDevice]]:
        """Yield the resource and the device of all devices that are healthy now."""
        for resource, session in self.plugins.items():
            for device in session.latest.devices if session.latest else ():
                if device.health == Health.HEALTHY:
                    yield resource, device

    def sockets(self) -> list[Path]:
        """Return all sockets in the plugin directory except kubelet.sock."""
        paths = [self.socket_dir / name for name in names(self.socket_dir)]
        return [path for path in paths if _is_plugin_socket(path)]


def wipe_plugin_directory(kubelet_socket: Path, wipe: Wipe) -> None:
    """Remove from the plugin directory what a starting kubelet removes, always kubelet.sock."""
    if wipe == "nothing":
        kubelet_socket.unlink(missing_ok=True)
    else:
        clean_plugin_directory(kubelet_socket.parent, every_file=wipe == "everything")


def _is_plugin_socket(path: Path) -> bool:
    if path.name == KUBELET_SOCKET_NAME:
        return False
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
