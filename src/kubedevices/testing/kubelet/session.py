"""One registered plugin, as the probe knows it: the connection, the calls, and all device lists.

This is like an endpoint of the kubelet, but it records all lists and all errors, and judges none.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kubedevices.errors import WireError
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.kubelet_api.convert import EMPTY
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.kubelet_api.services import LIST_AND_WATCH
from kubedevices.testing.kubelet.change_signal import ChangeSignal
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerPreferredRequest,
    PluginOptions,
    PreferredAllocationRequest,
    PreStartContainerRequest,
)
from kubedevices.values.device import Health, ReportedDevice
from kubedevices.wire.unix_grpc import GrpcChannel


class ReceivedList(NamedTuple):
    """One message of a stream: its time, its size in bytes, and its devices."""

    at: float
    size: int
    devices: tuple[ReportedDevice, ...]

    @property
    def healthy(self) -> tuple[str, ...]:
        """The IDs that a kubelet could allocate."""
        return tuple(each.id for each in self.devices if each.health == Health.HEALTHY)

    @property
    def content(self) -> frozenset[ReportedDevice]:
        """The devices without their order."""
        return frozenset(self.devices)


class ListStream:
    """One ListAndWatch call. A task reads its messages at once."""

    def __init__(self, channel: GrpcChannel, change_signal: ChangeSignal) -> None:
        self._channel, self._change_signal = channel, change_signal
        self.lists: list[ReceivedList] = []
        self.opened_at = asyncio.get_running_loop().time()
        self.end = ""
        self._reading = asyncio.create_task(self._read(), name="probe's ListAndWatch")

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended."""
        return not self._reading.done()

    @property
    def latest(self) -> ReceivedList | None:
        """The last list, None before the first."""
        return self.lists[-1] if self.lists else None

    async def cancel(self) -> None:
        """Cancel this call; the connection stays open."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        messages = self._channel.stream(LIST_AND_WATCH, EMPTY)
        try:
            async for message in messages:
                received = ReceivedList(loop.time(), len(message), device_list_from_wire(message))
                self.lists.append(received)
                self._change_signal.notify()
            self.end = "the plugin ended it without an error"
        except WireError as error:
            self.end = str(error)
        finally:
            await messages.aclose()
            # Not now but after this task is done: waiting tasks read `is_open`.
            loop.call_soon(self._change_signal.notify)


class PluginSession:
    """A connected plugin. `stream` is the ListAndWatch call that a kubelet makes."""

    def __init__(
        self, resource: str, socket: Path, channel: GrpcChannel, change_signal: ChangeSignal
    ) -> None:
        self.resource, self.socket = resource, socket
        self.channel, self._change_signal = channel, change_signal
        self.client = DevicePluginClient(channel)
        self.options = PluginOptions()
        self.stream: ListStream | None = None

    def __repr__(self) -> str:
        state = "open" if self.is_alive else "over"
        return f"<PluginSession {self.resource} at {self.socket} {state}>"

    @property
    def is_alive(self) -> bool:
        """Whether the connection is open."""
        return not self.channel.closed.is_set()

    @property
    def lists(self) -> Sequence[ReceivedList]:
        """All lists of the kubelet's stream."""
        return self.stream.lists if self.stream else ()

    @property
    def latest(self) -> ReceivedList | None:
        """The last list of the kubelet's stream, None if there is none."""
        return self.stream.latest if self.stream else None

    def open_stream(self) -> ListStream:
        """Make one more ListAndWatch call on this connection."""
        return ListStream(self.channel, self._change_signal)

    async def dial_again(self, timeout: float) -> "PluginSession":
        """Open a second connection to the same socket; raises `DialError`."""
        channel = await GrpcChannel.dial(self.socket, timeout=timeout)
        return PluginSession(self.resource, self.socket, channel, self._change_signal)

    async def allocate(self, *containers: Iterable[str], timeout: float) -> AllocateResponse:
        """Call Allocate with one list of IDs per container; raises `RpcError`."""
        request = AllocateRequest(tuple(ContainerAllocateRequest(tuple(ids)) for ids in containers))
        return await self.client.allocate(request, timeout=timeout)

    async def prefer(
        self, available: Iterable[str], must_include: Iterable[str], size: int, *, timeout: float
    ) -> tuple[Sequence[str], ...]:
        """Call GetPreferredAllocation for one container; raises `RpcError`."""
        container = ContainerPreferredRequest(tuple(available), tuple(must_include), size)
        request = PreferredAllocationRequest((container,))
        return (await self.client.get_preferred_allocation(request, timeout=timeout)).containers

    async def pre_start(self, ids: Iterable[str], *, timeout: float) -> None:
        """Call PreStartContainer for a container with these devices; raises `RpcError`."""
        request = PreStartContainerRequest(tuple(ids))
        await self.client.pre_start_container(request, timeout=timeout)

    async def close(self) -> None:
        """Close the connection, as the end of a kubelet does: without cancelling calls before."""
        # The connection before the stream: a kubelet that is killed cancels no call.
        await self.channel.close()
        if self.stream:
            await self.stream.cancel()
