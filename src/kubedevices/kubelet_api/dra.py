"""What a kubelet asks of a DRA driver, v1 and v1beta1, and the health it is told.

Of v1beta1 only the package has another name: `share_id` came later, and a kubelet skips what it
does not know.
"""

import enum
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from kubedevices.allocation import ClaimDevice, ClaimReference
from kubedevices.errors import ProtocolError, RpcError, StatusCode
from kubedevices.kubelet_api.protobuf import Field, Message
from kubedevices.wire.unix_grpc import Methods, StreamMethod, UnaryMethod

PLUGIN_TYPE = "DRAPlugin"
PLUGIN_SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""What GetInfo names as versions, the newest first."""

_PACKAGES = ("k8s.io.kubelet.pkg.apis.dra.v1", "k8s.io.kubelet.pkg.apis.dra.v1beta1")

ClaimAnswer = tuple[ClaimDevice, ...] | str
"""The devices of a claim, or why it has none."""


class HealthStatus(enum.IntEnum):
    """The health of a device as its number on the wire."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


class DeviceHealth(NamedTuple):
    """The health of one device; `at` is the time of the check in whole seconds since 1970.

    After `timeout` seconds without news it is unknown; 0 leaves it to the kubelet, which takes 30.
    """

    pool: str
    device: str
    health: HealthStatus
    at: int
    message: str = ""
    timeout: int = 0


_CLAIM = Message(
    "Claim",
    ClaimReference,
    Field(1, "namespace", "text"),
    Field(2, "uid", "text"),
    Field(3, "name", "text"),
)
CLAIMS: Message[tuple[ClaimReference, ...]] = Message(
    "NodePrepareResourcesRequest", tuple, Field(1, "", "messages", of=_CLAIM)
)
"""What is to be prepared, or unprepared."""


class _Prepared(NamedTuple):
    devices: tuple[ClaimDevice, ...] = ()
    error: str = ""


class _Entry(NamedTuple):
    uid: str
    answer: _Prepared | str


_DEVICE = Message(
    "Device",
    ClaimDevice,
    Field(1, "requests", "texts"),
    Field(2, "pool", "text"),
    Field(3, "device", "text"),
    Field(4, "cdi_ids", "texts"),
    Field(5, "share_id", "text"),
)
_PREPARED = Message(
    "NodePrepareResourceResponse",
    _Prepared,
    Field(1, "devices", "messages", of=_DEVICE),
    Field(2, "error", "text"),
)
_UNPREPARED: Message[str] = Message(
    "NodeUnprepareResourceResponse", lambda error: error, Field(1, "", "text")
)


def _by_uid(answer: Message[Any]) -> Field:
    entry = Message(
        "entry", _Entry, Field(1, "uid", "text"), Field(2, "answer", "message", of=answer)
    )
    return Field(1, "", "messages", of=entry)


PREPARED: Message[dict[str, ClaimAnswer]] = Message(
    "NodePrepareResourcesResponse",
    lambda entries: {uid: each.error or each.devices for uid, each in entries},
    _by_uid(_PREPARED),
)
UNPREPARED: Message[dict[str, str]] = Message(
    "NodeUnprepareResourcesResponse", dict, _by_uid(_UNPREPARED)
)

_DEVICE_NAME = Message(
    "DeviceIdentifier",
    lambda pool, device: (pool, device),
    Field(1, "pool", "text"),
    Field(2, "device", "text"),
)


def _health(
    name: tuple[str, str], number: int, at: int, timeout: int, message: str
) -> DeviceHealth:
    known = number in HealthStatus.__members__.values()
    health = HealthStatus(number) if known else HealthStatus.UNKNOWN
    return DeviceHealth(*name, health, at, message, timeout)


_DEVICE_HEALTH = Message(
    "DeviceHealth",
    _health,
    Field(1, "", "message", of=_DEVICE_NAME),
    Field(2, "health", "int32"),
    Field(3, "at", "int64"),
    Field(4, "timeout", "int64"),
    Field(5, "message", "text"),
)
HEALTH: Message[tuple[DeviceHealth, ...]] = Message(
    "NodeWatchResourcesResponse", tuple, Field(1, "", "messages", of=_DEVICE_HEALTH)
)


class DraService(Protocol):
    """What a driver serves for a kubelet. Every claim that is asked for has its answer."""

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        """Make claims ready for a pod; return by UID their devices or an error."""

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        """Take claims back; return by UID the error, empty if there is none."""

    def watch_health(self) -> AsyncIterator[Iterable[DeviceHealth]]:
        """Yield the health of all devices, again and again."""


def dra_methods(service: DraService) -> Methods:
    """DRAPlugin in both versions, and DRAResourceHealth in both versions."""

    async def prepare(payload: bytes) -> bytes:
        return prepared_to_wire(await service.prepare(_claims(payload)))

    async def unprepare(payload: bytes) -> bytes:
        answers = await service.unprepare(_claims(payload))
        return UNPREPARED.to_wire(map(_Entry._make, answers.items()))

    async def watch(_payload: bytes) -> AsyncIterator[bytes]:
        async for devices in service.watch_health():
            yield HEALTH.to_wire(devices)

    methods: dict[str, UnaryMethod | StreamMethod] = {}
    for package in _PACKAGES:
        methods[f"/{package}.DRAPlugin/NodePrepareResources"] = UnaryMethod(prepare)
        methods[f"/{package}.DRAPlugin/NodeUnprepareResources"] = UnaryMethod(unprepare)
    for name in HEALTH_SERVICES:
        methods[f"/{name}/NodeWatchResources"] = StreamMethod(watch)
    return methods


def _claims(payload: bytes) -> tuple[ClaimReference, ...]:
    try:
        return CLAIMS.from_wire(payload)
    except ProtocolError as error:
        raise RpcError(StatusCode.INTERNAL, f"cannot read the request: {error}") from error


def prepared_to_wire(answers: Mapping[str, ClaimAnswer]) -> bytes:
    """NodePrepareResourcesResponse."""
    entries = [
        _Entry(uid, _Prepared(error=each) if isinstance(each, str) else _Prepared(each))
        for uid, each in answers.items()
    ]
    return PREPARED.to_wire(entries)
