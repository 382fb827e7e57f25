"""The Registration service on kubelet.sock: how a plugin arrives.

Checks what a plugin says and hands resource and socket on; connecting is the device manager's.
`kubelet.sock` appears by rename of a socket that already listens, because plugins that watch the
directory dial at once, and some die when they are refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubedevices.allocation import API_VERSION, RegisterRequest
from kubedevices.errors import (
    BadEndpoint,
    BadResourceName,
    BadSocketPath,
    CannotAsk,
    ListenFailed,
    RegistrationError,
    SocketInUse,
    SocketPathTooLong,
    UnsupportedVersion,
)
from kubedevices.kubelet_api.services import registration_methods
from kubedevices.metrics import NO_METRICS, OTHER, REGISTRATIONS, Metrics
from kubedevices.resource_name import is_resource_name
from kubedevices.socket_paths import KUBELET_SOCKET_NAME, SHORTER_SOCKET_DIR, check_socket_path
from kubedevices.wire.unix_grpc import GrpcServer

logger = logging.getLogger(__name__)

Connect = Callable[[str, Path], Awaitable[None]]
"""Takes resource and socket; returns when the plugin answered; raises `RegistrationError`."""

Refused = Callable[[RegisterRequest, RegistrationError], None]
"""Told of every plugin that was not accepted, and why."""

# Bytes of a file name on Linux.
_NAME_MAX = 255
_ACCEPTED_LIMIT = 1000

_LONGEST_TEXT = 1024
"""Characters; no version, name or endpoint is so long, and longer texts only cost memory."""


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
        # By resource and endpoint, registrations whose caller has hung up; `register` says why they
        # go on.
        self._abandoned: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def is_serving(self) -> bool:
        """Whether plugins can register: started, not stopped, and the socket file is still ours."""
        return self._is_serving and self._server.owns_socket()

    async def start(self) -> None:
        """Listen; raises `CannotAsk`, of which `ListenFailed` has the kubelet's words."""
        try:
            await self._server.start(self.socket, by_rename=True)
        except (SocketInUse, SocketPathTooLong):
            raise
        except CannotAsk as error:
            raise ListenFailed(str(error)) from error
        self._is_serving = True

    async def stop(self) -> None:
        """End every connection and remove the socket; harmless when repeated."""
        self._is_serving = False
        # After `_is_serving`: calls that this cancels belong to a stop, and must not go on alone.
        await self._server.stop()
        abandoned = [*self._abandoned.values()]
        for task in abandoned:
            task.cancel()
        await asyncio.gather(*abandoned, return_exceptions=True)

    async def register(self, request: RegisterRequest) -> None:
        """Check `request` and connect to the plugin; the reply says that both are done.

        If the caller hangs up, the registration goes on, as in a kubelet: the plugin is registered
        all the same. If the plugin died, the node reports at once what the plugin did last. A
        second call for the same resource and endpoint replaces the abandoned registration.

        `request.options` is ignored, as the kubelet does: what a plugin can do is asked of it.
        """
        request = _bounded(request)
        key = request.resource_name, request.endpoint
        if abandoned := self._abandoned.pop(key, None):
            abandoned.cancel()
        task = asyncio.create_task(self._take(request), name=f"registration of {key[0]}")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._is_serving:  # the caller has left
                self._go_on_alone(key, task)
            else:
                task.cancel()
            raise

    def _go_on_alone(self, key: tuple[str, str], task: "asyncio.Task[None]") -> None:
        def forget(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                task.exception()  # a refusal, which has been told
            if self._abandoned.get(key) is task:
                del self._abandoned[key]

        self._abandoned[key] = task
        task.add_done_callback(forget)

    async def _take(self, request: RegisterRequest) -> None:
        try:
            if request.version != API_VERSION:
                raise UnsupportedVersion(request.version, API_VERSION)
            if not is_resource_name(request.resource_name):
                raise BadResourceName(request.resource_name)
            await self._connect(request.resource_name, self.plugin_socket(request.endpoint))
            if len(self._accepted) < _ACCEPTED_LIMIT:
                self._accepted.add(request.resource_name)
            self._count(request)
        except RegistrationError as error:
            self._count(request)
            logger.info("%r at %r is refused: %s", request.resource_name, request.endpoint, error)
            if self._refused:
                self._refused(request, error)
            raise

    def _count(self, request: RegisterRequest) -> None:
        """Count a call that is over: by its resource, if a plugin of it was ever accepted.

        Anybody may call with any name, and a counter with a name stays for ever.
        """
        name = request.resource_name
        self._metrics.count(REGISTRATIONS, name if name in self._accepted else OTHER)

    def plugin_socket(self, endpoint: str) -> Path:
        """Return the path meant by `endpoint`; raises `BadEndpoint`.

        The kubelet joins and cleans the path, so that `..` can leave the directory.
        """
        directory = self.socket.parent
        is_name = endpoint not in ("", ".", "..") and not {"/", "\0"} & set(endpoint)
        if not is_name or len(endpoint.encode()) > _NAME_MAX:
            raise BadEndpoint(endpoint)
        # For a clear message only: the dial follows no links either. A link in a directory that
        # every plugin pod may write to could lead to any socket of the host.
        if (directory / endpoint).is_symlink():
            raise BadEndpoint(endpoint, "it must be a socket, not a link to one")
        return directory / endpoint


def _bounded(request: RegisterRequest) -> RegisterRequest:
    """Return `request` with over-long texts cut off; such texts are refused later anyway."""
    return request._replace(
        version=_cut(request.version),
        endpoint=_cut(request.endpoint),
        resource_name=_cut(request.resource_name),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def registration_socket(socket_dir: Path) -> Path:
    """Return the path of kubelet.sock in `socket_dir`; raises `CannotAsk` if it is impossible."""
    path = socket_dir / KUBELET_SOCKET_NAME
    if not path.is_absolute():
        raise BadSocketPath(str(path))
    return check_socket_path(path, SHORTER_SOCKET_DIR)
