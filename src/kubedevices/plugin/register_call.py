"""Makes one Register call, ends the call when its answer no longer matters, judges the answer.

`registration_loop` decides when to call and what to do with the result.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubedevices.errors import DialError, RegistrationRefused, RpcError, StatusCode, WireError
from kubedevices.kubelet_api.clients import RegistrationClient
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.timing import Timing
from kubedevices.values.allocation import API_VERSION, RegisterRequest
from kubedevices.wire.unix_grpc import GrpcChannel, Peer

_TRANSIENT = frozenset(
    {
        StatusCode.UNAVAILABLE,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.CANCELLED,
        StatusCode.RESOURCE_EXHAUSTED,  # a limit of the kubelet or of its plugins
    }
)
_ALREADY_CONNECTED = "device plugin already connected"
_NOT_REFUSED = (
    "failed to dial device plugin",
    "failed to get device plugin options",
    _ALREADY_CONNECTED,
)
"""How errors of the kubelet begin that are no refusal.

The kubelet could not reach the plugin in time, or it still has the last registration.
"""

_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM})
_NOBODY_LISTENS = frozenset({errno.ENOENT, errno.ECONNREFUSED})


def ignore_peer(_: Peer) -> None:
    """Take the process that answered, and do nothing."""


class KubeletAway(DialError):
    """No kubelet listens now: it has not started, has ended, or is about to be replaced."""


class RegisterCall:
    """Registers the resource of `server` at `kubelet_socket`; the plugin serves at `socket`."""

    def __init__(
        self, server: PluginServer, socket: Path, kubelet_socket: Path, timing: Timing
    ) -> None:
        self._server, self._socket = server, socket
        self.kubelet_socket, self._timing = kubelet_socket, timing
        self.dialled: Callable[[Peer], object] = ignore_peer
        """Called with the process that listens at kubelet.sock, before it calls the plugin."""

    async def attempt(
        self,
        is_stale: Callable[[], bool],
        wake: asyncio.Event,
        wait: Callable[[], Awaitable[None]],
    ) -> WireError | None:
        """Call Register once. Return None, or an error that may pass soon; raise a lasting error.

        The call ends early when `is_stale()` is true, because then its answer means nothing.
        `is_stale` is called after each `wait()`. The end of the call sets `wake`, which ends a
        `wait()`. Raises `RegistrationRefused`, or `DialError` if permissions are missing.
        """
        call = asyncio.create_task(
            self.register(self._timing.register_deadline), name=f"register {self._server.resource}"
        )
        call.add_done_callback(lambda _: wake.set())
        path = str(self.kubelet_socket)
        try:
            while not call.done():
                if is_stale():
                    return KubeletAway(path, "a socket changed during Register")
                await wait()
            call.result()
        except RpcError as error:
            if is_stale():  # an error of a kubelet that is being replaced says nothing
                return KubeletAway(path, str(error))
            if error.code in _TRANSIENT or error.message.startswith(_NOT_REFUSED):
                return error
            raise RegistrationRefused(self._server.resource, error) from error
        except WireError as error:
            if isinstance(error, DialError) and error.errno in _NO_PERMISSION:
                raise
            if isinstance(error, DialError) and (error.errno in _NOBODY_LISTENS or is_stale()):
                return KubeletAway(path, error.reason, error.errno)
            return error
        except OSError as error:  # out of file descriptors, for example
            return DialError(path, error.strerror or str(error))
        finally:
            call.cancel()
            await asyncio.wait({call})
        return None

    async def register(self, timeout: float) -> None:
        """Call Register within `timeout` seconds; raises `WireError` or `OSError` if it fails."""
        request = RegisterRequest(
            version=API_VERSION,
            endpoint=self._socket.name,
            resource_name=self._server.resource,
            options=self._server.options,
        )
        limit = min(timeout, self._timing.dial_deadline)
        channel = await GrpcChannel.dial(self.kubelet_socket, timeout=limit)
        async with channel:
            self.dialled(channel.peer)
            await RegistrationClient(channel).register(request, timeout=timeout)


def is_known_already(problem: WireError) -> bool:
    """Whether a kubelet that tells instances apart says that it has this instance already."""
    return isinstance(problem, RpcError) and problem.message.startswith(_ALREADY_CONNECTED)
