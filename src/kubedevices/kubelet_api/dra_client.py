"""Call a DRA driver as a kubelet does: values in, values out.

Every failure of a call is an `RpcError`; an answer that is no message is a `ProtocolError`.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing

from kubedevices.allocation import ClaimReference
from kubedevices.kubelet_api.dra import (
    CLAIMS,
    HEALTH,
    PREPARED,
    UNPREPARED,
    ClaimAnswer,
    DeviceHealth,
)
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
        return PREPARED.from_wire(await self._ask(method, claims, timeout))

    async def unprepare(
        self, claims: Iterable[ClaimReference], *, timeout: float
    ) -> Mapping[str, str]:
        """NodeUnprepareResources: return by UID the error, empty if there is none."""
        method = f"{self._service}/NodeUnprepareResources"
        return UNPREPARED.from_wire(await self._ask(method, claims, timeout))

    async def _ask(self, method: str, claims: Iterable[ClaimReference], timeout: float) -> bytes:
        return await self.channel.unary(method, CLAIMS.to_wire(claims), timeout=timeout)

    async def watch_health(self, service: str) -> AsyncGenerator[tuple[DeviceHealth, ...], None]:
        """NodeWatchResources of `service`, for example `v1alpha1.DRAResourceHealth`."""
        method = f"/{service}/NodeWatchResources"
        async with aclosing(self.channel.stream(method)) as answers:
            async for each in answers:
                yield HEALTH.from_wire(each)
