"""A node with both device APIs, for a scanner whose devices change the API.

The kubelet has three parts here: its device manager (`FakeKubelet`), its podresources socket, and
the calls to the DRA service, which a test makes.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import kubedevices as kd
from kubedevices.dra.device_plugin_guard import GuardTiming
from kubedevices.errors import RpcError, StatusCode
from kubedevices.kubelet_api.pod_resources import (
    ContainerEntry,
    DeviceEntry,
    PodEntry,
    allocatable_to_wire,
    pod_resources_methods,
    pod_to_wire,
)
from kubedevices.plugin.timing import Timing
from kubedevices.serving.handover import HandoverTiming
from kubedevices.serving.switch import ApiSwitch
from kubedevices.values.allocation import AllocateRequest, ContainerAllocateRequest
from kubedevices.values.scheduling.kinds import Object
from kubedevices.wire.unix_grpc import GrpcChannel, GrpcServer
from tests.dra.cluster import OneNode, claim_of, write_kubeconfig
from tests.fake_kubelet import FakeKubelet
from tests.kubelet_api.protobuf_classes import message_class
from tests.waiting import until

DOMAIN = "example.com"
BOTH = {"w-0", "w-1"}
RESOURCE = f"{DOMAIN}/widget"
V1 = "k8s.io.kubelet.pkg.apis.dra.v1"
QUICK = {
    "guard_timing": GuardTiming(pending=0.02, idle=0.1, young=0.0),
    "handover_timing": HandoverTiming(
        look=0.02, drain=0.05, withdrawn=0.05, allocated=0.1, returning=0.05
    ),
    "timing": Timing(look_interval=0.05),
}


class Widgets(kd.PolledScanner):
    interval = 3600

    def __init__(self, count: int = 2) -> None:
        self.devices = [kd.Device(f"w-{n}", env={"W": str(n)}) for n in range(count)]

    def list_devices(self) -> kd.DeviceTree:
        return kd.DeviceTree({"widget": self.devices})


class PodResources:
    """The kubelet's answers: pods of `held`, and the healthy devices of open lists."""

    def __init__(self, kubelet: FakeKubelet) -> None:
        self.kubelet = kubelet
        self.held: dict[str, str] = {}
        self.others: frozenset[str] = frozenset()
        """What a device plugin of somebody else offers."""
        self.is_broken = False
        self.questions = 0

    @property
    def offered(self) -> frozenset[str]:
        """The healthy devices, as the scheduler counts them."""
        listed = self.kubelet.devices(RESOURCE).items()
        return self.others | {name for name, health in listed if health == "Healthy"}

    async def list_pods(self) -> list[bytes]:
        self._check()
        return [
            pod_to_wire(
                PodEntry(pod, "default", (ContainerEntry("c", (DeviceEntry(RESOURCE, (name,)),)),))
            )
            for name, pod in self.held.items()
        ]

    async def get_pod(self, name: str, namespace: str) -> bytes:
        raise NotImplementedError

    async def get_allocatable(self) -> bytes:
        self._check()
        entries = [DeviceEntry(RESOURCE, (name,)) for name in self.offered]
        return b"".join(map(allocatable_to_wire, entries))

    async def list_pods_v1alpha1(self) -> list[PodEntry]:
        raise NotImplementedError

    def _check(self) -> None:
        self.questions += 1
        if self.is_broken:
            raise RpcError(StatusCode.UNKNOWN, "not now")


class NodeRig:
    """Checks at short intervals that no device is offered or held twice; `check` fails then."""

    def __init__(self, directory: Path, api: OneNode, kubelet: FakeKubelet) -> None:
        self.directory, self.api, self.kubelet = directory, api, kubelet
        self.pods = PodResources(kubelet)
        self.scanner = Widgets()
        self.mode_file = directory / "mode"
        self.twice: list[str] = []
        self.options: dict[str, Any] = {
            "socket_dir": kubelet.socket_dir,
            "kubelet_dir": directory / "k",
            "node_name": "node1",
            "kubeconfig": directory / "config",
            "cdi_dir": directory / "cdi",
            "mode_file": self.mode_file,
            **QUICK,
        }
        api.store.admit = self._look_at
        write_kubeconfig(directory / "config", api.url)

    def _look_at(self, plural: str, made: Object) -> None:
        if plural == "resourceslices":
            self.look({each["name"] for each in made["spec"].get("devices", [])})

    @property
    def service(self) -> Path:
        directory = self.directory / "k" / "plugins" / DOMAIN
        return max(directory.glob("dra.*.sock"), default=directory / "dra.sock")

    @property
    def published(self) -> set[str]:
        """The devices of the slices."""
        return {name for part in self.api.devices for name in part}

    @property
    def steps(self) -> int:
        """The number of questions to the kubelet and the API server, and of sent lists."""
        lists = len(self.kubelet.lists(RESOURCE))
        return lists + self.pods.questions + len(self.api.requests)

    def has_made(self, steps: int, since: int) -> bool:
        """Whether at least so many `steps` happened since the count `since`."""
        return self.steps >= since + steps

    @property
    def claimed(self) -> set[str]:
        """The devices of claims, from the CDI files."""
        files = (self.directory / "cdi").glob("kubedevices_*claim_*.json")
        return {device for file in files for device in _devices_of(file)}

    def look(self, more: set[str] | None = None) -> None:
        """Record devices that both APIs offer or hold."""
        offered = self.pods.offered - self.pods.others
        if both := offered & (self.published | (more or set())):
            self.twice.append(f"offered: {sorted(both)}")
        if held := self.pods.held.keys() & self.claimed:
            self.twice.append(f"held: {sorted(held)}")

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.002)

    def choose(self, mode: str) -> None:
        """Write the mode as an administrator does."""
        new = self.directory / "new"
        new.write_text(f"{mode}\n")
        new.rename(self.mode_file)

    @contextlib.asynccontextmanager
    async def serving(self, mode: Any = "device-plugin", **more: Any) -> AsyncIterator[ApiSwitch]:
        options = self.options | more
        async with kd.serve(self.scanner, domain=DOMAIN, mode=mode, **options) as switch:
            yield switch

    @contextlib.asynccontextmanager
    async def settled(self, mode: str = "device-plugin", **more: Any) -> AsyncIterator[ApiSwitch]:
        """Serve in `mode`, after both devices are in its API."""
        if mode == "dra":
            self.choose(mode)
        async with self.serving(**more) as switch:
            await until(lambda: (self.published if mode == "dra" else self.pods.offered) == BOTH)
            yield switch

    async def asked_again(self, count: int) -> None:
        """Wait until the kubelet has had more than `count` further questions."""
        asked = self.pods.questions
        await until(lambda: self.pods.questions > asked + count)

    # ------------------------------------------------------------ what a kubelet does

    async def allocate(self, device: str, pod: str) -> None:
        """Start a pod with a device of the device plugin."""
        (connected,) = self.kubelet.connected(RESOURCE)
        request = AllocateRequest((ContainerAllocateRequest((device,)),))
        await connected.client.allocate(request, timeout=60)
        self.pods.held[device] = pod

    async def prepare(self, *claims: str) -> dict[str, str]:
        """Prepare claims; return the error of each."""
        return await self._call("NodePrepareResources", claims)

    async def unprepare(self, *claims: str) -> dict[str, str]:
        return await self._call("NodeUnprepareResources", claims)

    async def end(self, claim: str) -> dict[str, str]:
        """Unprepare a claim after its last pod, and deallocate it as Kubernetes does."""
        answer = await self.unprepare(claim)
        self.api.take(claim)
        return answer

    def give(self, claim: str, *devices: str) -> None:
        """Let the scheduler give devices to a claim."""
        self.api.give(claim, claim_of(uid_of(claim), *devices))

    async def _call(self, method: str, claims: Sequence[str]) -> dict[str, str]:
        asked = [{"namespace": "default", "uid": uid_of(each), "name": each} for each in claims]
        request = message_class(f"{V1}.{method}Request")(claims=asked)
        async with await GrpcChannel.dial(self.service, timeout=60) as channel:
            path = f"/{V1}.DRAPlugin/{method}"
            answer = await channel.unary(path, request.SerializeToString(), timeout=60)
        found = message_class(f"{V1}.{method}Response").FromString(answer).claims
        return {each: found[uid_of(each)].error for each in claims}


def uid_of(claim: str) -> str:
    return f"{claim:0>8}-0000-4000-8000-000000000000"


def _devices_of(file: Path) -> Iterator[str]:
    try:
        spec: Object = json.loads(file.read_text())
    except FileNotFoundError:
        return
    for each in spec["devices"]:
        yield each["name"][37:]


@contextlib.asynccontextmanager
async def a_node(directory: Path) -> AsyncIterator[NodeRig]:
    """Run the node; at the end check that no device was in both APIs at any time."""
    (sockets := directory / "k" / "device-plugins").mkdir(parents=True)
    (directory / "k" / "pod-resources").mkdir()
    async with OneNode().running() as api, FakeKubelet(sockets) as kubelet:
        rig = NodeRig(directory, api, kubelet)
        server = GrpcServer(pod_resources_methods(rig.pods), name="podresources")
        await server.start(directory / "k" / "pod-resources" / "kubelet.sock")
        watch = asyncio.create_task(rig.watch())
        try:
            yield rig
        finally:
            watch.cancel()
            await asyncio.wait({watch})
            await server.stop()
        assert watch.cancelled(), watch.exception()
        assert not rig.twice
