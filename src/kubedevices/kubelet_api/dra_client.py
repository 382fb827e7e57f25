"""Client of a DRA driver, for the kubelet's side: values in, values out.

A failed call raises `RpcError`. A response that cannot be decoded raises `ProtocolError`.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing

from kubedevices.kubelet_api.dra import (
    CLAIMS,
    HEALTH,
    PACKAGES,
    PREPARED,
    UNPREPARED,
    ClaimAnswer,
    DeviceHealth,
)
from kubedevices.values.allocation import ClaimReference
from kubedevices.wire.unix_grpc import GrpcChannel


class DraClient:
    """Calls the services of a driver; `version` is a key of `dra.PACKAGES`."""

    def __init__(self, channel: GrpcChannel, version: str) -> None:
        self.channel = channel
        self._service = f"/{PACKAGES[version]}.DRAPlugin"

    async def prepare(
        self, claims: Iterable[ClaimReference], *, timeout: float
    ) -> Mapping[str, ClaimAnswer]:
        """NodePrepareResources: return UID → devices or an error text, as the driver answered."""
        method = f"{self._service}/NodePrepareResources"
        return PREPARED.from_wire(await self._ask(method, claims, timeout))

    async def unprepare(
        self, claims: Iterable[ClaimReference], *, timeout: float
    ) -> Mapping[str, str]:
        """NodeUnprepareResources: return UID → error text, empty without an error."""
        method = f"{self._service}/NodeUnprepareResources"
        return UNPREPARED.from_wire(await self._ask(method, claims, timeout))

    async def _ask(self, method: str, claims: Iterable[ClaimReference], timeout: float) -> bytes:
        return await self.channel.unary(method, CLAIMS.to_wire(claims), timeout=timeout)

    async def watch_health(self, service: str) -> AsyncGenerator[tuple[DeviceHealth, ...], None]:
        """NodeWatchResources of `service`, a version such as `v1alpha1.DRAResourceHealth`."""
        method = f"/{service}/NodeWatchResources"
        async with aclosing(self.channel.stream(method)) as answers:
            async for each in answers:
                yield HEALTH.from_wire(each)
