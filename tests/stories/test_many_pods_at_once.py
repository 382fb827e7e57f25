"""Many pods at once, and plugins that answer late, differently and sometimes with an error."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Self

import pytest

from kubedevices.errors import AdmissionRejected, RpcError, StatusCode
from kubedevices.node.arrival.endpoint import PluginTimeouts
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.events import EventKind, NodeEvent
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.node.topology.options import check_settings
from kubedevices.values.allocation import ContainerPreferredRequest
from tests.fake_plugin import FakePlugin, healthy
from tests.gated_store import PodDevicesInMemory
from tests.waiting import until

GPU, NIC = "example.com/gpu", "example.com/nic"
PER_NODE = {GPU: 8, NIC: 6}
NODES = (0, 1)
PODS = 40
PATIENT = PluginTimeouts(dial=90, options=90, preferred=90, allocate=90)
"""A stalled machine is no reason to refuse a pod here."""

Held = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Container → resource → device IDs, which begin with their NUMA node."""


class SlowPlugin(FakePlugin):
    """Answers with a delay; prefers random devices; one of six calls fails."""

    def __init__(self, directory: Path, resource: str, random: Random) -> None:
        devices = [
            device
            for node in NODES
            for device in healthy(*(f"{node}-{n}" for n in range(PER_NODE[resource])), numa=(node,))
        ]
        name = resource.replace("/", "-")
        super().__init__(
            directory, resource, socket_name=name, devices=devices, preferred=self._prefer
        )
        self._random, self._fails = random, False

    def _prefer(self, request: ContainerPreferredRequest) -> Sequence[str]:
        rest = sorted({*request.available} - {*request.must_include})
        more = self._random.sample(rest, request.size - len(request.must_include))
        return [*request.must_include, *more]

    async def _behave(self, method: str) -> None:
        for _ in range(self._random.randrange(20) if method in ("preferred", "allocate") else 0):
            await asyncio.sleep(0)
        if self._fails and method == "allocate" and self._random.randrange(6) == 0:
            raise RpcError(StatusCode.INTERNAL, "not today")


class Node:
    """A device manager with two slow plugins, and all its events."""

    def __init__(self, directory: Path, seed: int, policy: str, scope: str) -> None:
        self.random = Random(seed)
        self.manager = DeviceManager(
            directory,
            store=PodDevicesInMemory(),
            settings=NodeSettings(
                timeouts=PATIENT, topology=check_settings(policy, scope, numa_nodes=NODES)
            ),
        )
        self.plugins = [SlowPlugin(directory, name, self.random) for name in PER_NODE]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.manager)
        for plugin in self.plugins:
            await self._stack.enter_async_context(plugin)
            await plugin.register()
            await until(lambda plugin=plugin: self.manager.inventory.has_reported(plugin.resource))  # type: ignore[misc]
            plugin._fails = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def limits(self) -> dict[str, int]:
        """Return limits for one or both resources."""
        wanted = {GPU: self.random.randint(1, 4), NIC: self.random.randint(1, 3)}
        return {name: wanted[name] for name in self.random.choice([[GPU], [NIC], [GPU, NIC]])}

    async def admit(self, pods: Sequence[Pod]) -> dict[str, Held]:
        """Admit all pods at once; return the devices of the admitted pods."""

        async def admit(pod: Pod) -> tuple[str, Held | None]:
            try:
                return pod.name, await self.manager.allocate(pod)
            except AdmissionRejected:
                return pod.name, None

        answers = await asyncio.wait_for(asyncio.gather(*map(admit, pods)), 90)
        return {name: held for name, held in answers if held is not None}


def nodes_of(held: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Return the NUMA nodes of a container's devices."""
    return {each.partition("-")[0] for ids in held.values() for each in ids}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
async def test_no_admitted_pod_breaks_its_policy(
    short_dir: Path, policy: str, scope: str, seed: int
) -> None:
    """Each request fits on one NUMA node, so each container, or each pod, is on one NUMA node."""
    async with Node(short_dir, seed, policy, scope) as node:
        pods = [
            Pod(
                f"pod{n}",
                init_containers=tuple(
                    Container(f"i{m}", node.limits(), is_sidecar=node.random.random() < 0.5)
                    for m in range(node.random.randrange(2))
                ),
                containers=tuple(
                    Container(f"c{m}", node.limits()) for m in range(node.random.randint(1, 2))
                ),
            )
            for n in range(PODS)
        ]
        for round_ in range(2):
            admitted = await node.admit(pods)
            assert admitted
            for held in admitted.values():
                per_container = [nodes_of(each) for each in held.values()]
                if scope == "pod":
                    per_container = [set().union(*per_container)]
                assert all(len(nodes) == 1 for nodes in per_container), held
            for pod in pods[round_::2]:
                await node.manager.release(pod.uid)


class Replay:
    """The free devices, from the events. It shares no code with the node."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        self.wanted = {pod.full_name: pod.containers[0].limits for pod in pods}
        self.free = {(r, str(n)): PER_NODE[r] for r in PER_NODE for n in NODES}

    def follow(self, event: NodeEvent) -> None:
        sign = {EventKind.ALLOCATED: -1, EventKind.RELEASED: 1}.get(event.kind, 0)
        if sign:
            held = event.details["containers"].values() if sign < 0 else [event.details["devices"]]
            for resource, ids in (item for each in held for item in each.items()):
                for device_id in ids:
                    self.free[resource, device_id.partition("-")[0]] += sign

    def would_fit(self, pod: str, policy: str) -> bool:
        wanted = self.wanted[pod].items()
        places = [NODES] if policy == "none" else [(node,) for node in NODES]
        return any(
            all(
                sum(self.free[name, str(node)] for node in nodes) >= count for name, count in wanted
            )
            for nodes in places
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("policy", "scope"),
    [
        ("none", "container"),
        ("restricted", "container"),
        ("restricted", "pod"),
        ("single-numa-node", "container"),
        ("single-numa-node", "pod"),
    ],
)
async def test_every_pod_that_a_serial_node_admits_is_admitted(
    short_dir: Path, policy: str, scope: str, seed: int
) -> None:
    """In the order of the answers, no refused pod would have fitted.

    Each pod has one container that fits on one NUMA node, so both scopes and policies act alike."""
    async with Node(short_dir, seed, policy, scope) as node:
        pods = [Pod(f"p{n}", containers=(Container("c", node.limits()),)) for n in range(PODS)]
        with node.manager.subscribe() as events:
            admitted = await node.admit(pods)
            replay, refused = Replay(pods), 0
            for event in [*events.backlog]:
                replay.follow(event)
                if event.kind is EventKind.REJECTED and "not today" not in event.details["message"]:
                    refused += 1
                    assert not replay.would_fit(event.pod, policy), event
        assert refused
        assert admitted
