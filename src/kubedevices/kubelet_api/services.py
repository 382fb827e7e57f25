"""Our objects as gRPC services: a Protocol with values per service, and the methods made of it.

Both halves call the `*_methods` functions and give the result to `unix_grpc.GrpcServer`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

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
from kubedevices.errors import ProtocolError, RpcError, StatusCode
from kubedevices.kubelet_api import convert
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
"""An object, or its JSON where whoever answers has encoded a long one already."""


class DevicePluginService(Protocol):
    """What a plugin serves for one resource."""

    async def get_device_plugin_options(self) -> PluginOptions:
        """Say which of the optional calls are wanted."""

    def list_and_watch(self) -> AsyncIterator[bytes]:
        """Yield the whole list, now and after every change, as `device_list_to_wire` makes it."""

    async def get_preferred_allocation(
        self, request: PreferredAllocationRequest
    ) -> PreferredAllocationResponse:
        """Choose among available devices."""

    async def allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Say what containers get with their devices."""

    async def pre_start_container(
        self, request: PreStartContainerRequest
    ) -> PreStartContainerResponse | None:
        """Prepare devices right before their container starts; None is an empty answer."""


class RegistrationService(Protocol):
    """What a device manager serves on kubelet.sock."""

    async def register(self, request: RegisterRequest) -> None:
        """Take a plugin in, or raise what is wrong with it."""


class PluginInfoService(Protocol):
    """What a plugin serves that is found in the plugin registry directory."""

    async def get_info(self) -> PluginInfo:
        """Say what is served and where."""

    async def notify_registration_status(self, registered: bool, error: str) -> None:
        """Learn whether the registration went well."""


def _decode(decoder: Callable[[bytes], T], payload: bytes) -> T:
    try:
        return decoder(payload)
    except ProtocolError as error:
        raise RpcError(StatusCode.INTERNAL, f"cannot read the request: {error}") from error


def device_plugin_methods(
    service: DevicePluginService,
    allocate_at_once: Callable[[AllocateRequest], AllocateResponse | None] = lambda _request: None,
) -> Methods:
    """v1beta1.DevicePlugin; `allocate_at_once` is asked first, for an answer that need not wait."""

    async def options(_payload: bytes) -> bytes:
        return convert.OPTIONS.to_wire(await service.get_device_plugin_options())

    def watch(_payload: bytes) -> AsyncIterator[bytes]:
        return service.list_and_watch()

    async def prefer(payload: bytes) -> bytes:
        request = _decode(convert.PREFERRED_REQUEST.from_wire, payload)
        return convert.PREFERRED_RESPONSE.to_wire(await service.get_preferred_allocation(request))

    def allocate(payload: bytes) -> bytes | Awaitable[bytes]:
        request = _decode(convert.ALLOCATE_REQUEST.from_wire, payload)
        response = allocate_at_once(request)
        if response is None:
            return allocate_later(request)
        return convert.ALLOCATE_RESPONSE.to_wire(response)

    async def allocate_later(request: AllocateRequest) -> bytes:
        return convert.ALLOCATE_RESPONSE.to_wire(await service.allocate(request))

    async def pre_start(payload: bytes) -> bytes:
        request = _decode(convert.PRE_START_REQUEST.from_wire, payload)
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
    """v1beta1.Registration."""

    async def register(payload: bytes) -> bytes:
        await service.register(_decode(convert.REGISTER_REQUEST.from_wire, payload))
        return convert.EMPTY

    return {REGISTER: UnaryMethod(register)}


def plugin_registration_methods(service: PluginInfoService) -> Methods:
    """pluginregistration.Registration."""

    async def get_info(_payload: bytes) -> bytes:
        return convert.PLUGIN_INFO.to_wire(await service.get_info())

    async def notify(payload: bytes) -> bytes:
        registered, error = _decode(convert.REGISTRATION_STATUS.from_wire, payload)
        await service.notify_registration_status(registered, error)
        return convert.EMPTY

    return {GET_INFO: UnaryMethod(get_info), NOTIFY_REGISTRATION_STATUS: UnaryMethod(notify)}


# ---------------------------------------------------------------- JSON as messages


def json_to_wire(value: JsonAnswer) -> bytes:
    """Return a JSON object as one message of our own services."""
    if isinstance(value, bytes):
        return value
    from json import dumps  # noqa: PLC0415 - a plugin needs it only beside another instance

    return dumps(value, separators=(",", ":")).encode()


def json_from_wire(payload: bytes) -> JsonObject:
    """Return the JSON object in `payload`; raises `ProtocolError`. No bytes are an empty object."""
    from json import loads  # noqa: PLC0415 - see above

    try:
        value = loads(payload or b"{}")
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{len(payload)} bytes are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolError(f"a JSON object is expected, not {type(value).__name__}")
    return value


def json_methods(
    service_name: str,
    unary: Mapping[str, Callable[[JsonObject], Awaitable[JsonAnswer]]],
    streams: Mapping[str, Callable[[JsonObject], AsyncIterator[JsonAnswer]]],
) -> Methods:
    """Make a service of our own, with JSON objects as messages."""

    def unary_method(handler: Callable[[JsonObject], Awaitable[JsonAnswer]]) -> UnaryMethod:
        async def answer(payload: bytes) -> bytes:
            return json_to_wire(await handler(_decode(json_from_wire, payload)))

        return UnaryMethod(answer)

    def stream_method(handler: Callable[[JsonObject], AsyncIterator[JsonAnswer]]) -> StreamMethod:
        async def answer(payload: bytes) -> AsyncIterator[bytes]:
            answers = handler(_decode(json_from_wire, payload))
            try:
                async for each in answers:
                    yield json_to_wire(each)
            finally:
                close = getattr(answers, "aclose", None)
                if close is not None:
                    await close()

        return StreamMethod(answer)

    methods: dict[str, UnaryMethod | StreamMethod] = {}
    for name, unary_handler in unary.items():
        methods[f"/{service_name}/{name}"] = unary_method(unary_handler)
    for name, stream_handler in streams.items():
        methods[f"/{service_name}/{name}"] = stream_method(stream_handler)
    return methods
