"""One resource of the plugin, with the calls and questions that checks need.

Each check gets a new `Plugin`. `Harness` handles processes and registration; this module handles
the calls of one registered resource.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from kubedevices.check.answers import shorten
from kubedevices.check.check import Broken, NotTried
from kubedevices.check.harness import Harness
from kubedevices.errors import RpcError, StatusCode, WireError
from kubedevices.host import deadlines
from kubedevices.kubelet_api.convert import ALLOCATE_REQUEST
from kubedevices.testing.kubelet.arrival import Arrival
from kubedevices.testing.kubelet.raw_http2 import RawConnection
from kubedevices.testing.kubelet.session import ListStream, PluginSession, ReceivedList
from kubedevices.values.allocation import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
)
from kubedevices.values.device import Health, natural_key
from kubedevices.wire.http2_frames import DEFAULT_WINDOW

T = TypeVar("T")

SEVERAL = 8
"""The most devices that a check asks for in one call."""

UNKNOWN_ID = "kubedevices-check-no-such-device"


class Plugin:
    """One registered resource; `arrival` is the Register call that was accepted."""

    def __init__(self, arrival: Arrival, harness: Harness) -> None:
        self.arrival, self.harness = arrival, harness
        self.timing = harness.timing
        self.resource = arrival.resource

    @classmethod
    def of(cls, harness: Harness, resource: str) -> Self:
        """Return the plugin of one resource, from its last registration."""
        return cls(harness.last_arrival(resource), harness)

    @property
    def session(self) -> PluginSession:
        """The kubelet's connection to the plugin."""
        if self.arrival.session is None:
            raise NotTried("a kubelet would have no connection to it")
        return self.arrival.session

    @property
    def socket(self) -> Path:
        """The socket on which the plugin serves."""
        return self.session.socket

    async def device_list(self) -> ReceivedList:
        """Return the latest list of the kubelet's stream; wait for the first list if necessary."""
        stream = self.session.stream
        if stream is None:
            raise NotTried("it never sent a list of devices")
        arrived = self.harness.until_true(
            lambda: stream.lists or not stream.is_open, self.timing.late_list
        )
        await _unless_known(arrived, self.harness.shared.silent[self.resource])
        if not stream.lists:
            raise NotTried("it never sent a list of devices")
        if not stream.lists[0].devices:  # the devices may follow in a second list
            await self.harness.until(lambda: len(stream.lists) > 1, self.timing.hold)
        assert stream.latest
        return stream.latest

    async def healthy_ids(self) -> list[str]:
        """Return the IDs that a kubelet could allocate; raises `NotTried` if there are none."""
        ids = sorted(set((await self.device_list()).healthy), key=natural_key)
        if not ids:
            raise NotTried("it has no healthy device")
        return ids

    async def stable_ids(self) -> list[str]:
        """Return the healthy IDs, first those of devices that the trigger did not change."""
        ids = await self.healthy_ids()
        stable = self.harness.shared.changes.untouched(ids)
        return sorted(ids, key=lambda name: name not in stable)

    async def unhealthy_id(self) -> str:
        """Return the ID of an unhealthy device; raises `NotTried` if all devices are healthy."""
        for device in (await self.device_list()).devices:
            if device.health == Health.UNHEALTHY:
                return device.id
        raise NotTried("all of its devices are healthy")

    async def watch_quietly(self) -> None:
        """Make no call until the stream was open for `timing.quiet` own seconds, or has ended."""
        stream = self.session.stream
        assert stream
        left = self.timing.quiet - self.harness.spent(stream.opened_at)
        await self.harness.until(lambda: not stream.is_open, max(left, 0))

    def times_registered(self) -> int:
        """Return how often the resource registered since the start of the plugin.

        A plugin that uses both ways, Register and the plugin watcher, counts in each way by itself.
        """
        ways = [bool(a.info) for a in self.harness.probe.arrivals if a.resource == self.resource]
        return max(ways.count(True), ways.count(False))

    # ------------------------------------------------------------ calls

    async def allocate(self, *containers: Iterable[str]) -> AllocateResponse:
        """Call Allocate; raises `RpcError`, at once if it has hung on a copy of the plugin."""
        if self.harness.shared.hanging[self.resource].is_set():
            raise RpcError(StatusCode.DEADLINE_EXCEEDED, "an earlier call had no answer")
        asked = [[*ids] for ids in containers]
        return await self.ask(lambda limit: self.session.allocate(*asked, timeout=limit))

    async def ask(self, call: Callable[[float], Awaitable[T]], limit: float = 0) -> T:
        """Make a call that may take `limit` own seconds of the plugin; 0 is the usual limit."""
        return await self.harness.lost_time.ask(call, limit or self.timing.call)

    async def dial_again(self) -> PluginSession:
        """Open a second connection; raises `DialError`."""
        return await self.ask(self.session.dial_again, self.timing.dial)

    async def answer_for(self, ids: Iterable[str]) -> ContainerAllocateResponse:
        """Return the container response for `ids`; raises `Broken` if the answer has none."""
        ids = list(ids)
        try:
            response = await self.allocate(ids)
        except RpcError as error:
            raise Broken(f"Allocate of {shorten(ids)}: {error}") from error
        if not response.containers:
            raise Broken(f"Allocate of {shorten(ids)} was answered without a container response")
        return response.containers[0]

    async def allocate_message(self) -> bytes:
        """Return an Allocate request for a healthy device, to write on a `raw_connection`."""
        ids = (await self.healthy_ids())[:1]
        return ALLOCATE_REQUEST.to_wire(AllocateRequest((ContainerAllocateRequest(tuple(ids)),)))

    async def can_allocate(self) -> bool:
        """Whether Allocate worked at the first try. A failure is judged by `allocate.answers`.

        If Allocate hangs, one copy of the plugin has waited long enough for all copies.
        """
        known = self.harness.allocates
        if self.resource not in known:
            known[self.resource] = bool(await self.unless_hanging(self.try_allocate()))
        return known[self.resource]

    async def unless_hanging(self, allocate: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of an Allocate; None as soon as one has hung on any copy."""
        return await _unless_known(allocate, self.harness.shared.hanging[self.resource])

    async def try_allocate(self) -> bool:
        """Whether Allocate works now; tell the other copies if there is no answer in time."""
        try:
            await self.answer_for((await self.stable_ids())[:1])
        except (Broken, NotTried) as error:
            why = error.__cause__
            if isinstance(why, RpcError) and why.code is StatusCode.DEADLINE_EXCEEDED:
                self.harness.shared.hanging[self.resource].set()
            return False
        return True

    async def some_ids(self) -> list[str]:
        """Return several IDs that one Allocate accepts, or one ID if the plugin refuses several."""
        ids = (await self.healthy_ids())[:SEVERAL]
        try:
            await self.allocate(ids)
        except RpcError:
            return ids[:1]
        return ids

    async def two_ids(self) -> list[str]:
        """Return two or more IDs that one Allocate accepts; raises `NotTried` if there are none."""
        ids = await self.some_ids()
        if len(ids) < 2:
            raise NotTried("it has no two devices that one container can get")
        return ids

    async def answers(self) -> list[ContainerAllocateResponse]:
        """Return the answers for one device and for several; the content checks judge them."""
        several = await self.some_ids()
        answers = [await self.answer_for(several[:1])]
        if len(several) > 1:
            answers.append(await self.answer_for(several))
        return answers

    @asynccontextmanager
    async def another_stream(self) -> AsyncIterator[ListStream]:
        """Open a second connection with its own ListAndWatch stream; raises `DialError`."""
        session = await self.dial_again()
        session.stream = session.open_stream()
        try:
            yield session.stream
        finally:
            await session.close()

    async def raw_connection(
        self, *, window: int = DEFAULT_WINDOW, is_silent: bool = False
    ) -> RawConnection:
        """Open a connection on which the caller can break the protocol.

        Unless `is_silent`, both sides have sent their HTTP/2 SETTINGS; raises `Broken` if not.
        """
        try:
            connection = await RawConnection.open(self.socket, window=window, is_silent=is_silent)
        except OSError as error:
            raise Broken(f"cannot connect to {self.socket.name}: {error.strerror}") from error
        if not is_silent:
            answered = connection.greeted_or_ended
            await self.harness.lost_time.wait(
                lambda limit: deadlines.within(limit, answered.wait()), self.timing.dial
            )
            if not connection.is_greeted:
                is_lost = connection.ended.is_set()
                connection.hang_up()
                if is_lost:
                    raise Broken("it closed a new connection")
                raise Broken(f"no HTTP/2 SETTINGS within {self.timing.dial:g} s")
        return connection

    async def first(self, stream: ListStream, limit: float) -> ReceivedList | None:
        """Return the first list of a stream, None after `limit` own seconds or if it ended."""
        await self.harness.until_true(lambda: stream.lists or not stream.is_open, limit)
        return stream.lists[0] if stream.lists else None

    async def first_of(
        self, stream: ListStream, timeout: float, *, offers: bool | None = None
    ) -> ReceivedList | None:
        """Return the first list of a stream, or the next list if the first is empty by mistake.

        The check `list.complete` judges an empty list before the devices. `offers` says whether the
        resource has devices; if None, the kubelet's stream says so, and `stream` must be another
        stream.
        """
        found, usual = await self.first(stream, timeout), self.session.latest
        if offers is None:
            offers = usual is None or bool(usual.devices)
        if found is not None and not found.devices and offers:
            await self.harness.until(lambda: len(stream.lists) > 1 or not stream.is_open, timeout)
            return stream.latest
        return found

    async def must_still_work(self, after: str) -> str:
        """Check that a new stream gets the list and that Allocate answers; return the time taken.

        Raises `Broken` with a text that begins with `after`, which names the disturbance.
        """
        loop, changes = asyncio.get_running_loop(), self.harness.shared.changes
        await self.harness.steady()
        ids = sorted((await self.device_list()).healthy)
        ids = (sorted(changes.untouched(ids)) or ids)[:1]
        began = loop.time()
        try:
            async with self.another_stream() as stream:
                first = await self.first_of(stream, self.timing.first_list)
                if first is None:
                    waited = self.harness.spent(began)
                    raise Broken(f"{after}, a new stream got no list within {waited:.1f} s")
                if changes.untouched(ids) - set(first.healthy):
                    raise Broken(f"{after}, a new stream got a list without {ids[0]}")
                if changes.untouched(ids) and await self.can_allocate():
                    await self.answer_for(ids)
        except WireError as error:
            raise Broken(f"{after}: {error}") from error
        return f"{1000 * (loop.time() - began):.0f} ms"


async def _unless_known(asked: Coroutine[Any, Any, T], known: asyncio.Event) -> T | None:
    """Return what is asked; None if another copy of the plugin has waited long enough for all."""
    tasks = asyncio.ensure_future(asked), asyncio.ensure_future(known.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for each in tasks:
            each.cancel()
