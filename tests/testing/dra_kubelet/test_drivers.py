"""`Drivers`: the end of the stand-in for a kubelet."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubedevices.errors import RpcError
from kubedevices.kubelet_api.dra import HEALTH_SERVICES, PLUGIN_TYPE
from kubedevices.testing.dra_kubelet.drivers import Drivers
from kubedevices.values.allocation import ClaimReference, PluginInfo
from kubedevices.wire.unix_grpc import GrpcServer, StreamMethod
from tests.testing.dra_kubelet.test_claim_manager import SlowDriver, serving
from tests.waiting import until

CLAIM = ClaimReference("ns", "uid", "claim")


async def _delete_no_slices(_: str) -> None:
    """There is no API server."""


async def test_stop_ends_calls_to_a_removed_instance(short_dir: Path) -> None:
    """Its registration socket is removed, and its last call would go on for 45 seconds."""
    driver = SlowDriver()
    drivers = Drivers(_delete_no_slices, lambda name, health: None)
    async with asyncio.timeout(10), serving(short_dir, driver) as socket:
        info = PluginInfo(PLUGIN_TYPE, "x.com", str(socket), ("v1.DRAPlugin",))
        await drivers.connect(info, socket)
        call = asyncio.create_task(drivers.get("x.com", "prepare").prepare([CLAIM]))
        await until(lambda: driver.calls)
        drivers.disconnect("x.com", socket)
        await drivers.stop()
        with pytest.raises(RpcError):
            await call


@pytest.mark.parametrize(
    ("named", "called"),
    [
        (("v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth"), "v1.DRAResourceHealth"),
        (("v1alpha1.DRAResourceHealth",), "v1alpha1.DRAResourceHealth"),
        ((), "v1alpha1.DRAResourceHealth"),
    ],
)
async def test_health_is_asked_in_the_newest_version_of_the_driver(
    short_dir: Path, named: tuple[str, ...], called: str
) -> None:
    """As kubelet 1.37 does."""
    asked: asyncio.Queue[str] = asyncio.Queue()

    def watching(service: str) -> StreamMethod:
        async def watch(_payload: bytes) -> AsyncIterator[bytes]:
            asked.put_nowait(service)
            yield b""
            await asyncio.Event().wait()

        return StreamMethod(watch)

    socket = short_dir / "dra.sock"
    methods = {f"/{each}/NodeWatchResources": watching(each) for each in HEALTH_SERVICES}
    server = GrpcServer(methods, name="driver")
    await server.start(socket)
    drivers = Drivers(_delete_no_slices, lambda name, health: None)
    info = PluginInfo(PLUGIN_TYPE, "x.com", str(socket), ("v1.DRAPlugin", *named))
    await drivers.connect(info, socket)
    async with asyncio.timeout(10):
        assert await asked.get() == called
        await drivers.stop()
        await server.stop()
