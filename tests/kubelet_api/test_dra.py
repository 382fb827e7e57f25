"""Messages between a kubelet and a DRA driver, with protobuf itself on the other side."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from kubedevices.errors import RpcError
from kubedevices.kubelet_api.dra import ClaimAnswer, DeviceHealth, HealthStatus, dra_methods
from kubedevices.values.allocation import ClaimDevice, ClaimReference
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.kubelet_api.protobuf_classes import message_class

V1 = "k8s.io.kubelet.pkg.apis.dra.v1"
DEVICE = ClaimDevice(("a", "b"), "node1", "gpu-0", ("x.com/y=1", "x.com/y=2"), "share")


class Service:
    def __init__(self) -> None:
        self.asked: list[tuple[ClaimReference, ...]] = []

    async def prepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, ClaimAnswer]:
        self.asked.append(claims)
        return {"uid-1": (DEVICE, ClaimDevice((), "node1", "gpu-1")), "uid-2": "no"}

    async def unprepare(self, claims: tuple[ClaimReference, ...]) -> Mapping[str, str]:
        self.asked.append(claims)
        return {"uid-1": "", "uid-2": "no"}

    async def watch_health(self) -> AsyncIterator[list[DeviceHealth]]:
        yield [DeviceHealth("node1", "gpu-0", HealthStatus.UNHEALTHY, 1_700_000_000, "hot")]
        yield []


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_claims_are_prepared_and_unprepared(version: str, short_dir: Path) -> None:
    """Every claim has an entry in the answer, also an entry without anything in it."""
    service = Service()
    server = GrpcServer(dra_methods(service), name="test")
    await server.start(short_dir / "dra.sock")
    channel = await GrpcChannel.dial(short_dir / "dra.sock", timeout=10)
    try:
        claims = [{"namespace": "n", "uid": f"uid-{i}", "name": f"c{i}"} for i in (1, 2)]
        request = message_class(f"{V1}.NodePrepareResourcesRequest")(claims=claims)
        prefix = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/Node"
        data = request.SerializeToString()
        prepared = message_class(f"{V1}.NodePrepareResourcesResponse").FromString(
            await channel.unary(f"{prefix}PrepareResources", data, timeout=10)
        )
        first, second = prepared.claims["uid-1"].devices
        assert (
            ClaimDevice(
                tuple(first.request_names),
                first.pool_name,
                first.device_name,
                tuple(first.cdi_device_ids),
                first.share_id,
            )
            == DEVICE
        )
        assert not second.HasField("share_id")
        assert prepared.claims["uid-2"].error == "no"
        back = message_class(f"{V1}.NodeUnprepareResourcesResponse").FromString(
            await channel.unary(f"{prefix}UnprepareResources", data, timeout=10)
        )
        assert {uid: each.error for uid, each in back.claims.items()} == {
            "uid-1": "",
            "uid-2": "no",
        }
        assert service.asked == [tuple(ClaimReference(**each) for each in claims)] * 2
        with pytest.raises(RpcError, match="cannot read the request"):
            await channel.unary(f"{prefix}PrepareResources", b"\x0a\x05", timeout=10)
    finally:
        await channel.close()
        await server.stop()


@pytest.mark.parametrize("service_name", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
async def test_health_is_streamed(service_name: str, short_dir: Path) -> None:
    """Each list is complete, also an empty one."""
    version = service_name.partition(".")[0]
    server = GrpcServer(dra_methods(Service()), name="test")
    await server.start(short_dir / "dra.sock")
    channel = await GrpcChannel.dial(short_dir / "dra.sock", timeout=10)
    try:
        async with asyncio.timeout(60):
            method = f"/{service_name}/NodeWatchResources"
            lists = [
                message_class(f"{version}.NodeWatchResourcesResponse").FromString(each)
                async for each in channel.stream(method, b"")
            ]
        ((device,), nothing) = (each.devices for each in lists)
        assert (device.device.pool_name, device.device.device_name) == ("node1", "gpu-0")
        assert (device.health, device.last_updated_time) == (2, 1_700_000_000)
        assert device.message == "hot"
        assert not nothing
    finally:
        await channel.close()
        await server.stop()
