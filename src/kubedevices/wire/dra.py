"""What a kubelet asks of a DRA driver, v1 and v1beta1, and the health it is told.

Of v1beta1 only the package has another name: `share_id` came later, and a kubelet skips what it
does not know.
"""

import enum
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import NamedTuple, Protocol

from kubedevices.allocation import ClaimDevice, ClaimReference
from kubedevices.errors import ProtocolError, RpcError, StatusCode
from kubedevices.wire.protobuf import Fields, block, integer, read, text, texts
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
        return b"".join([_entry(uid, text(1, error)) for uid, error in answers.items()])

    async def watch(_payload: bytes) -> AsyncIterator[bytes]:
        async for devices in service.watch_health():
            yield b"".join([block(1, _health_to_wire(each)) for each in devices])

    methods: dict[str, UnaryMethod | StreamMethod] = {}
    for package in _PACKAGES:
        methods[f"/{package}.DRAPlugin/NodePrepareResources"] = UnaryMethod(prepare)
        methods[f"/{package}.DRAPlugin/NodeUnprepareResources"] = UnaryMethod(unprepare)
    for name in HEALTH_SERVICES:
        methods[f"/{name}/NodeWatchResources"] = StreamMethod(watch)
    return methods


def _claims(payload: bytes) -> tuple[ClaimReference, ...]:
    def value(message: Fields) -> tuple[ClaimReference, ...]:
        return tuple(
            [
                ClaimReference(each.text(1), each.text(2), each.text(3))
                for each in message.messages(1)
            ]
        )

    try:
        return read(f"{_PACKAGES[0]}.NodePrepareResourcesRequest", payload, value)
    except ProtocolError as error:
        raise RpcError(StatusCode.INTERNAL, f"cannot read the request: {error}") from error


def prepared_to_wire(answers: Mapping[str, ClaimAnswer]) -> bytes:
    """NodePrepareResourcesResponse."""
    return b"".join(
        [
            _entry(
                uid,
                text(2, answer)
                if isinstance(answer, str)
                else b"".join([block(1, _device_to_wire(each)) for each in answer]),
            )
            for uid, answer in answers.items()
        ]
    )


def _entry(uid: str, answer: bytes) -> bytes:
    return block(1, text(1, uid) + block(2, answer))


def _device_to_wire(device: ClaimDevice) -> bytes:
    names = texts(1, device.requests) + text(2, device.pool) + text(3, device.device)
    return names + texts(4, device.cdi_ids) + text(5, device.share_id)


def _health_to_wire(device: DeviceHealth) -> bytes:
    name = text(1, device.pool) + text(2, device.device)
    state = integer(2, device.health) + integer(3, device.at) + integer(4, device.timeout)
    return block(1, name) + state + text(5, device.message)
