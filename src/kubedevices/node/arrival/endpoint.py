"""One connected plugin instance: its calls, its stream of device lists, and when it stopped.

Knows one socket and one resource. What a list means is for the inventory; which instance is the
current one is for the device manager, who is the only caller. Nothing a plugin does here reaches
another plugin: every call has a deadline, and every stream its own task.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

from kubedevices.allocation import (
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
from kubedevices.device import ReportedDevice
from kubedevices.errors import (
    DialError,
    DialPluginFailed,
    EndpointStopped,
    NoContainerResponse,
    PluginOptionsFailed,
    PreferredAllocationFailed,
    PreStartFailed,
    RegistrationError,
    RpcError,
    StatusCode,
    WireError,
)
from kubedevices.kubelet_api.clients import DevicePluginClient
from kubedevices.kubelet_api.device_lists import DeviceListReader
from kubedevices.node.arrival.reopening import Reopening
from kubedevices.node.loop_slices import LoopSlices
from kubedevices.wire.unix_grpc import FileIdentity, GrpcChannel

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

RECEIVE_LIMIT = 16 * 1024 * 1024
"""A kubelet's 4 MiB end a plugin with about 130,000 devices without a word to it."""

INSTANCE_LIMIT = 8
"""Live instances of one resource; a rolling update has two. The oldest beyond it is closed."""

# Seconds between two dials: a plugin that registers before it listens does so a moment later.
_FIRST_REDIAL, _LAST_REDIAL = 0.02, 0.5
_PAUSE_SHARE, _PAUSE_FOR_NOTHING = 3, 0.02
"""How long a plugin waits after a list, as a multiple of what the list cost us: however much it has
to say, it gets a quarter of the loop. And the least, in seconds, after a list that said nothing.
"""

_READING_A_BYTE = 5e-8
"""Seconds, about: what a list costs before it gets here."""

_NO_SOCKET_LIMIT = 1.0
"""Seconds to wait for a socket that is not there: a plugin that died leaves no socket."""


class PluginTimeouts(NamedTuple):
    """How long a plugin may take to answer, in seconds. A kubelet waits for ever on most."""

    dial: float = 10
    options: float = 10
    preferred: float = 10
    allocate: float = 60
    pre_start: float = 30


class EndpointListener(Protocol):
    """Receives the lists of an endpoint's stream."""

    async def list_received(
        self,
        endpoint: "Endpoint",
        devices: tuple[ReportedDevice, ...],
        slices: LoopSlices,
        message: bytes,
    ) -> bool:
        """Take a new list, which replaces the list before; return whether it changed anything.

        Long work is run by `slices`. `message` is the list in bytes.
        """

    def stream_ended(self, endpoint: "Endpoint", reason: str) -> bool:
        """Take note that the plugin is gone; return whether its next list is still wanted."""


class Endpoint:
    """A plugin instance that answered the dial and said what it can do.

    Two instances may share resource and socket path, so each gets a `generation` of its own from
    the endpoint table.
    """

    def __init__(
        self,
        resource: str,
        socket: Path,
        *,
        timeouts: PluginTimeouts | None = None,
        receive_limit: int = RECEIVE_LIMIT,
    ) -> None:
        self.resource, self.socket, self.generation = resource, socket, 0
        self.options = PluginOptions()
        self.has_options = self._needs_options = True
        """Whether the plugin has GetDevicePluginOptions."""

        self.is_stopped = self.has_listed = False
        self._timeouts = timeouts or PluginTimeouts()
        self._receive_limit = receive_limit
        self._channel: GrpcChannel | None = None
        self._identity: FileIdentity | None = None
        self._calls = 0
        # Set while no call is in flight; `close` waits for it.
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        """Say which instance this is, in one line."""
        state = "stopped" if self.is_stopped else "connected"
        return f"<Endpoint {self.resource} at {self.socket} #{self.generation} {state}>"

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands, whatever its stream does."""
        return self._channel is not None and not self._channel.closed.is_set()

    # ------------------------------------------------------------ connecting

    @classmethod
    async def connect(
        cls,
        resource: str,
        socket: Path,
        *,
        timeouts: PluginTimeouts | None = None,
        receive_limit: int = RECEIVE_LIMIT,
        needs_options: bool = True,
    ) -> Self:
        """Dial `socket`, not through links, and ask for the plugin's options.

        Without `needs_options`, a plugin that has no GetDevicePluginOptions has the defaults.
        Raises `RegistrationError`.
        """
        endpoint = cls(
            resource,
            socket,
            timeouts=timeouts,
            receive_limit=receive_limit,
        )
        endpoint._needs_options = needs_options
        await endpoint._connect(endpoint._timeouts.dial)
        return endpoint

    async def _connect(self, dial_timeout: float) -> None:
        channel = await self._dial(dial_timeout)
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
        self._identity = channel.server_file

    async def _dial(self, timeout: float) -> GrpcChannel:
        """Dial until the deadline: a plugin may register a moment before it listens."""
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
        """Tell the plugin that a container gets `device_ids`; return its answer."""
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
        """Return the IDs the plugin would rather give away; `()` when it has no preference."""
        if not self.options.get_preferred_allocation_available:
            return ()
        try:
            response = await self.relay_preferred(PreferredAllocationRequest((request,)))
        except (WireError, EndpointStopped) as error:
            raise PreferredAllocationFailed(str(error)) from error
        return tuple(response.containers[0]) if response.containers else ()

    async def pre_start_container(self, device_ids: tuple[str, ...]) -> None:
        """Tell the plugin that the container holding `device_ids` is about to start."""
        try:
            await self.relay_pre_start(PreStartContainerRequest(device_ids))
        except (WireError, EndpointStopped) as error:
            raise PreStartFailed(str(error)) from error

    # The three below pass on what another node asks. They raise `WireError` and `EndpointStopped`.

    async def relay_allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Return the answer as it is."""
        return await self._call(
            lambda: self._client.allocate(request, timeout=self._timeouts.allocate)
        )

    async def relay_preferred(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Return the answer as it is."""
        return await self._call(
            lambda: self._client.get_preferred_allocation(request, timeout=self._timeouts.preferred)
        )

    async def relay_pre_start(self, request: PreStartContainerRequest) -> PreStartContainerResponse:
        """Return the answer as it is."""
        return await self._call(
            lambda: self._client.pre_start_container(request, timeout=self._timeouts.pre_start)
        )

    async def _call(self, rpc: Callable[[], Awaitable[Answer]]) -> Answer:
        # As in a kubelet: a plugin whose list nobody reads gets no call.
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
        """Pass the plugin's lists on until its stream ends for good.

        Some plugins end a stream and never register again. So a lost stream is opened again once,
        if this succeeds within `reopen_for` seconds and the socket file is still the same. If the
        new stream ends soon, too, the plugin has to register: else its devices would come and go.
        With 0 every lost stream is left to the plugin, as in a kubelet.
        """
        loop = asyncio.get_running_loop()
        reopening, was_lost = Reopening(reopen_for), False
        while True:
            opened_at = loop.time()
            reason = await self._read_lists(listener)
            # `is_stopped` ends with a list, not with a stream: a stream that was opened again and
            # ended before its first list is no second loss.
            if not was_lost or not self.is_stopped:
                reopening.lost(opened_at, loop.time())
                was_lost = self.is_stopped = True
                if not listener.stream_ended(self, reason):
                    return
            if reopening.ended_early(opened_at, loop.time()):
                logger.info("%s: its stream ended again, so it has to register", self.resource)
                return
            while True:
                pause = reopening.pause(loop.time())
                if pause is None or not self._owns_socket():
                    return
                await asyncio.sleep(pause)
                if await self._reconnect():
                    break

    async def _read_lists(self, listener: EndpointListener) -> str:
        """Return why the stream ended."""
        lists = self._client.list_messages()
        reader, before = DeviceListReader(), None
        try:
            async for message in lists:
                self.is_stopped, self.has_listed = False, True
                slices, is_new = LoopSlices(), False
                devices = await slices.run(reader.read(message))
                # The reader returns the same tuple for the same bytes: then there is nothing to
                # compare.
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
        except WireError as error:
            return str(error)
        finally:
            await lists.aclose()
        return "the plugin ended the stream"

    async def _pause(self, seconds: float) -> None:
        """Wait so long, or until the connection ends, which must be told at once."""
        if self._channel is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._channel.closed.wait()

    def _owns_socket(self) -> bool:
        # Another file at this path is another instance, which registers by itself.
        return self._identity is not None and FileIdentity.of(self.socket) == self._identity

    async def _reconnect(self) -> bool:
        if self.is_connected:
            return True
        try:
            await self._connect(dial_timeout=1)
        except RegistrationError as error:
            logger.debug("%s: not back yet: %s", self.resource, error)
            return False
        return True

    # ------------------------------------------------------------ the end

    async def close(self, *, grace: float = 0) -> None:
        """Close the connection, after the calls in flight or `grace` seconds.

        A successor may have taken over while this instance is still answering an Allocate.
        """
        try:
            if grace and self._calls:
                async with asyncio.timeout(grace):
                    await self._idle.wait()
        except TimeoutError:
            logger.warning("%r: closed with calls in flight", self)
        finally:
            self.is_stopped = True
            # Gives back the descriptor that holds the inode of the socket.
            self._identity = None
            if self._channel is not None:
                await self._channel.close()
