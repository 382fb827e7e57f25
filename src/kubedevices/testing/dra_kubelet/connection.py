"""The connection to one instance of a driver: it stays open, and is dialled again if lost. asyncio.

As a kubelet does since 1.34: each registered endpoint has one connection, opened before the first
call, with one health stream on it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kubedevices.errors import DialError, ProtocolError, RpcError, StatusCode
from kubedevices.kubelet_api.dra import ClaimAnswer, DeviceHealth
from kubedevices.kubelet_api.dra_client import DraClient
from kubedevices.values.allocation import ClaimReference
from kubedevices.wire.unix_grpc import GrpcChannel

T = TypeVar("T")

_log = logging.getLogger(__name__)


class CallTiming(NamedTuple):
    """All in seconds, as in a kubelet 1.36."""

    call: float = 45.0
    """Deadline of NodePrepareResources and NodeUnprepareResources."""

    redial: float = 1.0
    """Pause after a failed dial; the pause grows by the factor 1.6 after each further failure."""

    longest_redial: float = 120.0
    """Longest pause after failed dials."""

    health_retry: float = 5.0
    """Pause after the health stream has failed or ended."""


class DriverConnection:
    """Calls the driver at `endpoint`.

    `on_change` is called when the connection is open and when it is lost. `on_health` is called
    with each health list, and with None when the stream has ended.
    """

    def __init__(
        self,
        driver: str,
        endpoint: Path,
        version: str,
        *,
        health_service: str,
        on_change: Callable[[], None],
        on_health: Callable[[tuple[DeviceHealth, ...] | None], None],
        timing: CallTiming | None = None,
    ) -> None:
        self.driver, self.endpoint, self.version = driver, endpoint, version
        self._health_service = health_service
        self._on_change, self._on_health = on_change, on_health
        self._timing = timing or CallTiming()
        self._client: DraClient | None = None
        self._first_dial = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._task = asyncio.create_task(self._run(), name=f"connection to {driver} at {endpoint}")

    def __repr__(self) -> str:
        state = "connected" if self.is_connected else "not connected"
        return f"<DriverConnection {self.driver} {self.endpoint}: {state}>"

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._client is not None

    async def retire(self) -> None:
        """Close the connection after its running calls. A newer instance gets the new calls."""
        if self._calls:
            await asyncio.wait({*self._calls}, timeout=self._timing.call)
        await self.close()

    async def close(self) -> None:
        """Close the connection, and do not dial again."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def prepare(self, claims: Iterable[ClaimReference]) -> Mapping[str, ClaimAnswer]:
        """NodePrepareResources; raises `RpcError`."""
        return await self._ask(lambda client: client.prepare(claims, timeout=self._timing.call))

    async def unprepare(self, claims: Iterable[ClaimReference]) -> Mapping[str, str]:
        """NodeUnprepareResources; raises `RpcError`."""
        return await self._ask(lambda client: client.unprepare(claims, timeout=self._timing.call))

    @contextlib.asynccontextmanager
    async def another_watch(self) -> AsyncIterator[AsyncIterator[tuple[DeviceHealth, ...]]]:
        """Open one more connection, with a health stream, as a kubelet does after its restart.

        Raises `DialError`; the lists raise `RpcError` and `ProtocolError`.
        """
        channel = await GrpcChannel.dial(self.endpoint, timeout=self._timing.call)
        try:
            lists = DraClient(channel, self.version).watch_health(self._health_service)
            async with contextlib.aclosing(lists):
                yield lists
        finally:
            await channel.close()

    async def _ask(self, ask: Callable[[DraClient], Coroutine[Any, Any, T]]) -> T:
        """Make a call; it waits for the first dial only, and fails at once later, as in gRPC."""
        await self._first_dial.wait()
        if self._client is None:
            raise RpcError(StatusCode.UNAVAILABLE, f"no connection to {self.endpoint}")
        call = asyncio.create_task(ask(self._client), name=f"call of {self.driver}")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            return await call
        except ProtocolError as error:
            raise RpcError(StatusCode.INTERNAL, str(error)) from error

    async def _run(self) -> None:
        timing, failures = self._timing, 0
        while True:
            try:
                channel = await GrpcChannel.dial(self.endpoint, timeout=timing.call)
            except DialError as error:
                _log.info("%s: %s", self.driver, error)
                self._first_dial.set()
                pause = min(timing.redial * 1.6**failures, timing.longest_redial)
                failures = min(failures + 1, 16)
                await asyncio.sleep(pause)
                continue
            failures = 0
            try:
                self._client = DraClient(channel, self.version)
                self._first_dial.set()
                self._on_change()
                await self._listen(self._client)
            finally:
                self._client = None
                self._on_change()
                await channel.close()

    async def _listen(self, client: DraClient) -> None:
        """Read the health stream until the connection is lost."""
        lost = asyncio.create_task(client.channel.closed.wait(), name=f"end of {client.channel}")
        health = asyncio.create_task(self._watch(client), name=f"health of {self.driver}")
        try:
            await lost
        finally:
            for task in (lost, health):
                task.cancel()
            await asyncio.wait({lost, health})

    async def _watch(self, client: DraClient) -> None:
        while True:
            try:
                async with contextlib.aclosing(client.watch_health(self._health_service)) as lists:
                    async for each in lists:
                        self._on_health(each)
            except (RpcError, ProtocolError) as error:
                _log.info("%s: no health: %s", self.driver, error)
            finally:
                self._on_health(None)
            await asyncio.sleep(self._timing.health_retry)
