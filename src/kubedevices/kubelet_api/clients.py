"""Calls to the other side: values in, values out. Each client takes a dialled `GrpcChannel`.

What cannot be read as the expected message raises `ProtocolError`; every other failure of a call is
an `RpcError`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from kubedevices.allocation import (
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
from kubedevices.device import ReportedDevice
from kubedevices.kubelet_api import convert, services
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.kubelet_api.services import JsonObject
from kubedevices.wire.unix_grpc import GrpcChannel


class DevicePluginClient:
    """v1beta1.DevicePlugin, as a device manager calls it."""

    def __init__(self, channel: GrpcChannel) -> None:
        self.channel = channel

    async def get_device_plugin_options(self, *, timeout: float) -> PluginOptions:
        """Ask which of the optional calls are wanted."""
        method = services.GET_DEVICE_PLUGIN_OPTIONS
        answer = await self.channel.unary(method, convert.EMPTY, timeout=timeout)
        return convert.OPTIONS.from_wire(answer)

    def list_messages(self) -> AsyncGenerator[bytes, None]:
        """Yield every list the plugin sends, for `device_lists`; `aclose` ends the call."""
        return self.channel.stream(services.LIST_AND_WATCH, convert.EMPTY)

    async def list_and_watch(self) -> AsyncGenerator[tuple[ReportedDevice, ...], None]:
        """Do the same, with each list decoded in one step."""
        async with aclosing(self.list_messages()) as lists:
            async for each in lists:
                yield device_list_from_wire(each)

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest, *, timeout: float
    ) -> PreferredAllocationResponse:
        """Ask which devices the plugin would rather give."""
        payload = convert.PREFERRED_REQUEST.to_wire(request)
        answer = await self.channel.unary(
            services.GET_PREFERRED_ALLOCATION, payload, timeout=timeout
        )
        return convert.PREFERRED_RESPONSE.from_wire(answer)

    async def allocate(self, request: AllocateRequest, *, timeout: float) -> AllocateResponse:
        """Ask what containers get with their devices."""
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
    """v1beta1.Registration, as a plugin calls it."""

    def __init__(self, channel: GrpcChannel) -> None:
        self.channel = channel

    async def register(self, request: RegisterRequest, *, timeout: float) -> None:
        """Register at a kubelet; what it refuses with is an `RpcError`."""
        payload = convert.REGISTER_REQUEST.to_wire(request)
        await self.channel.unary(services.REGISTER, payload, timeout=timeout)


class PluginRegistrationClient:
    """pluginregistration.Registration, as a plugin watcher calls it."""

    def __init__(self, channel: GrpcChannel) -> None:
        self.channel = channel

    async def get_info(self, *, timeout: float) -> PluginInfo:
        """Ask what is served and where."""
        answer = await self.channel.unary(services.GET_INFO, convert.EMPTY, timeout=timeout)
        return convert.PLUGIN_INFO.from_wire(answer)

    async def notify_registration_status(
        self, *, registered: bool, error: str = "", timeout: float
    ) -> None:
        """Tell the plugin how its registration went."""
        payload = convert.REGISTRATION_STATUS.to_wire(convert.RegistrationStatus(registered, error))
        method = services.NOTIFY_REGISTRATION_STATUS
        await self.channel.unary(method, payload, timeout=timeout)


class JsonClient:
    """A service of our own, made by `services.json_methods`."""

    def __init__(self, channel: GrpcChannel, service_name: str) -> None:
        self.channel, self.service_name = channel, service_name

    async def call(
        self, method: str, request: JsonObject | None = None, *, timeout: float
    ) -> JsonObject:
        """Call and return the answer."""
        payload = services.json_to_wire(request or {})
        path = f"/{self.service_name}/{method}"
        return services.json_from_wire(await self.channel.unary(path, payload, timeout=timeout))

    async def stream(
        self, method: str, request: JsonObject | None = None
    ) -> AsyncGenerator[JsonObject, None]:
        """Call and yield every answer; `aclose` ends the call."""
        payload = services.json_to_wire(request or {})
        path = f"/{self.service_name}/{method}"
        async with aclosing(self.channel.stream(path, payload)) as answers:
            async for each in answers:
                yield services.json_from_wire(each)
