"""Messages and service of a DRA driver: DRAPlugin v1 and v1beta1, and DRAResourceHealth.

In v1beta1 only the name of the protobuf package differs. `share_id` exists only in v1; an older
kubelet ignores the unknown field.
"""

import enum
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from kubedevices.kubelet_api.protobuf import Field, Message
from kubedevices.kubelet_api.services import decode_request
from kubedevices.values.allocation import ClaimDevice, ClaimReference
from kubedevices.wire.unix_grpc import Methods, StreamMethod, UnaryMethod

PLUGIN_TYPE = "DRAPlugin"
PACKAGES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1",
}
"""Version in GetInfo → protobuf package, the newest first."""

PLUGIN_SERVICES = tuple(PACKAGES)
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""Versions of the health service in GetInfo, the newest first."""

ClaimAnswer = tuple[ClaimDevice, ...] | str
"""The prepared devices of a claim, or an error text."""


class HealthStatus(enum.IntEnum):
    """The health of a device, as the number in the message."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


class DeviceHealth(NamedTuple):
    """The health of one device; `at` is the time of the check in whole seconds since 1970.

    After `timeout` seconds without an update the kubelet takes the health as unknown; 0 means the
    kubelet's default, 30 seconds.
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
"""The claims to prepare; NodeUnprepareResourcesRequest has the same fields."""


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
    """The calls of a kubelet to a DRA driver. An answer contains every claim of the request."""

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        """Prepare claims for a pod; return UID → devices or an error text."""

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        """Unprepare claims; return UID → error text, empty without an error."""

    def watch_health(self) -> AsyncIterator[Iterable[DeviceHealth]]:
        """Yield the health of all devices, now, after each change and at intervals."""


def dra_methods(service: DraService) -> Methods:
    """Return the methods of DRAPlugin and DRAResourceHealth, both in two versions."""

    async def prepare(payload: bytes) -> bytes:
        return prepared_to_wire(await service.prepare(decode_request(CLAIMS.from_wire, payload)))

    async def unprepare(payload: bytes) -> bytes:
        answers = await service.unprepare(decode_request(CLAIMS.from_wire, payload))
        return UNPREPARED.to_wire(map(_Entry._make, answers.items()))

    async def watch(_payload: bytes) -> AsyncIterator[bytes]:
        async for devices in service.watch_health():
            yield HEALTH.to_wire(devices)

    methods: dict[str, UnaryMethod | StreamMethod] = {}
    for package in PACKAGES.values():
        methods[f"/{package}.DRAPlugin/NodePrepareResources"] = UnaryMethod(prepare)
        methods[f"/{package}.DRAPlugin/NodeUnprepareResources"] = UnaryMethod(unprepare)
    for name in HEALTH_SERVICES:
        methods[f"/{name}/NodeWatchResources"] = StreamMethod(watch)
    return methods


def prepared_to_wire(answers: Mapping[str, ClaimAnswer]) -> bytes:
    """Return an encoded NodePrepareResourcesResponse."""
    entries = [
        _Entry(uid, _Prepared(error=each) if isinstance(each, str) else _Prepared(each))
        for uid, each in answers.items()
    ]
    return PREPARED.to_wire(entries)
