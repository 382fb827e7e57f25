"""One registered plugin as the probe knows it: its connection, its calls, every list it ever sent.

Like a kubelet's endpoint, except that it forgives and forgets nothing: what a plugin does wrong is
written down here, and judged elsewhere.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kubedevices.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerPreferredRequest,
    PluginOptions,
    PreferredAllocationRequest,
    PreStartContainerRequest,
)
from kubedevices.device import Health, ReportedDevice
from kubedevices.errors import WireError
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.kubelet_api.convert import EMPTY
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.kubelet_api.services import LIST_AND_WATCH
from kubedevices.probe.change_signal import ChangeSignal
from kubedevices.wire.unix_grpc import GrpcChannel


class ReceivedList(NamedTuple):
    """One message of a stream: when it came, how large it was, what it said."""

    at: float
    size: int
    devices: tuple[ReportedDevice, ...]

    @property
    def healthy(self) -> tuple[str, ...]:
        """The IDs a kubelet could hand out."""
        return tuple(each.id for each in self.devices if each.health == Health.HEALTHY)

    @property
    def content(self) -> frozenset[ReportedDevice]:
        """What it says, whatever the order."""
        return frozenset(self.devices)


class ListStream:
    """One open ListAndWatch, read as fast as it comes."""

    def __init__(self, channel: GrpcChannel, change_signal: ChangeSignal) -> None:
        self._channel, self._change_signal = channel, change_signal
        self.lists: list[ReceivedList] = []
        self.opened_at = asyncio.get_running_loop().time()
        self.end = ""
        self._reading = asyncio.create_task(self._read(), name="probe's ListAndWatch")

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return not self._reading.done()

    @property
    def latest(self) -> ReceivedList | None:
        """The last list, if there was any."""
        return self.lists[-1] if self.lists else None

    async def first(self, timeout: float) -> ReceivedList | None:
        """Wait for the first list."""
        await self._change_signal.until(lambda: self.lists or not self.is_open, timeout)
        return self.lists[0] if self.lists else None

    async def cancel(self) -> None:
        """End this call, nothing else."""
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
            # Later, when this task counts as done: waiters look at `is_open`.
            loop.call_soon(self._change_signal.notify)


class PluginSession:
    """A dialled plugin; `stream` is the one a kubelet would have."""

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
        """Whether the connection still stands."""
        return not self.channel.closed.is_set()

    @property
    def lists(self) -> Sequence[ReceivedList]:
        """Every list of the kubelet's own stream."""
        return self.stream.lists if self.stream else ()

    @property
    def latest(self) -> ReceivedList | None:
        """The last of them."""
        return self.stream.latest if self.stream else None

    def open_stream(self) -> ListStream:
        """Open one more ListAndWatch on this connection."""
        return ListStream(self.channel, self._change_signal)

    async def dial_again(self, timeout: float) -> "PluginSession":
        """Return a second connection to the same socket; raises `DialError`."""
        channel = await GrpcChannel.dial(self.socket, timeout=timeout)
        return PluginSession(self.resource, self.socket, channel, self._change_signal)

    async def allocate(self, *containers: Iterable[str], timeout: float) -> AllocateResponse:
        """Ask for devices, one list of IDs per container; raises `RpcError`."""
        request = AllocateRequest(tuple(ContainerAllocateRequest(tuple(ids)) for ids in containers))
        return await self.client.allocate(request, timeout=timeout)

    async def prefer(
        self, available: Iterable[str], must_include: Iterable[str], size: int, *, timeout: float
    ) -> tuple[Sequence[str], ...]:
        """Ask which devices it would rather give away; raises `RpcError`."""
        container = ContainerPreferredRequest(tuple(available), tuple(must_include), size)
        request = PreferredAllocationRequest((container,))
        return (await self.client.get_preferred_allocation(request, timeout=timeout)).containers

    async def pre_start(self, ids: Iterable[str], *, timeout: float) -> None:
        """Say that the container with these devices starts; raises `RpcError`."""
        request = PreStartContainerRequest(tuple(ids))
        await self.client.pre_start_container(request, timeout=timeout)

    async def close(self) -> None:
        """Hang up, as a kubelet does when it ends: without cancelling anything before."""
        # The connection before the stream: a kubelet that dies cancels no call.
        await self.channel.close()
        if self.stream:
            await self.stream.cancel()
