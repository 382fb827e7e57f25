"""One connected plugin instance: its calls, its stream of device lists, and its end.

An endpoint has one socket and one resource. The inventory decides what a list changes, the endpoint
table which instance is the current one. One plugin cannot disturb another plugin: every call has a
deadline, and every stream has a task of its own.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from kubedevices.errors import (
    DialError,
    DialPluginFailed,
    EndpointStopped,
    ListsUseTooMuch,
    NoContainerResponse,
    PluginOptionsFailed,
    PreferredAllocationFailed,
    PreStartFailed,
    RegistrationError,
    RpcError,
    StatusCode,
    WireError,
)
from kubedevices.host import deadlines
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.kubelet_api.device_lists import DeviceListReader
from kubedevices.node.arrival.list_memory import KeptList, PluginLists
from kubedevices.node.arrival.reopening import Reopening
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from kubedevices.values.device import ReportedDevice
from kubedevices.wire.unix_grpc import FileIdentity, GrpcChannel, Peer

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

RECEIVE_LIMIT = 16 * 1024 * 1024
"""Bytes of a message. The kubelet's limit is 4 MiB; it ends the stream of a plugin with about
130,000 devices, and the plugin gets no error.
"""

INSTANCE_LIMIT = 8
"""Connected instances of one resource; a rolling update has two. The oldest of more is closed."""

# Seconds between two dials: some plugins register a few milliseconds before they listen.
_FIRST_REDIAL, _LAST_REDIAL = 0.02, 0.5
_PAUSE_SHARE, _PAUSE_FOR_NOTHING = 3, 0.02
"""The pause before the next list is read: three times the time that this list took. So a plugin
that floods us with lists uses a quarter of the event loop at most. The second number is the
shortest pause, in seconds, after a list without a change.
"""

_READING_A_BYTE = 5e-8
"""Seconds that HTTP/2 and gRPC take per byte of a list, about."""

_NO_SOCKET_LIMIT = 1.0
"""Seconds to wait for a socket that does not exist: a plugin that has died leaves no socket."""


class PluginTimeouts(NamedTuple):
    """Deadlines of calls to a plugin, in seconds. Most calls of the kubelet have no deadline."""

    dial: float = 10
    options: float = 10
    preferred: float = 10
    allocate: float = 60
    pre_start: float = 30


class EndpointListener(Protocol):
    """Receives the device lists of an endpoint."""

    async def list_received(
        self,
        endpoint: "Endpoint",
        devices: tuple[ReportedDevice, ...],
        slices: LoopSlices,
        message: bytes,
    ) -> bool:
        """Replace the last list by a new list; return whether anything changed.

        `slices` runs long work. `message` is the encoded list.
        """

    def stream_ended(self, endpoint: "Endpoint", reason: str) -> bool:
        """Record that the stream ended; return whether the endpoint should open a new stream."""


class Endpoint:
    """A plugin instance, which serves after `connect`.

    Two instances may have the same resource and socket path: each has its own `generation`.
    """

    def __init__(
        self,
        resource: str,
        socket: Path,
        *,
        timeouts: PluginTimeouts | None = None,
        receive_limit: int = RECEIVE_LIMIT,
        needs_options: bool = True,
        lists: PluginLists | None = None,
    ) -> None:
        """Endpoints may share the memory for `lists`.

        With `needs_options=False`, a plugin without GetDevicePluginOptions gets the default
        options.
        """
        self.resource, self.socket, self.generation = resource, socket, 0
        self.options, self._needs_options = PluginOptions(), needs_options
        self.has_options = True
        """Whether the plugin has GetDevicePluginOptions."""

        self.is_stopped = self.has_listed = False
        self._timeouts = timeouts or PluginTimeouts()
        self._receive_limit, self._lists = receive_limit, lists or PluginLists()
        self._channel: GrpcChannel | None = None
        self.identity: FileIdentity | None = None
        """The socket file, while connected."""

        self.peer = Peer()
        """The process that serves the plugin."""

        self.kept = KeptList(self._lists, resource, self.peer)
        """The memory for its lists."""

        self._calls = 0
        # Set while no call is in flight; `close` waits for it.
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        """Return one line that identifies the instance."""
        state = "stopped" if self.is_stopped else "connected"
        return f"<Endpoint {self.resource} at {self.socket} #{self.generation} {state}>"

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open. The stream of lists may have ended."""
        return self._channel is not None and not self._channel.closed.is_set()

    def repeats(self, known: "Endpoint") -> bool:
        """Whether this is the instance `known`, whose stream we read already.

        A plugin may register again while all is well, for example at each look at kubelet.sock. A
        kubelet keeps both streams. Some plugins end for ever when a stream ends, so the first
        stream must stay, and the second connection is closed.
        """
        is_read = known.is_connected and not known.is_stopped and known.identity is not None
        return is_read and known.peer == self.peer and known.identity == self.identity

    # ------------------------------------------------------------ connecting

    async def connect(self, *, dial_timeout: float | None = None) -> None:
        """Dial the socket, without following links, and ask for the plugin's options.

        Raises `RegistrationError`.
        """
        channel = await self._dial(dial_timeout or self._timeouts.dial)
        client = DevicePluginClient(channel)
        try:
            self.options = await client.get_device_plugin_options(timeout=self._timeouts.options)
        except WireError as error:
            is_missing = isinstance(error, RpcError) and error.code is StatusCode.UNIMPLEMENTED
            if self._needs_options or not is_missing:
                await channel.close()
                raise PluginOptionsFailed(str(error)) from error
            self.has_options = False
        except BaseException:
            await channel.close()
            raise
        self._channel, self._client = channel, client
        self.identity, self.peer = channel.server_file, channel.peer
        self.kept.peer = self.peer

    async def _dial(self, timeout: float) -> GrpcChannel:
        """Dial until the deadline, because a plugin may register shortly before it listens."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + timeout
        pause = _FIRST_REDIAL
        while True:
            try:
                return await GrpcChannel.dial(
                    self.socket,
                    timeout=max(deadline - loop.time(), 0.001),
                    max_receive=self._receive_limit,
                    follow_links=False,
                    budget=self._lists.unread,
                )
            except DialError as error:
                left = deadline - loop.time()
                is_gone = error.errno == errno.ENOENT and loop.time() - began > _NO_SOCKET_LIMIT
                if is_gone and left > 0:
                    reason = f"context deadline exceeded: there is no socket {self.socket}"
                    raise DialPluginFailed(reason) from error
                if left <= 0:
                    logger.info("%s: %s", self.resource, error)
                    raise DialPluginFailed("context deadline exceeded") from error
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, _LAST_REDIAL)

    # ------------------------------------------------------------ calls

    async def allocate(self, device_ids: tuple[str, ...]) -> ContainerAllocateResponse:
        """Call Allocate for one container with `device_ids`; return the plugin's answer."""
        request = AllocateRequest((ContainerAllocateRequest(device_ids),))
        response = await self.relay_allocate(request)
        if not response.containers:
            raise NoContainerResponse(self.resource)
        if len(response.containers) > 1:
            logger.warning(
                "%s: the request had one container, the answer of the plugin has %d; the first "
                "answer counts",
                self.resource,
                len(response.containers),
            )
        return response.containers[0]

    async def get_preferred_allocation(self, request: ContainerPreferredRequest) -> tuple[str, ...]:
        """Call GetPreferredAllocation; return the preferred IDs, `()` without support."""
        if not self.options.get_preferred_allocation_available:
            return ()
        try:
            response = await self.relay_preferred(PreferredAllocationRequest((request,)))
        except (WireError, EndpointStopped) as error:
            raise PreferredAllocationFailed(str(error)) from error
        return tuple(response.containers[0]) if response.containers else ()

    async def pre_start_container(self, device_ids: tuple[str, ...]) -> None:
        """Call PreStartContainer for a container with `device_ids`."""
        try:
            await self.relay_pre_start(PreStartContainerRequest(device_ids))
        except (WireError, EndpointStopped) as error:
            raise PreStartFailed(str(error)) from error

    # The proxy passes requests of the kubelet on by these three. They raise `WireError` and
    # `EndpointStopped`.

    async def relay_allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Return the plugin's answer unchanged."""
        return await self._call(
            lambda: self._client.allocate(request, timeout=self._timeouts.allocate)
        )

    async def relay_preferred(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Return the plugin's answer unchanged."""
        return await self._call(
            lambda: self._client.get_preferred_allocation(request, timeout=self._timeouts.preferred)
        )

    async def relay_pre_start(self, request: PreStartContainerRequest) -> PreStartContainerResponse:
        """Return the plugin's answer unchanged."""
        return await self._call(
            lambda: self._client.pre_start_container(request, timeout=self._timeouts.pre_start)
        )

    async def _call(self, rpc: Callable[[], Awaitable[Answer]]) -> Answer:
        # As in the kubelet: a plugin whose stream has ended gets no calls.
        if self.is_stopped:
            raise EndpointStopped(f"{self.resource} at {self.socket}")
        self._calls += 1
        self._idle.clear()
        try:
            return await rpc()
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    # ------------------------------------------------------------ the stream

    async def follow(self, listener: EndpointListener, *, reopen_for: float = 0) -> None:
        """Pass the plugin's lists to `listener` until no stream can be opened.

        Some plugins end a stream and never register again. So a lost stream is opened again, for
        `reopen_for` seconds at most and only while the socket file is the same. If the new stream
        ends early too, the plugin has to register; otherwise its devices would appear and vanish
        again and again. With 0, a lost stream is never opened again, as in the kubelet.
        """
        loop = asyncio.get_running_loop()
        reopening, was_lost = Reopening(reopen_for), False
        while True:
            opened_at = loop.time()
            reason = await self._read_lists(listener)
            # The first list of a new stream sets `is_stopped` to False. So a stream that was opened
            # again and ended before its first list is not reported as a second loss.
            if not was_lost or not self.is_stopped:
                reopening.lost(opened_at, loop.time())
                was_lost = self.is_stopped = True
                if not listener.stream_ended(self, reason):
                    return
            if reopening.ended_early(opened_at, loop.time()):
                logger.info("%s: the stream ended again; the plugin has to register", self.resource)
                return
            while True:
                pause = reopening.pause(loop.time())
                if pause is None or not self._owns_socket():
                    return
                await asyncio.sleep(pause)
                if await self._reconnect():
                    break

    async def _read_lists(self, listener: EndpointListener) -> str:
        """Read the stream to its end; return why it ended."""
        lists = self._client.list_messages()
        reader, before = DeviceListReader(self.kept.grow), None
        try:
            async for message in lists:
                self.is_stopped, self.has_listed = False, True
                slices, is_new = LoopSlices(), False
                self.kept.grow(len(message))
                devices = await slices.run(reader.read(message))
                self.kept.replace(len(message), len(devices))
                # The reader returns the same tuple for the same bytes: then nothing has changed.
                if devices is not before:
                    is_new = await listener.list_received(self, devices, slices, message)
                    before = devices
                pause = _PAUSE_SHARE * (slices.seconds + len(message) * _READING_A_BYTE)
                await self._pause(pause if is_new else max(pause, _PAUSE_FOR_NOTHING))
        except RpcError as error:
            if error.code is StatusCode.RESOURCE_EXHAUSTED:
                logger.warning(
                    "%s: the device list was refused (the limit is %d bytes): %s",
                    self.resource,
                    self._receive_limit,
                    error.message,
                )
            return error.message or str(error)
        except (WireError, ListsUseTooMuch) as error:
            return str(error)
        finally:
            await lists.aclose()
        return "the plugin ended the stream"

    async def _pause(self, seconds: float) -> None:
        """Wait, but not after the end of the connection, which must be reported at once."""
        if self._channel is not None:
            with contextlib.suppress(TimeoutError):
                async with deadlines.timeout(seconds):
                    await self._channel.closed.wait()

    def _owns_socket(self) -> bool:
        # A new file at this path belongs to a new instance, which will register.
        return self.identity is not None and FileIdentity.of(self.socket) == self.identity

    async def _reconnect(self) -> bool:
        if self.is_connected:
            return True
        try:
            await self.connect(dial_timeout=1)
        except RegistrationError as error:
            logger.debug("%s: cannot connect again yet: %s", self.resource, error)
            return False
        return True

    # ------------------------------------------------------------ the end

    async def close(self, *, grace: float = 0) -> None:
        """Close the connection when all calls have ended, after `grace` seconds at most.

        A newer instance may have replaced this instance during a call of Allocate.
        """
        try:
            if grace and self._calls:
                async with deadlines.timeout(grace):
                    await self._idle.wait()
        except TimeoutError:
            logger.warning("%r: closed with calls in flight", self)
        finally:
            self.is_stopped = True
            self.kept.disconnect()
            # Closes the descriptor that holds the inode of the socket.
            self.identity = None
            if self._channel is not None:
                await self._channel.close()
