"""Call a DRA driver as a kubelet does: values in, values out.

Every failure of a call is an `RpcError`; an answer that is no message is a `ProtocolError`.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing

from kubedevices.allocation import ClaimDevice, ClaimReference
from kubedevices.wire.dra import ClaimAnswer, DeviceHealth, HealthStatus
from kubedevices.wire.protobuf import Fields, block, read, text
from kubedevices.wire.unix_grpc import GrpcChannel

PACKAGES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1",
}
"""The protobuf package of each version that a driver may name, the newest first."""


class DraClient:
    """The services of a driver; `version` is a key of `PACKAGES`."""

    def __init__(self, channel: GrpcChannel, version: str) -> None:
        self.channel = channel
        self._service = f"/{PACKAGES[version]}.DRAPlugin"

    async def prepare(
        self, claims: Iterable[ClaimReference], *, timeout: float
    ) -> Mapping[str, ClaimAnswer]:
        """NodePrepareResources: return by UID the devices or the error, as the driver says."""
        method = f"{self._service}/NodePrepareResources"
        answer = await self.channel.unary(method, _claims_to_wire(claims), timeout=timeout)
        return read(
            f"{method[1:]}Response",
            answer,
            lambda message: {
                each.text(1): _prepared(each.message(2)) for each in message.messages(1)
            },
        )

    async def unprepare(
        self, claims: Iterable[ClaimReference], *, timeout: float
    ) -> Mapping[str, str]:
        """NodeUnprepareResources: return by UID the error, empty if there is none."""
        method = f"{self._service}/NodeUnprepareResources"
        answer = await self.channel.unary(method, _claims_to_wire(claims), timeout=timeout)
        return read(
            f"{method[1:]}Response",
            answer,
            lambda message: {each.text(1): each.message(2).text(1) for each in message.messages(1)},
        )

    async def watch_health(self, service: str) -> AsyncGenerator[tuple[DeviceHealth, ...], None]:
        """NodeWatchResources of `service`, for example `v1alpha1.DRAResourceHealth`."""
        method = f"/{service}/NodeWatchResources"
        async with aclosing(self.channel.stream(method)) as answers:
            async for each in answers:
                yield read(
                    f"{method[1:]}Response",
                    each,
                    lambda message: tuple(map(_health, message.messages(1))),
                )


def _claims_to_wire(claims: Iterable[ClaimReference]) -> bytes:
    return b"".join(
        [block(1, text(1, each.namespace) + text(2, each.uid) + text(3, each.name))
         for each in claims]
    )  # fmt: skip


def _prepared(message: Fields) -> ClaimAnswer:
    return message.text(2) or tuple(
        ClaimDevice(each.texts(1), each.text(2), each.text(3), each.texts(4), each.text(5))
        for each in message.messages(1)
    )


def _health(message: Fields) -> DeviceHealth:
    name, number = message.message(1), message.int32(2)
    known = number in HealthStatus.__members__.values()
    return DeviceHealth(
        name.text(1),
        name.text(2),
        HealthStatus(number) if known else HealthStatus.UNKNOWN,
        message.int64(3),
        message.text(5),
        message.int64(4),
    )
