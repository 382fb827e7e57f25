"""gRPC services from objects: a Protocol for each service, and a function that makes its `Methods`.

Plugins and the node call the `*_methods` functions and pass the result to `GrpcServer`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from kubedevices.errors import NotJson, ProtocolError, RpcError, StatusCode
from kubedevices.kubelet_api import convert
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
from kubedevices.wire.unix_grpc import Methods, StreamMethod, UnaryMethod

REGISTER = "/v1beta1.Registration/Register"
GET_DEVICE_PLUGIN_OPTIONS = "/v1beta1.DevicePlugin/GetDevicePluginOptions"
LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"
GET_PREFERRED_ALLOCATION = "/v1beta1.DevicePlugin/GetPreferredAllocation"
ALLOCATE = "/v1beta1.DevicePlugin/Allocate"
PRE_START_CONTAINER = "/v1beta1.DevicePlugin/PreStartContainer"
GET_INFO = "/pluginregistration.Registration/GetInfo"
NOTIFY_REGISTRATION_STATUS = "/pluginregistration.Registration/NotifyRegistrationStatus"

T = TypeVar("T")
JsonObject = dict[str, Any]
JsonAnswer = JsonObject | bytes
"""An object, or its encoded JSON: a handler encodes a long answer itself."""

JsonStream = Callable[[JsonObject], AsyncGenerator[JsonAnswer, None]]


class DevicePluginService(Protocol):
    """The methods of v1beta1.DevicePlugin, which a plugin serves for one resource."""

    async def get_device_plugin_options(self) -> PluginOptions:
        """Return which optional calls the plugin wants."""

    def list_and_watch(self) -> AsyncIterator[bytes]:
        """Yield the whole list, now and after each change, encoded by `device_list_to_wire`."""

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Choose among available devices."""

    async def allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Return environment, device files, mounts and so on for containers with devices."""

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse | None:
        """Prepare devices before their container starts; None means an empty response."""


class RegistrationService(Protocol):
    """The method of v1beta1.Registration, which the kubelet serves on kubelet.sock."""

    async def register(self, request: RegisterRequest) -> None:
        """Register a plugin; raises an error to refuse it."""


class PluginInfoService(Protocol):
    """The methods of pluginregistration.Registration, which the plugin watcher calls."""

    async def get_info(self) -> PluginInfo:
        """Return the plugin's type, name, socket and versions."""

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        """Handle the result of the registration."""


def decode_request(decoder: Callable[[bytes], T], payload: bytes) -> T:
    """Return a decoded request; raises `RpcError` for the caller that sent it."""
    try:
        return decoder(payload)
    except ProtocolError as error:
        raise RpcError(StatusCode.INTERNAL, f"cannot read the request: {error}") from error


def device_plugin_methods(
    service: DevicePluginService,
    allocate_at_once: Callable[[AllocateRequest], AllocateResponse | None] = lambda _request: None,
) -> Methods:
    """Return the methods of v1beta1.DevicePlugin.

    `allocate_at_once` is called first: it returns a response if that needs no await, else None.
    """

    async def options(_payload: bytes) -> bytes:
        return convert.OPTIONS.to_wire(await service.get_device_plugin_options())

    def watch(_payload: bytes) -> AsyncIterator[bytes]:
        return service.list_and_watch()

    async def prefer(payload: bytes) -> bytes:
        request = decode_request(convert.PREFERRED_REQUEST.from_wire, payload)
        return convert.PREFERRED_RESPONSE.to_wire(await service.get_preferred_allocation(request))

    def allocate(payload: bytes) -> bytes | Awaitable[bytes]:
        request = decode_request(convert.ALLOCATE_REQUEST.from_wire, payload)
        response = allocate_at_once(request)
        if response is None:
            return allocate_later(request)
        return convert.ALLOCATE_RESPONSE.to_wire(response)

    async def allocate_later(request: AllocateRequest) -> bytes:
        return convert.ALLOCATE_RESPONSE.to_wire(await service.allocate(request))

    async def pre_start(payload: bytes) -> bytes:
        request = decode_request(convert.PRE_START_REQUEST.from_wire, payload)
        response = await service.pre_start_container(request)
        return convert.EMPTY if response is None else convert.PRE_START_RESPONSE.to_wire(response)

    return {
        GET_DEVICE_PLUGIN_OPTIONS: UnaryMethod(options),
        LIST_AND_WATCH: StreamMethod(watch),
        GET_PREFERRED_ALLOCATION: UnaryMethod(prefer),
        ALLOCATE: UnaryMethod(allocate),
        PRE_START_CONTAINER: UnaryMethod(pre_start),
    }


def registration_methods(service: RegistrationService) -> Methods:
    """Return the method of v1beta1.Registration."""

    async def register(payload: bytes) -> bytes:
        await service.register(decode_request(convert.REGISTER_REQUEST.from_wire, payload))
        return convert.EMPTY

    return {REGISTER: UnaryMethod(register)}


def plugin_registration_methods(service: PluginInfoService) -> Methods:
    """Return the methods of pluginregistration.Registration."""

    async def get_info(_payload: bytes) -> bytes:
        return convert.PLUGIN_INFO.to_wire(await service.get_info())

    async def notify(payload: bytes) -> bytes:
        registered, error = decode_request(convert.REGISTRATION_STATUS.from_wire, payload)
        await service.notify_registration_status(registered, error)
        return convert.EMPTY

    return {GET_INFO: UnaryMethod(get_info), NOTIFY_REGISTRATION_STATUS: UnaryMethod(notify)}


# ---------------------------------------------------------------- JSON as messages


_JSON_LIMIT = 2**26
"""Bytes of a message. The list of 100,000 devices has 12 MB."""


def json_to_wire(value: JsonAnswer) -> bytes:
    """Return a JSON object as one message of a JSON service."""
    if isinstance(value, bytes):
        return value
    from json import dumps  # noqa: PLC0415 - a plugin needs it only beside a second instance

    return dumps(value, separators=(",", ":")).encode()


def json_from_wire(payload: bytes) -> JsonObject:
    """Return the JSON object in `payload`, {} for no bytes; raises `ProtocolError`."""
    from kubedevices.config.documents.json_text import read_json_object  # noqa: PLC0415 - see above

    try:
        return read_json_object(payload or b"{}", limit=_JSON_LIMIT)
    except NotJson as error:
        raise ProtocolError(f"{len(payload)} bytes are not JSON: {error}") from error


def json_methods(
    service_name: str,
    unary: Mapping[str, Callable[[JsonObject], Awaitable[JsonAnswer]]],
    streams: Mapping[str, JsonStream],
) -> Methods:
    """Return the methods of a service whose messages are JSON objects."""

    def unary_method(handler: Callable[[JsonObject], Awaitable[JsonAnswer]]) -> UnaryMethod:
        async def answer(payload: bytes) -> bytes:
            return json_to_wire(await handler(decode_request(json_from_wire, payload)))

        return UnaryMethod(answer)

    def stream_method(
        handler: JsonStream,
    ) -> StreamMethod:
        async def answer(payload: bytes) -> AsyncIterator[bytes]:
            async with aclosing(handler(decode_request(json_from_wire, payload))) as answers:
                async for each in answers:
                    yield json_to_wire(each)

        return StreamMethod(answer)

    return {
        **{f"/{service_name}/{name}": unary_method(handler) for name, handler in unary.items()},
        **{f"/{service_name}/{name}": stream_method(handler) for name, handler in streams.items()},
    }
