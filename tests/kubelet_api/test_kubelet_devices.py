"""What a kubelet says over podresources, as one listing."""

import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from kubedevices.errors import CannotAsk, DialError, KubeletSilent, RpcError, StatusCode
from kubedevices.kubelet_api import kubelet_devices
from kubedevices.kubelet_api.kubelet_devices import ask_kubelet, describe_pod_resources
from kubedevices.kubelet_api.pod_resources import (
    POD_LIST,
    ClaimedDevice,
    ClaimEntry,
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    allocatable_to_wire,
    pod_resources_methods,
)
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.kubelet_api.protobuf_classes import message_class

GPU = "example.com/gpu"


def test_both_answers_of_a_kubelet_make_one_listing() -> None:
    """A device on two NUMA nodes is one device; held and not healthy is Unknown."""
    allocatable = [DeviceEntry(GPU, ("a",), (0,)), DeviceEntry(GPU, ("a",), (1,))]
    held = (*allocatable, DeviceEntry(GPU, ("b",)))
    pods = [PodEntry("p", "default", (ContainerEntry("c", held),))]
    holder = {"namespace": "default", "pod": "p", "uid": "", "container": "c"}
    assert describe_pod_resources(allocatable, pods) == {
        "resources": [
            {
                "resource": GPU,
                "capacity": None,
                "allocatable": 1,
                "held": 2,
                "plugin": None,
                "devices": [
                    {"id": "a", "health": "Healthy", "numa_nodes": [0, 1], "held_by": [holder]},
                    {"id": "b", "health": "Unknown", "numa_nodes": [], "held_by": [holder]},
                ],
            }
        ],
        "claims": [],
    }


class Kubelet:
    """A podresources service that refuses its first calls with `error`."""

    def __init__(self, refusals: int, error: RpcError) -> None:
        self._refusals, self._error = refusals, error
        self.calls = 0

    async def get_allocatable(self) -> bytes:
        self.calls += 1
        if self.calls <= self._refusals:
            raise self._error
        return allocatable_to_wire(DeviceEntry(GPU, ("a",)))

    async def list_pods(self) -> list[bytes]:
        return []

    async def get_pod(self, name: str, namespace: str) -> bytes:
        raise NotImplementedError

    async def list_pods_v1alpha1(self) -> list[PodEntry]:
        raise NotImplementedError


TOO_OFTEN = RpcError(StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")


async def ask(path: Path, kubelet: Kubelet) -> dict[str, Any]:
    server = GrpcServer(pod_resources_methods(kubelet), name="podresources")
    await server.start(path)
    try:
        return await ask_kubelet(path)
    finally:
        await server.stop()


async def test_a_kubelet_that_is_asked_too_often_is_asked_again(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet answers 100 calls per second of all clients; after a pause it answers us."""
    monkeypatch.setattr(kubelet_devices, "_PAUSES", (0.01,) * 3)
    kubelet = Kubelet(3, TOO_OFTEN)
    (resource,) = (await ask(short_dir / "s", kubelet))["resources"]
    assert (resource["allocatable"], kubelet.calls) == (1, 4)
    with pytest.raises(CannotAsk, match="rate limit"):
        await ask(short_dir / "s", Kubelet(100, TOO_OFTEN))


@pytest.mark.parametrize(
    "error",
    [
        RpcError(StatusCode.RESOURCE_EXHAUSTED, "received message larger than max"),
        RpcError(StatusCode.UNIMPLEMENTED, "unknown method"),
    ],
)
async def test_an_error_that_a_pause_cannot_help_is_raised_at_once(
    short_dir: Path, error: RpcError
) -> None:
    """A response above the size limit stays too long."""
    kubelet = Kubelet(1, error)
    with pytest.raises(CannotAsk):
        await ask(short_dir / "s", kubelet)
    assert kubelet.calls == 1


async def test_a_frozen_kubelet_differs_from_a_missing_kubelet(short_dir: Path) -> None:
    """The kernel accepts connections for a frozen kubelet, but the kubelet does not answer."""
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(path))
        frozen.listen()
        with pytest.raises(KubeletSilent) as caught:
            await ask_kubelet(path, timeout=0.1)
        assert (caught.value.path, caught.value.seconds) == (str(path), 0.1)
    with pytest.raises(CannotAsk) as refused:
        await ask_kubelet(path)
    assert not isinstance(refused.value, KubeletSilent)


def test_a_pod_without_a_namespace_is_shown_by_its_uid() -> None:
    """Our node knows only the UIDs of pods that it read from a checkpoint."""
    pods = [PodEntry("uid-9", "", (ContainerEntry("c", (DeviceEntry(GPU, ("g0",), None),)),))]
    [resource] = describe_pod_resources((), pods)["resources"]
    assert resource["devices"][0]["held_by"] == [
        {"namespace": "", "pod": "", "uid": "uid-9", "container": "c"}
    ]


async def test_a_user_without_permission_is_told_to_ask_as_root(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may use all sockets, so the test fakes the refusal."""

    async def refuse(path: Path, *, timeout: float) -> None:
        raise DialError(str(path), "permission denied", errno.EACCES)

    monkeypatch.setattr(GrpcChannel, "dial", refuse)
    with pytest.raises(CannotAsk, match="no permission to ask the kubelet") as caught:
        await ask_kubelet(short_dir / "s")
    assert str(caught.value).endswith(": ask again as root")


def test_the_claims_of_containers_are_read_from_the_kubelets_message() -> None:
    """The fields have the numbers of the API."""
    device = {
        "cdi_devices": [{"name": "gpu.vendor.org/gpu=0"}],
        "driver_name": "gpu.vendor.org",
        "pool_name": "node1",
        "device_name": "gpu-0",
        "share_id": "share-1",
    }
    claim = {"claim_name": "c1", "claim_namespace": "lab", "claim_resources": [device]}
    container = {"name": "main", "dynamic_resources": [claim]}
    message = message_class("v1.ListPodResourcesResponse")(
        pod_resources=[{"name": "p", "namespace": "lab", "containers": [container]}]
    )
    (pod,) = POD_LIST.from_wire(message.SerializeToString())
    assert pod.containers[0].claims == (ClaimEntry("c1", "lab", (FIRST,)),)


FIRST = ClaimedDevice("gpu.vendor.org", "node1", "gpu-0", "share-1")


def test_claims_are_listed_by_driver_with_all_devices_and_holders() -> None:
    """Two containers of a pod may use different requests of a claim."""
    other = ClaimedDevice("gpu.vendor.org", "node1", "gpu-10")
    nic = ClaimedDevice("nic.vendor.org", "node1", "nic-0")
    containers = (
        ContainerEntry("a", (), (ClaimEntry("c1", "lab", (other, nic)),)),
        ContainerEntry("b", (), (ClaimEntry("c1", "lab", (FIRST, FIRST)), ClaimEntry("c2", "lab"))),
    )
    a, b = ({"namespace": "lab", "pod": "p", "uid": "", "container": each} for each in "ab")
    assert describe_pod_resources((), [PodEntry("p", "lab", containers)])["claims"] == [
        {
            "driver": "gpu.vendor.org",
            "claim": "lab/c1",
            "devices": ["gpu-0", "gpu-10"],
            "held_by": [a, b],
            "parts": [("node1", "gpu-10", ""), ("node1", "gpu-0", "share-1")],
        },
        {
            "driver": "nic.vendor.org",
            "claim": "lab/c1",
            "devices": ["nic-0"],
            "held_by": [a],
            "parts": [("node1", "nic-0", "")],
        },
    ]
