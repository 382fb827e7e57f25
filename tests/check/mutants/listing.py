"""Lists and streams."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

from tests.check import wire_names as wire
from tests.check.good_plugin import Device, GoodPlugin
from tests.check.mutants.registry import mutation


@mutation("first-list-late", fails=["list.first-message"])
class FirstListLate(GoodPlugin):
    """Begins its first scan when a stream opens, and the scan takes long."""

    looked = False

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        if not self.looked:
            self.looked = True
            waiting = object()
            self.streams.add(waiting)
            await asyncio.sleep(3.2)
            self.streams.discard(waiting)
        async for each in super().ListAndWatch(request, context):
            yield each


@mutation("first-list-empty", warns=["list.complete"])
class FirstListEmpty(GoodPlugin):
    """Sends an empty list first, shortly after its start."""

    began = False
    seconds = 0.01

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        if not self.began:
            self.began = True
            waiting = object()
            self.streams.add(waiting)
            yield wire.ListAndWatchResponse()
            await asyncio.sleep(self.seconds)
            self.streams.discard(waiting)
        async for each in super().ListAndWatch(request, context):
            yield each


@mutation("first-list-empty-for-long", fails=["list.complete"])
class FirstListEmptyForLong(FirstListEmpty):
    """Sends an empty list first, for longer than a second."""

    seconds = 1.2


@mutation("empty-id", fails=["list.id-present"])
class EmptyId(GoodPlugin):
    """Has a device with an empty ID."""

    def scan(self) -> dict[str, Device]:
        return super().scan() | {"": Device(self.device_dir / "w0", "Unhealthy")}


@mutation("double-id", fails=["list.id-unique"])
class DoubleId(GoodPlugin):
    """Lists a device twice, like kubevirt's kvm plugin."""

    def device_list(self) -> Any:
        response = super().device_list()
        response.devices.append(response.devices[0])
        return response


@mutation("long-id", warns=["list.id-length"])
class LongId(GoodPlugin):
    """Has IDs of more than 63 characters."""

    def scan(self) -> dict[str, Device]:
        return {f"{'x' * 60}-{name}": device for name, device in super().scan().items()}


@mutation("lower-case-health", fails=["list.health"])
class LowerCaseHealth(GoodPlugin):
    """Writes the health of one device in lower case."""

    def scan(self) -> dict[str, Device]:
        return super().scan() | {"w9": Device(self.device_dir / "w0", "healthy")}


@mutation("rocm-numa-minus-one", fails=["list.numa"])
class NumaMinusOne(GoodPlugin):
    """Sends numa_node as it is in sysfs, like ROCm."""

    numa_node = -1


@mutation(
    "numa-unknown-node",
    warns=["list.numa"],
    says={"list.numa": "in /sys/devices/system/node/online"},
)
class NumaUnknownNode(GoodPlugin):
    """Sends a NUMA node that this machine does not have."""

    numa_node = 777


@mutation(
    "numa-node-twice",
    warns=["list.numa"],
    says={"list.numa": "has a NUMA node twice: 0, 0"},
)
class NumaNodeTwice(GoodPlugin):
    """Sends the NUMA node of each host file, so a NUMA node may occur twice."""

    def device_list(self) -> Any:
        response = super().device_list()
        for entry in response.devices:
            entry.topology.nodes.add(ID=self.numa_node)
        return response


@mutation("volcano-list-too-large", fails=["list.size"])
class ListTooLarge(GoodPlugin):
    """Has too many devices for 4 MiB, like volcano and HAMi; here only in its first list."""

    was_sent = False

    def device_list(self) -> Any:
        response = super().device_list()
        if not self.was_sent:
            self.was_sent = True
            for i in range(60000):
                response.devices.add(ID=f"x{i:062}", health="Unhealthy")
        return response


@mutation("second-stream-short", fails=["list.second-stream"])
class SecondStreamShort(GoodPlugin):
    """Sends only a part of the list to a second stream."""

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        is_second = bool(self.streams)
        async for each in super().ListAndWatch(request, context):
            if is_second:
                del each.devices[1:]
                is_second = False
            yield each


@mutation("slow-reader-blocks", fails=["list.slow-reader"])
class SlowReaderBlocks(GoodPlugin):
    """Holds a lock while it sends."""

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self.sending = asyncio.Lock()

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for each in super().ListAndWatch(request, context):
            await self.sending.acquire()
            try:
                yield each
            finally:
                self.sending.release()


@mutation("order-at-random", warns=["list.order"])
class OrderAtRandom(GoodPlugin):
    """Sends the devices in random order."""

    def device_list(self) -> Any:
        response = super().device_list()
        devices = list(response.devices)
        random.shuffle(devices)
        del response.devices[:]
        response.devices.extend(devices)
        return response


@mutation("stream-ends", fails=["list.stays-open"])
class StreamEnds(GoodPlugin):
    """Returns after the first list."""

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield self.device_list()
        await asyncio.sleep(0.3)

    async def until_lost(self) -> None:
        self.streams.add(self)
        await super().until_lost()


@mutation("rocm-resends", warns=["list.identical"])
class Resends(GoodPlugin):
    """Sends the same list again and again, like ROCm with -pulse."""

    async def keep_scanning(self) -> None:
        async def pulse() -> None:
            while True:
                await asyncio.sleep(0.3)
                await self.announce()

        self.pulsing = asyncio.create_task(pulse())
        await super().keep_scanning()


@mutation("flaps", warns=["list.steady"])
class Flaps(GoodPlugin):
    """Has a device that appears and vanishes again and again."""

    count = 0

    def scan(self) -> dict[str, Device]:
        self.count += 1
        extra = {"w8": Device(self.device_dir / "w0", "Unhealthy")}
        return super().scan() | (extra if self.count // 20 % 2 else {})


@mutation("generic-streams-share-a-queue", fails=["list.change"])
class StreamsShareAQueue(GoodPlugin):
    """Lets all streams read one queue, like generic-device-plugin and Intel's."""

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self.queue: asyncio.Queue[None] = asyncio.Queue()

    async def announce(self) -> None:
        await super().announce()
        self.queue.put_nowait(None)

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        streams, one = self.streams, object()
        streams.add(one)
        try:
            while True:
                yield self.device_list()
                await self.queue.get()
        finally:
            streams.discard(one)


@mutation("dpm-withdrawn-resource-served", fails=["list.change"])
class WithdrawnResourceServed(GoodPlugin):
    """Withdraws a resource: it ends the streams, but the socket still accepts calls: dpm."""

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        lists = super().ListAndWatch(request, context)
        yield await anext(lists)
        await anext(lists)
        await asyncio.sleep(0.05)


@mutation("nvidia-one-replica-unhealthy", warns=["list.replicas"])
class OneReplicaUnhealthy(GoodPlugin):
    """Marks only one replica of a broken device as unhealthy, like NVIDIA's plugin did."""

    def scan(self) -> dict[str, Device]:
        found = super().scan()
        if len(found) > 6:
            found["w0::1"] = found["w0::1"]._replace(health="Unhealthy")
        return found


@mutation(
    "one-replica-unhealthy-for-one-stream",
    fails=["list.change"],
    warns=["list.replicas"],
    says={"list.replicas": "some replicas healthy, some not"},
)
class OneReplicaForOneStream(OneReplicaUnhealthy, StreamsShareAQueue):
    """The same, and only one stream gets the change: afterwards the plugin is a new process."""


@mutation("nvidia-never-recovers", warns=["list.recovers"])
class NeverRecovers(GoodPlugin):
    """Leaves a device unhealthy after a short failure, like NVIDIA's plugin after an XID error.

    Here the device is w1, and the failure is the third new file.
    """

    is_hurt = False

    def scan(self) -> dict[str, Device]:
        found = super().scan()
        self.is_hurt |= any(name.startswith("new-3") for name in found)
        return {
            name: device._replace(health="Unhealthy")
            if self.is_hurt and name.startswith("w1")
            else device
            for name, device in found.items()
        }


@mutation("tells-no-open-stream", fails=["list.change", "life.lost-updates"])
class TellsNoOpenStream(GoodPlugin):
    """Sends the current list to new streams only; open streams get no update."""

    async def announce(self) -> None:
        pass
