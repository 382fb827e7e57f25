"""One Register call: makes it, ends it when its answer no longer matters, judges the answer.

When to call, and what to do then, is the registrar's decision.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

from kubedevices.allocation import API_VERSION, RegisterRequest
from kubedevices.errors import DialError, RegistrationRefused, RpcError, StatusCode, WireError
from kubedevices.kubelet_api.clients import RegistrationClient
from kubedevices.plugin.server import PluginServer
from kubedevices.plugin.timing import Timing
from kubedevices.wire.unix_grpc import GrpcChannel

_TRANSIENT = frozenset({StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED})
_ALREADY_CONNECTED = "device plugin already connected"
_NOT_REFUSED = (
    "failed to dial device plugin",
    "failed to get device plugin options",
    _ALREADY_CONNECTED,
)
"""Beginnings of a kubelet's errors that are no refusal: it could not reach us in time, or it still
has our last registration."""

_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM})
_NOBODY_THERE = frozenset({errno.ENOENT, errno.ECONNREFUSED})


class KubeletAway(DialError):
    """There is no kubelet now: it has not started, has ended, or is just being replaced."""


class RegisterCall:
    """Registers `server` at `kubelet_socket`, as what is served at `socket`."""

    def __init__(
        self, server: PluginServer, socket: Path, kubelet_socket: Path, timing: Timing
    ) -> None:
        self._server, self._socket = server, socket
        self.kubelet_socket, self._timing = kubelet_socket, timing

    async def attempt(
        self,
        is_stale: Callable[[], bool],
        wake: asyncio.Event,
        wait: Callable[[], Awaitable[None]],
    ) -> WireError | None:
        """Call once. Returns None, or an error that may pass soon; raises lasting errors.

        The call ends early once `is_stale`, which is asked after each `wait`: its answer means
        nothing then. `wake` ends a `wait`.
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
            if is_stale():
                return KubeletAway(path, str(error))
            if error.code in _TRANSIENT or error.message.startswith(_NOT_REFUSED):
                return error
            raise RegistrationRefused(self._server.resource, error) from error
        except WireError as error:
            if isinstance(error, DialError) and error.errno in _NO_PERMISSION:
                raise
            if isinstance(error, DialError) and (error.errno in _NOBODY_THERE or is_stale()):
                return KubeletAway(path, error.reason, error.errno)
            return error
        except OSError as error:  # out of file descriptors, for example
            return DialError(path, error.strerror or str(error))
        finally:
            call.cancel()
            await asyncio.wait({call})
        return None

    async def register(self, timeout: float) -> None:
        """Call Register; raises `WireError` or `OSError` if it does not succeed."""
        request = RegisterRequest(
            version=API_VERSION,
            endpoint=self._socket.name,
            resource_name=self._server.resource,
            options=self._server.options,
        )
        limit = min(timeout, self._timing.dial_deadline)
        channel = await GrpcChannel.dial(self.kubelet_socket, timeout=limit)
        async with channel:
            await RegistrationClient(channel).register(request, timeout=timeout)


def is_known_already(problem: WireError) -> bool:
    """Whether the kubelet tells instances apart and has this instance already."""
    return isinstance(problem, RpcError) and problem.message.startswith(_ALREADY_CONNECTED)
