"""A plugin gives the same results to our client, to grpcio, to grpclib and to grpc-go."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

import kubedevices as kd
from kubedevices.errors import RpcError
from kubedevices.kubelet_api import convert, services
from kubedevices.kubelet_api.device_lists import device_list_from_wire
from kubedevices.serving.modes import serve
from kubedevices.values.allocation import ContainerAllocateRequest, ContainerPreferredRequest
from tests.interop import go_peer
from tests.waiting import until
from tests.widgets import DOMAIN, Widgets
from tests.wire.peer_clients import (
    GrpcGoClient,
    GrpcioClient,
    GrpclibClient,
    OurClient,
    PeerClient,
)


class Plugin(Widgets, kd.PreferredAllocator, kd.ContainerPreStarter):
    """A plugin with two of the optional calls; PreStartContainer fails for one device."""

    def get_preferred_allocation(
        self, request: kd.PreferredAllocationRequest
    ) -> kd.PreferredAllocationResponse:
        return kd.PreferredAllocationResponse((("w2",),))

    def pre_start_container(self, request: kd.PreStartContainerRequest) -> None:
        if "w1" in request.device_ids:
            raise ValueError("kein Rücksetzer für w1: 100 %")


def devices() -> list[kd.Device]:
    return [
        kd.Device("w1", paths=["/dev/null"], env={"A": "ä"}, numa_nodes=(0, 1)),
        kd.Device("w2", mounts=[kd.Mount("/host", "/there", read_only=True)], numa_nodes=()),
        kd.Device("bad", health=kd.Health.UNHEALTHY, cdi="example.com/widget=bad", numa_nodes=(0,)),
    ]


@pytest.fixture(params=[GrpcioClient, GrpclibClient, GrpcGoClient], ids=["grpcio", "grpclib", "go"])
async def pair(
    request: pytest.FixtureRequest, short_dir: Path
) -> AsyncIterator[tuple[PeerClient, PeerClient, Plugin]]:
    """Give a foreign client and ours, both connected to one plugin, and the plugin's scanner."""
    scanner = Plugin(widget=devices())
    if request.param is GrpcGoClient:
        go_peer.binary()  # skips
    path = short_dir / "example.com-widget.sock"
    async with serve(scanner, domain=DOMAIN, socket_dir=short_dir, registration="none") as runner:
        await until(lambda: runner.is_serving("widget"))
        theirs, ours = await request.param.dial(path), await OurClient.dial(path)
        yield theirs, ours, scanner
        await theirs.close()
        await ours.close()


Pair = tuple[PeerClient, PeerClient, Plugin]


def allocation(*ids: str) -> bytes:
    return convert.ALLOCATE_REQUEST.to_wire(kd.AllocateRequest((ContainerAllocateRequest(ids),)))


CALLS = {
    "options": (services.GET_DEVICE_PLUGIN_OPTIONS, b""),
    "allocate": (services.ALLOCATE, allocation("w2", "w1")),
    "allocate unknown": (services.ALLOCATE, allocation("w9")),
    "allocate unhealthy": (services.ALLOCATE, allocation("bad")),
    "allocate nonsense": (services.ALLOCATE, b"\xff\xff\xff"),
    "preferred": (
        services.GET_PREFERRED_ALLOCATION,
        convert.PREFERRED_REQUEST.to_wire(
            kd.PreferredAllocationRequest((ContainerPreferredRequest(("w1", "w2"), ("w2",), 1),))
        ),
    ),
    "pre start": (
        services.PRE_START_CONTAINER,
        convert.PRE_START_REQUEST.to_wire(kd.PreStartContainerRequest(("w2",))),
    ),
    "pre start failing": (
        services.PRE_START_CONTAINER,
        convert.PRE_START_REQUEST.to_wire(kd.PreStartContainerRequest(("w1",))),
    ),
    "unknown method": ("/v1beta1.DevicePlugin/Deallocate", b""),
}


async def answer(client: PeerClient, method: str, payload: bytes) -> object:
    try:
        return await client.unary(method, payload)
    except RpcError as error:
        return error.code, error.message


@pytest.mark.parametrize(("method", "payload"), CALLS.values(), ids=CALLS)
async def test_all_clients_get_the_same_answers(pair: Pair, method: str, payload: bytes) -> None:
    """Bytes, status codes and texts are equal for every client, also in a second call."""
    theirs, ours, _ = pair
    expected = await answer(ours, method, payload)
    for _ in range(2):
        assert await answer(theirs, method, payload) == expected


async def test_all_clients_get_the_same_lists(pair: Pair) -> None:
    """Every stream gets the current list and the next list, byte for byte."""
    theirs, ours, scanner = pair
    async with (
        aclosing(theirs.stream(services.LIST_AND_WATCH, b"")) as their_lists,
        aclosing(ours.stream(services.LIST_AND_WATCH, b"")) as our_lists,
    ):
        first = await anext(our_lists)
        assert await anext(their_lists) == first
        assert len(device_list_from_wire(first)) == 3
        scanner.show(widget=devices()[:2])
        second = await anext(our_lists)
        assert await anext(their_lists) == second
        assert len(device_list_from_wire(second)) == 2


async def test_a_long_list_reaches_every_client(pair: Pair) -> None:
    """Ten thousand devices, far more than one flow-control window."""
    theirs, _, scanner = pair
    scanner.show(widget=[kd.Device(f"widget-{n}", numa_nodes=(0,)) for n in range(10_000)])
    async with aclosing(theirs.stream(services.LIST_AND_WATCH, b"")) as lists:
        while len(found := device_list_from_wire(await anext(lists))) != 10_000:
            assert len(found) == 3
