"""A socket at which simulated devices take steps, such as a new health: service and client.

The messages are JSON over gRPC. Only the owner of the socket can connect, as with a node's control
socket.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubedevices.errors import KubedevicesError, RpcError, StatusCode, UsageError
from kubedevices.kubelet_api.clients import JsonClient
from kubedevices.kubelet_api.services import json_methods
from kubedevices.values.socket_paths import check_socket_path
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer

SERVICE = "kubedevices.simulator.v1.Control"
DEADLINE = 10.0
"""Seconds that a client waits for the simulator."""


class StepControl:
    """Serves `take_step` and `describe` at a socket; a bad step raises ValueError."""

    def __init__(
        self,
        socket: Path,
        take_step: Callable[[Mapping[str, Any]], int],
        describe: Callable[[], dict[str, Any]],
    ) -> None:
        self._socket = check_socket_path(socket.absolute(), "choose a shorter --control-socket")
        self._take_step, self._describe = take_step, describe
        self._server = GrpcServer(
            json_methods(SERVICE, {"Step": self._step, "Devices": self._devices}, {}),
            name="step control",
        )

    async def start(self) -> None:
        """Bind the socket and listen; raises `CannotAsk`."""
        await self._server.start(self._socket, by_rename=True)

    async def stop(self) -> None:
        """End every connection and remove the socket."""
        await self._server.stop()

    async def _step(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"devices": self._take_step(request)}
        except (ValueError, UsageError) as error:
            raise RpcError(StatusCode.INVALID_ARGUMENT, str(error)) from error
        except KubedevicesError as error:
            raise RpcError(StatusCode.INTERNAL, str(error)) from error

    async def _devices(self, _: dict[str, Any]) -> dict[str, Any]:
        return self._describe()


async def tell(socket: Path, step: dict[str, Any]) -> int:
    """Send `step` to a running simulator; return how many devices it concerns."""
    answer = await _ask(socket, "Step", step)
    return int(answer["devices"])


async def list_simulated(socket: Path) -> dict[str, Any]:
    """Return every device of a running simulator: {resource: {ID: health}}."""
    return await _ask(socket, "Devices", {})


async def _ask(socket: Path, method: str, request: dict[str, Any]) -> dict[str, Any]:
    channel = await GrpcChannel.dial(socket, timeout=DEADLINE)
    try:
        return await JsonClient(channel, SERVICE).call(method, request, timeout=DEADLINE)
    except RpcError as error:
        if error.code is StatusCode.INVALID_ARGUMENT:
            raise UsageError(error.message) from error
        raise KubedevicesError(f"{socket}: {error.message}") from error
    finally:
        await channel.close()
