"""Plugins that break HTTP/2, through a relay in front of the good plugin."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import hpack

from tests.check.frame_relay import (
    ACK,
    HEADERS,
    PING,
    RST_STREAM,
    Forward,
    Frame,
    Relay,
)
from tests.check.good_plugin import GoodPlugin, Refused, identity
from tests.check.listening import accepts
from tests.check.mutants.registry import mutation


class Relayed(GoodPlugin):
    """Serves behind a relay."""

    relay: Relay | None = None

    async def open_server(self) -> None:
        public = self.path
        if accepts(public):
            raise Refused(f"another instance serves on {public}")
        self.path = self.socket_dir.parent / f"hidden-{os.getpid()}"  # removed with the run
        try:
            await super().open_server()
            hidden = self.path
        finally:
            self.path = public
        public.unlink(missing_ok=True)
        self.relay = self.make_relay(public, hidden)
        await self.relay.start()
        self.mine = identity(public)
        self.hidden = hidden

    async def close_server(self, grace: float = 0) -> None:
        await super().close_server(grace)
        if self.relay:
            await self.relay.stop()
            self.hidden.unlink(missing_ok=True)
            self.relay = None

    def make_relay(self, public: Path, hidden: Path) -> Relay:
        return Relay(public, hidden, self.filter)

    def filter(self, client: asyncio.StreamWriter) -> Forward:
        async def everything(frame: Frame) -> bool:
            return await self.wanted(frame, client)

        return everything

    async def wanted(self, frame: Frame, client: asyncio.StreamWriter) -> bool:
        return True


@mutation("authority-checked", fails=["grpc.authority"])
class AuthorityChecked(Relayed):
    """Accepts only the path of its socket as :authority."""

    def filter(self, client: asyncio.StreamWriter) -> Forward:
        decoder = hpack.Decoder()

        async def wanted(frame: Frame) -> bool:
            if frame.kind == HEADERS:
                headers = dict(decoder.decode(frame.payload, raw=True))
                if headers.get(b":authority") == b"localhost":
                    head = (4).to_bytes(3, "big") + bytes((RST_STREAM, 0))
                    client.write(head + frame.stream.to_bytes(4, "big") + (1).to_bytes(4, "big"))
                    await client.drain()
                    raise ConnectionError
            return True

        return wanted


@mutation("any-method-ok", warns=["grpc.unknown-method"])
class AnyMethodOk(GoodPlugin):
    """Answers OK to every method."""

    def services(self) -> list[Any]:
        class Anything(grpc.GenericRpcHandler):  # type: ignore[misc]
            def service(self, details: Any) -> Any:
                async def answer(request: bytes, context: Any) -> bytes:
                    return b""

                return grpc.unary_unary_rpc_method_handler(answer)

        return [*super().services(), Anything()]


@mutation("ping-unanswered", warns=["grpc.ping"])
class PingUnanswered(Relayed):
    """Does not answer PING."""

    async def wanted(self, frame: Frame, client: asyncio.StreamWriter) -> bool:
        return frame.kind != PING or bool(frame.flags & ACK)


@mutation("rocm-cancelled-stream-exits", fails=["list.abandoned-stream", "life.dies"])
class CancelledStreamExits(Relayed):
    """Exits when a stream is cancelled, like ROCm."""

    async def wanted(self, frame: Frame, client: asyncio.StreamWriter) -> bool:
        if frame.kind == RST_STREAM:
            os._exit(1)
        return True


class GetsStuck(Relayed):
    """Sends no list to new streams when it is stuck."""

    is_stuck = False

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        if self.is_stuck:
            await asyncio.sleep(3600)
        async for each in super().ListAndWatch(request, context):
            yield each


@mutation("broken-connection-hangs", fails=["grpc.broken-connection"])
class BrokenConnectionHangs(GetsStuck):
    """Gets stuck when a connection has broken within a frame."""

    def make_relay(self, public: Path, hidden: Path) -> Relay:
        return Relay(public, hidden, self.filter, on_cut=self.get_stuck)

    def get_stuck(self) -> None:
        self.is_stuck = True


@mutation("broken-connection-panics", fails=["grpc.broken-connection", "life.dies"])
class BrokenConnectionPanics(Relayed):
    """Crashes when a connection breaks within a frame."""

    def make_relay(self, public: Path, hidden: Path) -> Relay:
        return Relay(public, hidden, self.filter, on_cut=lambda: os._exit(2))


@mutation("one-greeting-at-a-time", fails=["grpc.idle-connection"])
class OneGreetingAtATime(Relayed):
    """Accepts no connection while another connection has sent nothing."""

    def make_relay(self, public: Path, hidden: Path) -> Relay:
        return Relay(public, hidden, self.filter, one_at_a_time=True)
