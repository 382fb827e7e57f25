"""Many pods, many plugins, everything at once and in random order: no device is ever held twice."""

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

import pytest

from kubedevices.errors import AdmissionRejected, RpcError, StatusCode
from kubedevices.node.arrival.endpoint import PluginTimeouts
from kubedevices.node.device_manager import DeviceManager
from kubedevices.node.pods.pod import Container, Pod
from kubedevices.node.settings import NodeSettings
from kubedevices.values.device import ReportedDevice
from tests.fake_plugin import FakePlugin, healthy, unhealthy
from tests.waiting import until


def check(manager: DeviceManager) -> None:
    """Check the rules: every device has one pod, and the reserved devices are the held devices."""
    held: dict[str, Counter[str]] = {}
    for pod in manager.pods():
        devices: dict[str, set[str]] = {}
        for resources in manager.get_allocation(pod.uid).values():
            for resource, ids in resources.items():
                devices.setdefault(resource, set()).update(ids)
        for resource, mine in devices.items():
            held.setdefault(resource, Counter()).update(mine)
    for resource, counter in held.items():
        assert set(counter.values()) == {1}, f"held twice: {counter}"
        assert set(counter) <= set(manager.inventory.reserved(resource))


def at_rest(manager: DeviceManager) -> None:
    """Check that no call is running and that exactly the held devices are reserved."""
    check(manager)
    held = manager.pod_devices.reserved()
    for resource in manager.inventory:
        assert set(manager.inventory.reserved(resource)) == held.get(resource, set())
        free = manager.inventory.record(resource)
        assert free is not None
        expected = set(manager.inventory.healthy(resource)) - held.get(resource, set())
        assert set(free.devices.free.all()) == expected


async def test_fifty_pods_over_ten_plugins_at_once(short_dir: Path) -> None:
    """Each pod needs three plugins; as many pods are admitted as there are devices."""
    directory = short_dir / "p"
    async with DeviceManager(directory) as manager, contextlib.AsyncExitStack() as stack:
        for n in range(10):
            ids = (f"d{i}" for i in range(12))
            plugin = FakePlugin(
                directory, f"example.com/r{n}", socket_name=f"{n}.sock", devices=healthy(*ids)
            )
            await stack.enter_async_context(plugin)
            await plugin.register()
            await manager.wait_for(plugin.resource, allocatable=12)

        async def admit(n: int) -> bool:
            limits = {f"example.com/r{(n + k) % 10}": 1 for k in range(3)}
            try:
                await manager.allocate(Pod(f"p{n}", containers=(Container("c", limits),)))
            except AdmissionRejected:
                return False
            return True

        admitted = await asyncio.gather(*map(admit, range(50)))
        assert sum(admitted) == 40  # 10 resources × 12 devices, three for each pod
        at_rest(manager)
        await asyncio.gather(*(manager.release(pod.uid) for pod in [*manager.pods()]))
        at_rest(manager)
        assert not len(manager.pod_devices)


@pytest.mark.parametrize("seed", range(4))
async def test_random_events_in_random_order(short_dir: Path, seed: int) -> None:
    """Pods come and go while plugins change lists, fail, crash, overlap and come back."""
    story = Story(short_dir / "p", random.Random(seed))
    await story.run(steps=150)


class Story:
    """Random events on a node; the seed determines all decisions of the test."""

    def __init__(self, directory: Path, dice: random.Random) -> None:
        self.directory, self.dice = directory, dice
        self.manager = DeviceManager(
            directory, settings=NodeSettings(timeouts=PluginTimeouts(allocate=0.05))
        )
        self.plugins: dict[str, FakePlugin] = {}
        self.admissions: set[asyncio.Task[None]] = set()
        self.number = 0

    async def run(self, steps: int) -> None:
        actions = [
            (self.admit, 40),
            (self.release, 25),
            (self.change_list, 15),
            (self.let_fail, 5),
            (self.crash, 3),
            (self.replace, 4),
            (self.register_again, 4),
            (self.drop_stream, 4),
        ]
        kinds, weights = zip(*actions, strict=True)
        async with self.manager, contextlib.AsyncExitStack() as self.stack:
            for name in ("r0", "r1", "r2"):
                await self.start_plugin(f"example.com/{name}")
            for action in self.dice.choices(kinds, weights, k=steps):
                await action()
                check(self.manager)
            await asyncio.gather(*self.admissions)
            await until(lambda: not self.manager._pod_queue._running)
            at_rest(self.manager)

    async def start_plugin(self, resource: str) -> None:
        self.number += 1
        plugin = FakePlugin(
            self.directory, resource, socket_name=f"{self.number}.sock", devices=self.devices()
        )
        await self.stack.enter_async_context(plugin)
        await plugin.register()
        self.plugins[resource] = plugin

    def devices(self) -> list[ReportedDevice]:
        return [
            (healthy if self.dice.random() < 0.8 else unhealthy)(f"d{n}")[0]
            for n in range(self.dice.randint(0, 8))
        ]

    def any_plugin(self) -> FakePlugin:
        return self.dice.choice([*self.plugins.values()])

    async def admit(self) -> None:
        self.number += 1
        pod = Pod(
            f"p{self.number}",
            init_containers=tuple(
                Container(f"i{n}", self.limits(), is_sidecar=self.dice.random() < 0.5)
                for n in range(self.dice.randint(0, 2))
            ),
            containers=(Container("c", self.limits()), Container("d", self.limits())),
        )

        async def try_it() -> None:
            with contextlib.suppress(AdmissionRejected):
                await self.manager.allocate(pod)

        task = asyncio.ensure_future(try_it())
        self.admissions.add(task)
        task.add_done_callback(self.admissions.discard)
        if self.dice.random() < 0.5:
            await task
        elif self.dice.random() < 0.2:
            await self.manager.release(pod.uid)

    def limits(self) -> dict[str, int]:
        wanted = self.dice.sample([*self.plugins], self.dice.randint(1, 2))
        return {resource: self.dice.randint(0, 2) for resource in wanted}

    async def release(self) -> None:
        if pods := [*self.manager.pods()]:
            await self.manager.release(self.dice.choice(pods).uid)

    async def change_list(self) -> None:
        await self.any_plugin().send(self.devices())

    async def let_fail(self) -> None:
        plugin = self.any_plugin()
        if plugin.errors.pop("allocate", None) is None:
            plugin.errors["allocate"] = RpcError(StatusCode.INTERNAL, "no")

    async def crash(self) -> None:
        plugin = self.any_plugin()
        await plugin.stop()
        await self.start_plugin(plugin.resource)

    async def replace(self) -> None:
        old = self.any_plugin()
        await self.start_plugin(old.resource)
        await old.stop()

    async def register_again(self) -> None:
        await self.any_plugin().register()

    async def drop_stream(self) -> None:
        await self.any_plugin().end_streams()
