"""The Registration service on kubelet.sock: a plugin calls Register.

The service checks the request and passes resource and socket to the device manager, which connects
to the plugin. `kubelet.sock` appears by the rename of a socket that already listens, because
plugins that watch the directory dial at once, and some plugins exit if the dial is refused.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from kubedevices.errors import (
    BadEndpoint,
    BadResourceName,
    BadSocketPath,
    CannotAsk,
    ListenFailed,
    RegistrationError,
    RpcError,
    SocketInUse,
    SocketPathTooLong,
    StatusCode,
    TooManyPlugins,
    TooManyRegistrations,
    UnsupportedVersion,
)
from kubedevices.kubelet_api.services import registration_methods
from kubedevices.pages.metrics import NO_METRICS, OTHER, REGISTRATIONS, Metrics
from kubedevices.values.allocation import API_VERSION, RegisterRequest
from kubedevices.values.resource_name import is_resource_name
from kubedevices.values.socket_paths import (
    KUBELET_SOCKET_NAME,
    SHORTER_SOCKET_DIR,
    check_socket_path,
)
from kubedevices.wire.peers import Peer, PeerKey, Places
from kubedevices.wire.unix_grpc import CALLER, GrpcServer

logger = logging.getLogger(__name__)

Connect = Callable[[str, Path], Awaitable[None]]
"""Connects to the plugin of a resource at a socket; raises `RegistrationError`."""

Refused = Callable[[RegisterRequest, RegistrationError], None]
"""Called with each refused request and the reason."""

# Bytes of a file name on Linux.
_NAME_MAX = 255
_ACCEPTED_LIMIT = 1000

DIAL_LIMIT, DIALS_OF_PEER = 128, 64
"""Registrations in progress, in all and of one process. A plugin answers within milliseconds."""

AT_ONCE_OF_PEER = 4
"""Registrations of one process that get on at the same time."""

_LONGEST_TEXT = 1024
"""Characters. No version, name or endpoint is longer; longer texts only use memory."""


class RegistrationServer:
    """Serves `v1beta1.Registration` on `<socket_dir>/kubelet.sock`."""

    def __init__(
        self,
        socket_dir: Path,
        connect: Connect,
        *,
        refused: Refused | None = None,
        metrics: Metrics = NO_METRICS,
    ) -> None:
        self.socket = registration_socket(socket_dir)
        self._connect, self._refused = connect, refused
        self._metrics = metrics
        self._server = GrpcServer(registration_methods(self), name="kubelet.sock")
        self._is_serving = False
        self._accepted: set[str] = set()
        # Registrations whose plugins are dialled now: the newest get in, of each process.
        self._dials = Places[asyncio.Task[None]](DIAL_LIMIT, DIALS_OF_PEER, lambda _: 0)
        self._crowded_out: set[asyncio.Task[None]] = set()
        self._turns: dict[PeerKey, asyncio.Semaphore] = {}
        # Resource and endpoint → the registration of a caller that has hung up, see `register`.
        self._in_background: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def is_serving(self) -> bool:
        """Whether plugins can register: started, not stopped, and the socket file is still ours."""
        return self._is_serving and self._server.owns_socket()

    async def start(self) -> None:
        """Listen; raises `CannotAsk` (`ListenFailed` with the wording of the kubelet)."""
        try:
            await self._server.start(self.socket, by_rename=True)
        except (SocketInUse, SocketPathTooLong):
            raise
        except CannotAsk as error:
            raise ListenFailed(str(error)) from error
        self._is_serving = True

    async def stop(self) -> None:
        """End every connection and remove the socket. A second call does nothing."""
        self._is_serving = False
        # After `_is_serving = False`: `register` then knows that its call was cancelled by the stop
        # and not by its caller.
        await self._server.stop()
        tasks = [*self._in_background.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def register(self, request: RegisterRequest) -> None:
        """Check `request` and connect to the plugin; the answer is sent after both.

        If the caller hangs up, the registration continues in the background, as in the kubelet. If
        the plugin has died, the node reports the loss at once. A second call with the same resource
        and endpoint replaces the registration in the background.

        `request.options` is ignored, as in the kubelet, which asks the plugin for its options.
        """
        request = _bounded(request)
        key = request.resource_name, request.endpoint
        if earlier := self._in_background.pop(key, None):
            earlier.cancel()
        task = asyncio.create_task(self._take(request), name=f"registration of {key[0]}")
        self._give_place(task)
        try:
            await asyncio.shield(task)
        except (
            TooManyPlugins,
            TooManyRegistrations,
        ) as error:  # not for ever, so the plugin may try again
            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
        except asyncio.CancelledError:
            if self._is_serving:  # the caller has hung up
                self._continue_in_background(key, task)
            else:
                task.cancel()
            raise

    def _give_place(self, task: "asyncio.Task[None]") -> None:
        """Let `task` dial. A registration that hangs longest makes room, of the busiest process."""
        peer = CALLER.get()
        leaves = self._dials.enter(task, peer)

        def leave(task: asyncio.Task[None]) -> None:
            self._dials.leave(task)
            if not self._dials.count(peer):
                self._turns.pop(peer.key, None)

        task.add_done_callback(leave)
        if leaves is not None:
            self._crowded_out.add(leaves)
            leaves.add_done_callback(self._crowded_out.discard)
            leaves.cancel()

    def _continue_in_background(self, key: tuple[str, str], task: "asyncio.Task[None]") -> None:
        def forget(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                task.exception()  # a refusal, which was reported in `_take`
            if self._in_background.get(key) is task:
                del self._in_background[key]

        self._in_background[key] = task
        task.add_done_callback(forget)

    async def _take(self, request: RegisterRequest) -> None:
        try:
            if request.version != API_VERSION:
                raise UnsupportedVersion(request.version, API_VERSION)
            if not is_resource_name(request.resource_name):
                raise BadResourceName(request.resource_name)
            socket = self.plugin_socket(request.endpoint)
            async with self._turn(CALLER.get()):
                await self._connect(request.resource_name, socket)
            if len(self._accepted) < _ACCEPTED_LIMIT:
                self._accepted.add(request.resource_name)
            self._count(request)
        except asyncio.CancelledError:
            if asyncio.current_task() not in self._crowded_out:
                raise
            problem = TooManyRegistrations(request.resource_name, DIAL_LIMIT)
            self._refuse(request, problem)
            raise problem from None
        except RegistrationError as error:
            self._refuse(request, error)
            raise

    @contextlib.asynccontextmanager
    async def _turn(self, peer: Peer) -> AsyncIterator[None]:
        """Wait while many registrations of this process are under way.

        A process that floods us with registrations waits for itself, and others do not.
        """
        if not peer.is_known:
            yield
            return
        async with self._turns.setdefault(peer.key, asyncio.Semaphore(AT_ONCE_OF_PEER)):
            yield

    def _refuse(self, request: RegisterRequest, error: RegistrationError) -> None:
        self._count(request)
        logger.info("%r at %r is refused: %s", request.resource_name, request.endpoint, error)
        if self._refused:
            self._refused(request, error)

    def _count(self, request: RegisterRequest) -> None:
        """Count a call under its resource, if a plugin of the resource was accepted before.

        Other names are counted together: any process may call with any name, and a counter stays.
        """
        name = request.resource_name
        self._metrics.count(REGISTRATIONS, name if name in self._accepted else OTHER)

    def plugin_socket(self, endpoint: str) -> Path:
        """Return the path of the socket `endpoint`; raises `BadEndpoint`.

        The endpoint must be a file name. In the kubelet, `..` can lead out of the directory.
        """
        directory = self.socket.parent
        is_name = endpoint not in ("", ".", "..") and not {"/", "\0"} & set(endpoint)
        if not is_name or len(endpoint.encode()) > _NAME_MAX:
            raise BadEndpoint(endpoint)
        # Only for a clear message: the dial does not follow links. Every plugin pod may create a
        # link in the directory, and the link could lead to any socket of the host.
        if (directory / endpoint).is_symlink():
            raise BadEndpoint(endpoint, "it must be a socket, not a link to one")
        return directory / endpoint


def _bounded(request: RegisterRequest) -> RegisterRequest:
    """Return `request` with texts of a limited length. The checks refuse longer texts later."""
    return request._replace(
        version=_cut(request.version),
        endpoint=_cut(request.endpoint),
        resource_name=_cut(request.resource_name),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def registration_socket(socket_dir: Path) -> Path:
    """Return the path of kubelet.sock in `socket_dir`; raises `CannotAsk` if it is not usable."""
    path = socket_dir / KUBELET_SOCKET_NAME
    if not path.is_absolute():
        raise BadSocketPath(str(path))
    return check_socket_path(path, SHORTER_SOCKET_DIR)
