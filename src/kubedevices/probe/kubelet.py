"""`Probe`: a kubelet's two directories, kubelet.sock, and everything that can happen to them.

Every fault is one method, named after what happens on a node. Nothing a plugin does raises here;
`arrivals` and the sessions tell what it did.
"""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from kubedevices.allocation import RegisterRequest
from kubedevices.errors import RpcError, SocketInUse, StatusCode
from kubedevices.kubelet_api.services import registration_methods
from kubedevices.node.arrival.plugin_directory import accepts_connections, clean_plugin_directory
from kubedevices.probe.arrival import LIKE_A_KUBELET, Arrival, RegisterBehavior
from kubedevices.probe.change_signal import ChangeSignal
from kubedevices.probe.reception import Reception, TimedCall, by_the_clock
from kubedevices.probe.watcher import RegistryWatcher
from kubedevices.socket_paths import KUBELET_SOCKET_NAME
from kubedevices.wire.unix_grpc import GrpcServer, UnaryMethod
from kubedevices.wire.unix_socket import move_into_place, temporary_name

if TYPE_CHECKING:
    from kubedevices.probe.session import PluginSession

Wipe = Literal["everything", "sockets", "nothing"]

OLD_REGISTER = "/deviceplugin.Registration/Register"
"""How plugins of v1alpha register; no kubelet has served it for years."""


class Probe:
    """A kubelet in `socket_dir` that does what it is told. An async context manager: it stops.

    `outside` turns a path as plugins see it into ours, where they see another file system; `ask`
    asks a plugin within a limit.
    """

    def __init__(
        self,
        socket_dir: Path,
        registry_dir: Path | None = None,
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
        self.old_calls = 0  # of Register in v1alpha
        self.listening_since = 0.0
        self._reception = Reception(
            socket_dir, self.change_signal, dial_limit=dial_limit, outside=outside, ask=ask
        )
        self._server: GrpcServer | None = None
        self._sessions: list[PluginSession] = []
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
        """Whether plugins can reach us."""
        return self._server is not None

    # ------------------------------------------------------------ what kubelets do

    async def start(self, *, refusing: float = 0) -> None:
        """Listen; kubelet.sock appears ready, as a new file. Raises `CannotAsk`.

        A real kubelet binds and listens in two steps; `refusing` is how long that takes, in s.
        """
        if accepts_connections(self.kubelet_socket):
            raise SocketInUse(str(self.kubelet_socket), "a kubelet runs here; nothing was touched")
        if refusing:
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.bind(str(self.kubelet_socket))
                await asyncio.sleep(refusing)
        unfinished = temporary_name(self.kubelet_socket)
        methods = {**registration_methods(self), OLD_REGISTER: UnaryMethod(self._old_register)}
        server = GrpcServer(methods, name="probe")
        await server.start(unfinished)
        # By us, so that the server leaves the file alone when it stops: a kubelet does.
        if not refusing:
            self.kubelet_socket.unlink(missing_ok=True)
        move_into_place(unfinished, self.kubelet_socket)
        self._server = server
        self.listening_since = asyncio.get_running_loop().time()
        if self._watcher:
            self._watcher.start()

    async def stop(self, *, leave_socket: bool = False) -> None:
        """End like a process: every connection is gone; a real kubelet leaves its socket file."""
        if self._watcher:
            await self._watcher.stop()
        server, self._server = self._server, None
        if server:
            await server.stop()
            if not leave_socket:
                self.kubelet_socket.unlink(missing_ok=True)
        await self.drop_connections()

    async def drop_connections(self) -> None:
        """Hang up on every plugin; they are forgotten until they register again."""
        sessions, self._sessions = self._sessions, []
        self.plugins.clear()
        for session in sessions:
            await session.close()

    async def register(self, request: RegisterRequest) -> None:
        """Answer Register; called by the server."""
        arrival = Arrival(request, asyncio.get_running_loop().time())
        await self.admit(arrival)

    async def _old_register(self, payload: bytes) -> bytes:
        """Answer the Register of v1alpha as kubelets do, which do not know it."""
        self.old_calls += 1
        self.change_signal.notify()
        raise RpcError(StatusCode.UNIMPLEMENTED, "unknown service deviceplugin.Registration")

    async def admit(self, arrival: Arrival) -> None:
        """Receive a plugin, however it came; raises the `RpcError` to answer with."""
        behavior = self.behavior
        self.arrivals.append(arrival)
        self.change_signal.notify()
        await self._reception.receive(arrival, behavior)
        session = arrival.session
        assert session
        self._sessions.append(session)
        self.plugins[arrival.resource] = session
        if behavior.opens_stream and behavior.unopened != arrival.resource:
            session.stream = session.open_stream()
        arrival.accepted_at = asyncio.get_running_loop().time()
        self.change_signal.notify()

    # ------------------------------------------------------------ what happens to them

    async def restart(
        self, *, wipe: Wipe = "everything", away: float = 0, refusing: float = 0
    ) -> None:
        """Die, stay away, and come back to a directory that was cleaned meanwhile, as told.

        A kubelet up to 1.32 wipes everything but its checkpoint, a newer one only sockets; nothing
        is wiped when only kubelet.sock gets replaced.
        """
        await self.stop(leave_socket=True)
        await asyncio.sleep(away / 2)
        self.wipe(wipe)
        await asyncio.sleep(away / 2)
        await self.start(refusing=refusing)

    def wipe(self, wipe: Wipe) -> None:
        """Clean the plugin directory, kubelet.sock included."""
        if wipe == "nothing":
            self.kubelet_socket.unlink(missing_ok=True)
        else:
            clean_plugin_directory(self.socket_dir, every_file=wipe == "everything")

    async def replace_socket(self) -> None:
        """Come back with a new kubelet.sock, the plugins' sockets untouched."""
        await self.restart(wipe="nothing")

    async def cancel_streams(self) -> None:
        """Hang up on the plugins while every socket stays: what a kubelet does by mistake."""
        await self.drop_connections()

    def remove_plugin_sockets(self) -> list[Path]:
        """Remove the sockets of all registered plugins, nothing else."""
        removed = sorted({session.socket for session in self.plugins.values()})
        for path in removed:
            path.unlink(missing_ok=True)
        return removed

    @contextlib.contextmanager
    def behaving(self, behavior: RegisterBehavior) -> Iterator[None]:
        """Answer Register in another behavior for a while."""
        before, self.behavior = self.behavior, behavior
        try:
            yield
        finally:
            self.behavior = before

    # ------------------------------------------------------------ looking

    def accepted(self, since: float = 0) -> dict[str, Arrival]:
        """Return the last accepted arrival of each resource; `since` is a time of the loop."""
        return {each.resource: each for each in self.arrivals if each.is_accepted(since)}

    def sockets(self) -> list[Path]:
        """Return the sockets in the directory that are not the kubelet's."""
        return [path for path in sorted(self.socket_dir.iterdir()) if _is_plugin_socket(path)]


def _is_plugin_socket(path: Path) -> bool:
    if path.name == KUBELET_SOCKET_NAME:
        return False
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
