"""The steps between Register and its answer, in the order of a kubelet: dial, then options.

A kubelet refuses a plugin at its first mistake. The probe records the mistake in the `Arrival` and
continues as far as possible, so that one mistake does not hide others.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from kubedevices.errors import DialError, RpcError, StatusCode, WireError
from kubedevices.host import deadlines
from kubedevices.kubelet_api.convert import EMPTY
from kubedevices.kubelet_api.services import GET_DEVICE_PLUGIN_OPTIONS
from kubedevices.testing.kubelet.arrival import DIAL_FAILED, GAVE_UP, Arrival, RegisterBehavior
from kubedevices.testing.kubelet.change_signal import ChangeSignal
from kubedevices.testing.kubelet.raw_http2 import RawConnection
from kubedevices.testing.kubelet.session import PluginSession
from kubedevices.wire.unix_grpc import GrpcChannel

T = TypeVar("T")

_REDIAL = 0.02  # seconds between two dials


class TimedCall(Protocol):
    """Makes a call to a plugin with a limit in seconds: of the clock, or own time of the plugin."""

    async def __call__(self, attempt: Callable[[float], Awaitable[T]], limit: float) -> T:
        """Return what `attempt(seconds)` returns; raises its `WireError`."""


async def by_the_clock(attempt: Callable[[float], Awaitable[T]], limit: float) -> T:
    """Make one call; its limit is in seconds of the clock."""
    return await attempt(limit)


@dataclass(frozen=True)
class Reception:
    """Does the steps of each registration for one probe."""

    _socket_dir: Path
    _change_signal: ChangeSignal
    _dial_limit: float
    _outside: Callable[[str], Path]
    _ask: TimedCall

    async def receive(self, arrival: Arrival, behavior: RegisterBehavior) -> None:
        """Do the steps of a kubelet before it answers Register; raises the `RpcError` to answer."""
        loop = asyncio.get_running_loop()
        try:
            if behavior.on_arrival:
                behavior.on_arrival(arrival)
            if behavior.refusal:
                raise RpcError(StatusCode.UNKNOWN, behavior.refusal)
            await self._connect(arrival, behavior)
            if behavior.delay:
                await asyncio.sleep(max(arrival.at + behavior.delay - loop.time(), 0))
        except RpcError as error:
            arrival.refused_with = error.message
            raise
        except asyncio.CancelledError:
            arrival.gave_up_after = loop.time() - arrival.at
            raise
        finally:
            if arrival.gave_up_after is None:
                arrival.answered_at = loop.time()
            elif arrival.session:
                await arrival.session.close()
            self._change_signal.notify()

    async def _connect(self, arrival: Arrival, behavior: RegisterBehavior) -> None:
        limit = self._dial_limit if behavior.dial_limit is None else behavior.dial_limit
        try:
            channel = await self._ask(lambda limit: self._dial(arrival, limit), limit)
        except DialError as error:
            raise RpcError(StatusCode.UNKNOWN, DIAL_FAILED) from error
        arrival.dial_took = asyncio.get_running_loop().time() - arrival.at
        assert arrival.socket
        session = PluginSession(arrival.resource, arrival.socket, channel, self._change_signal)
        arrival.session = session
        try:
            session.options = await self._ask(
                lambda limit: session.client.get_device_plugin_options(timeout=limit),
                self._dial_limit,
            )
        except WireError as error:
            arrival.options_problem = str(error)
            arrival.needs_other_authority = await self._try_other_authority(arrival.socket)
        except asyncio.CancelledError:
            arrival.options_problem = GAVE_UP
            raise

    async def _dial(self, arrival: Arrival, limit: float) -> GrpcChannel:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        while True:
            arrival.socket = self._find_socket(arrival)
            arrival.dials += 1
            try:
                left = max(deadline - loop.time(), 0.001)
                return await GrpcChannel.dial(arrival.socket, timeout=left)
            except DialError as error:
                arrival.dial_problem = error.reason
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_REDIAL)

    def _find_socket(self, arrival: Arrival) -> Path:
        """Return the socket of the plugin, also if the endpoint is wrong for a kubelet."""
        endpoint = arrival.request.endpoint
        if arrival.found_at:
            path = self._outside(endpoint) if endpoint else arrival.found_at
            return path if path.exists() else arrival.found_at
        direct = Path(f"{self._socket_dir}/{endpoint}")
        return direct if direct.exists() else self._socket_dir / (Path(endpoint).name or "-")

    async def _try_other_authority(self, socket: Path) -> str:
        """Return an `:authority` that the plugin answers, `""` if this was not the problem."""
        try:
            connection = await RawConnection.open(socket)
        except OSError:
            return ""
        try:
            answer = connection.call(GET_DEVICE_PLUGIN_OPTIONS, EMPTY, authority=str(socket))
            await deadlines.within(self._dial_limit, answer.ended.wait())
        finally:
            connection.hang_up()
        return str(socket) if answer.grpc_status == StatusCode.OK else ""
