"""One resource of the plugin under check, in the words of the checks. Short calls, clear findings.

Made anew for every check by the `Stage`, which knows the processes; this knows the conversation.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from kubedevices.allocation import AllocateResponse, ContainerAllocateResponse
from kubedevices.conformance.check import Broken, NotTried
from kubedevices.conformance.lost_time import until_set
from kubedevices.conformance.stage import Stage
from kubedevices.device import Health, natural_key
from kubedevices.errors import RpcError, WireError
from kubedevices.probe.arrival import Arrival
from kubedevices.probe.raw_http2 import RawConnection
from kubedevices.probe.session import ListStream, PluginSession, ReceivedList
from kubedevices.wire.http2_frames import DEFAULT_WINDOW
from kubedevices.words import some_of

T = TypeVar("T")

SEVERAL = 8
"""How many devices a check asks for when it asks for several."""

UNKNOWN_ID = "kubedevices-check-no-such-device"


class Plugin:
    """A registered plugin; `arrival` says how it came."""

    def __init__(self, arrival: Arrival, stage: Stage) -> None:
        self.arrival, self.stage = arrival, stage
        self.timing = stage.timing
        self.resource = arrival.resource

    @classmethod
    def of(cls, stage: Stage, resource: str) -> Self:
        """Return the plugin of one resource, as it registered last."""
        return cls(stage.last_arrival(resource), stage)

    @property
    def session(self) -> PluginSession:
        """The kubelet's connection to it."""
        if self.arrival.session is None:
            raise NotTried("a kubelet would have no connection to it")
        return self.arrival.session

    @property
    def socket(self) -> Path:
        """Where it serves."""
        return self.session.socket

    async def device_list(self) -> ReceivedList:
        """Return the latest list of the kubelet's stream, waiting for a first one."""
        stream = self.session.stream
        if stream is None or await self.first(stream, self.timing.late_list) is None:
            raise NotTried("it never sent a list of devices")
        if not stream.lists[0].devices:  # the first may be empty, and the devices follow
            await self.stage.wait_for(lambda: len(stream.lists) > 1, self.timing.hold)
        assert stream.latest
        return stream.latest

    async def healthy_ids(self) -> list[str]:
        """Return the IDs a kubelet could hand out; there is at least one."""
        ids = sorted(set((await self.device_list()).healthy), key=natural_key)
        if not ids:
            raise NotTried("it has no healthy device")
        return ids

    async def sure_ids(self) -> list[str]:
        """Return the same, first those that no change of the devices concerns."""
        ids = await self.healthy_ids()
        sure = self.stage.notes.changes.untouched(ids)
        return sorted(ids, key=lambda name: name not in sure)

    async def unhealthy_id(self) -> str:
        """Return the ID of a device that is listed as unhealthy."""
        for device in (await self.device_list()).devices:
            if device.health == Health.UNHEALTHY:
                return device.id
        raise NotTried("all of its devices are healthy")

    async def watch_quietly(self) -> None:
        """Ask nothing until the kubelet's stream has been watched long enough, or ended."""
        stream = self.session.stream
        assert stream
        left = self.timing.quiet - self.stage.spent(stream.opened_at)
        await self.stage.wait_for(lambda: not stream.is_open, max(left, 0))

    def times_registered(self) -> int:
        """Return how often it registered since it was started, in the same way."""
        ways = [bool(a.info) for a in self.stage.probe.arrivals if a.resource == self.resource]
        return max(ways.count(True), ways.count(False))

    # ------------------------------------------------------------ calls

    async def allocate(self, *containers: Iterable[str]) -> AllocateResponse:
        """Call Allocate; raises `RpcError`."""
        asked = [[*ids] for ids in containers]
        return await self.ask(lambda limit: self.session.allocate(*asked, timeout=limit))

    async def ask(self, call: Callable[[float], Awaitable[T]], limit: float = 0) -> T:
        """Do a call that may take `limit` of the plugin's own seconds, or what a call may."""
        return await self.stage.lost_time.ask(call, limit or self.timing.call)

    async def dial_again(self) -> PluginSession:
        """Open a second connection; raises `DialError`."""
        return await self.ask(self.session.dial_again, self.timing.dial)

    async def answer_for(self, ids: Iterable[str]) -> ContainerAllocateResponse:
        """Return what one container gets for `ids`; anything else is a finding."""
        ids = list(ids)
        try:
            response = await self.allocate(ids)
        except RpcError as error:
            raise Broken(f"Allocate of {shorten(ids)}: {error}") from error
        if not response.containers:
            raise Broken(f"Allocate of {shorten(ids)} was answered without a container response")
        return response.containers[0]

    async def can_allocate(self) -> bool:
        """Whether Allocate worked when it was first tried; it has a check of its own."""
        known = self.stage.allocates
        if self.resource not in known:
            try:
                await self.answer_for((await self.sure_ids())[:1])
            except (Broken, NotTried):
                known[self.resource] = False
            else:
                known[self.resource] = True
        return known[self.resource]

    async def some_ids(self) -> list[str]:
        """Return several IDs that may be asked for together, or one ID if several are refused."""
        ids = (await self.healthy_ids())[:SEVERAL]
        try:
            await self.allocate(ids)
        except RpcError:
            return ids[:1]
        return ids

    async def two_ids(self) -> list[str]:
        """Return two or more IDs that may be asked for together."""
        ids = await self.some_ids()
        if len(ids) < 2:
            raise NotTried("it has not two devices that one container can get")
        return ids

    async def answers(self) -> list[ContainerAllocateResponse]:
        """Return the answers for one device and for several: what the content checks look at."""
        several = await self.some_ids()
        answers = [await self.answer_for(several[:1])]
        if len(several) > 1:
            answers.append(await self.answer_for(several))
        return answers

    @asynccontextmanager
    async def another_stream(self) -> AsyncIterator[ListStream]:
        """Open a second connection with a stream of its own; raises `DialError`."""
        session = await self.dial_again()
        session.stream = session.open_stream()
        try:
            yield session.stream
        finally:
            await session.close()

    async def raw_connection(
        self, *, window: int = DEFAULT_WINDOW, is_silent: bool = False
    ) -> RawConnection:
        """Open a connection for misbehaving on; unless silent, both sides have said hello."""
        try:
            connection = await RawConnection.open(self.socket, window=window, is_silent=is_silent)
        except OSError as error:
            raise Broken(f"cannot connect to {self.socket.name}: {error.strerror}") from error
        if not is_silent:
            await self.stage.lost_time.wait(partial(until_set, connection.met), self.timing.dial)
            if not connection.is_greeted:
                is_lost = connection.ended.is_set()
                connection.hang_up()
                if is_lost:
                    raise Broken("it hung up on a new connection")
                raise Broken(f"no HTTP/2 SETTINGS within {self.timing.dial:g} s")
        return connection

    async def first(self, stream: ListStream, limit: float) -> ReceivedList | None:
        """Wait for the first list of a stream, for `limit` of the plugin's own seconds."""
        await self.stage.until(lambda: stream.lists or not stream.is_open, limit)
        return stream.lists[0] if stream.lists else None

    async def first_of(
        self, stream: ListStream, timeout: float, *, offers: bool | None = None
    ) -> ReceivedList | None:
        """Return the first list of a stream that counts: an empty one before has its own check.

        `offers` says whether the resource has devices. By default the kubelet's stream tells it,
        which `stream` must not be then: it would be compared with itself.
        """
        found, usual = await self.first(stream, timeout), self.session.latest
        if offers is None:
            offers = usual is None or bool(usual.devices)
        if found is not None and not found.devices and offers:
            await self.stage.wait_for(lambda: len(stream.lists) > 1 or not stream.is_open, timeout)
            return stream.latest
        return found

    async def must_still_work(self, after: str) -> str:
        """Check that a new stream gets the list and Allocate answers; return how long it took."""
        loop, changes = asyncio.get_running_loop(), self.stage.notes.changes
        await self.stage.steady()
        ids = sorted((await self.device_list()).healthy)
        ids = (sorted(changes.untouched(ids)) or ids)[:1]
        began = loop.time()
        try:
            async with self.another_stream() as stream:
                first = await self.first_of(stream, self.timing.first_list)
                if first is None:
                    waited = self.stage.spent(began)
                    raise Broken(f"{after}, a new stream got no list within {waited:.1f} s")
                if changes.untouched(ids) - set(first.healthy):
                    raise Broken(f"{after}, a new stream got a list without {ids[0]}")
                if changes.untouched(ids) and await self.can_allocate():
                    await self.answer_for(ids)
        except WireError as error:
            raise Broken(f"{after}: {error}") from error
        return f"{1000 * (loop.time() - began):.0f} ms"


def shorten(ids: Iterable[str], limit: int = 3) -> str:
    """Return a few IDs as text."""
    return some_of(map(repr, ids), limit)


def content_of(answer: ContainerAllocateResponse) -> tuple[object, ...]:
    """Return what a container would see of an answer: lists count without their order."""
    return (
        tuple(sorted(answer.env.items())),
        tuple(sorted(answer.annotations.items())),
        tuple(sorted(map(repr, answer.devices))),
        tuple(sorted(map(repr, answer.mounts))),
        tuple(sorted(answer.cdi_devices)),
    )


def difference(one: ContainerAllocateResponse, other: ContainerAllocateResponse) -> str:
    """Say in which part two answers differ."""
    names = ("env", "annotations", "devices", "mounts", "CDI names")
    for name, left, right in zip(names, content_of(one), content_of(other), strict=True):
        if left != right:
            return f"{name}: {left} and {right}"
    return ""
