"""Clients of device plugins, of registration and of our JSON services: values in, values out.

Each client takes a connected `GrpcChannel`. A response that cannot be decoded raises
`ProtocolError`; any other failure of a call raises `RpcError`. Timeouts are in seconds.
"""

import errno
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from kubedevices.errors import DialError
from kubedevices.host import deadlines
from kubedevices.kubelet_api import convert, services
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.kubelet_api.services import JsonObject
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    PluginInfo,
    PluginOptions,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
    RegisterRequest,
)
from kubedevices.values.device import ReportedDevice
from kubedevices.wire.unix_grpc import GrpcChannel


class DevicePluginClient:
    """Client of v1beta1.DevicePlugin, for the kubelet's side."""

    def __init__(self, channel: GrpcChannel) -> None:
        self.channel = channel

    async def get_device_plugin_options(self, *, timeout: float) -> PluginOptions:
        """Ask which optional calls the plugin wants."""
        method = services.GET_DEVICE_PLUGIN_OPTIONS
        answer = await self.channel.unary(method, convert.EMPTY, timeout=timeout)
        return convert.OPTIONS.from_wire(answer)

    def list_messages(self) -> AsyncGenerator[bytes, None]:
        """Yield each ListAndWatch message as bytes, for `device_lists`; `aclose` ends the call."""
        return self.channel.stream(services.LIST_AND_WATCH, convert.EMPTY)

    async def list_and_watch(self) -> AsyncGenerator[tuple[ReportedDevice, ...], None]:
        """Yield each list of the plugin, decoded in one step; `aclose` ends the call."""
        async with aclosing(self.list_messages()) as lists:
            async for each in lists:
                yield device_list_from_wire(each)

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest, *, timeout: float
    ) -> PreferredAllocationResponse:
        """Ask which devices the plugin prefers to allocate."""
        payload = convert.PREFERRED_REQUEST.to_wire(request)
        answer = await self.channel.unary(
            services.GET_PREFERRED_ALLOCATION, payload, timeout=timeout
        )
        return convert.PREFERRED_RESPONSE.from_wire(answer)

    async def allocate(self, request: AllocateRequest, *, timeout: float) -> AllocateResponse:
        """Ask for the environment, device files, mounts and so on of containers with devices."""
        payload = convert.ALLOCATE_REQUEST.to_wire(request)
        answer = await self.channel.unary(services.ALLOCATE, payload, timeout=timeout)
        return convert.ALLOCATE_RESPONSE.from_wire(answer)

    async def pre_start_container(
        self, request: PreStartContainerRequest, *, timeout: float
    ) -> PreStartContainerResponse:
        """Let the plugin prepare devices before their container starts."""
        payload = convert.PRE_START_REQUEST.to_wire(request)
        answer = await self.channel.unary(services.PRE_START_CONTAINER, payload, timeout=timeout)
        return convert.PRE_START_RESPONSE.from_wire(answer)


class RegistrationClient:
    """Client of v1beta1.Registration, for a plugin."""

    def __init__(self, channel: GrpcChannel) -> None:
        self.channel = channel

    async def register(self, request: RegisterRequest, *, timeout: float) -> None:
        """Register with a kubelet; raises `RpcError` if the kubelet refuses."""
        payload = convert.REGISTER_REQUEST.to_wire(request)
        await self.channel.unary(services.REGISTER, payload, timeout=timeout)


class PluginRegistrationClient:
    """Client of pluginregistration.Registration, for the kubelet's plugin watcher."""

    def __init__(self, channel: GrpcChannel) -> None:
        self.channel = channel

    async def get_info(self, *, timeout: float) -> PluginInfo:
        """Ask for the plugin's type, name, socket and versions."""
        answer = await self.channel.unary(services.GET_INFO, convert.EMPTY, timeout=timeout)
        return convert.PLUGIN_INFO.from_wire(answer)

    async def notify_registration_status(
        self, *, registered: bool, error: str = "", timeout: float
    ) -> None:
        """Tell the plugin whether its registration succeeded."""
        payload = convert.REGISTRATION_STATUS.to_wire(convert.RegistrationStatus(registered, error))
        method = services.NOTIFY_REGISTRATION_STATUS
        await self.channel.unary(method, payload, timeout=timeout)


class JsonClient:
    """Client of a JSON service of kubedevices (`services.json_methods`).

    Raises `DialError`, EPERM, if the server runs as another user than this one and root: anyone can
    serve a socket, and we act on the answers.
    """

    def __init__(self, channel: GrpcChannel, service_name: str) -> None:
        if channel.peer_uid not in (0, os.geteuid()) and not channel.closed.is_set():
            reason = f"user {channel.peer_uid} serves it, and not this user or root"
            raise DialError(str(channel.path), reason, errno.EPERM)
        self.channel, self.service_name = channel, service_name

    async def call(
        self, method: str, request: JsonObject | None = None, *, timeout: float
    ) -> JsonObject:
        """Call a unary method and return the response."""
        payload = services.json_to_wire(request or {})
        path = f"/{self.service_name}/{method}"
        return services.json_from_wire(await self.channel.unary(path, payload, timeout=timeout))

    async def stream(
        self, method: str, request: JsonObject | None = None
    ) -> AsyncGenerator[JsonObject, None]:
        """Call a streaming method and yield each response; `aclose` ends the call."""
        payload = services.json_to_wire(request or {})
        path = f"/{self.service_name}/{method}"
        async with aclosing(self.channel.stream(path, payload)) as answers:
            async for each in answers:
                yield services.json_from_wire(each)


async def call_once(
    socket: Path, service: str, method: str, *, deadline: float, limit: int
) -> JsonObject:
    """Connect to a process of ours, call one method without arguments, and hang up.

    `deadline` is in seconds, for all of it; the answer has at most `limit` bytes. Links are not
    followed: strangers may create them. Raises `WireError`, `OSError` (`TimeoutError`).
    """
    async with (
        deadlines.timeout(deadline),
        await GrpcChannel.dial(
            socket, timeout=deadline, max_receive=limit, follow_links=False
        ) as channel,
    ):
        return await JsonClient(channel, service).call(method, timeout=deadline)
