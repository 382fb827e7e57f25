"""grpc-go's server; its handlers run here, in the test's loop."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from kubedevices.errors import RpcError, StatusCode
from tests.interop.go_peer import GoPeer, Record
from tests.wire.behaviour import StreamHandler, UnaryHandler


class GoServer:
    """One `grpc.Server`; `options` are `serverOptions` of server.go."""

    def __init__(
        self,
        unary: dict[str, UnaryHandler],
        streams: dict[str, StreamHandler],
        **options: Any,
    ) -> None:
        self._unary, self._streams = unary, streams
        self._options = {**options, "unary": list(unary), "streams": list(streams)}
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._stopped = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sent: dict[int, asyncio.Future[None]] = {}
        self._peer: GoPeer

    async def start(self, path: Path) -> None:
        """Listen at `path`."""
        self._peer = await GoPeer.start("server", path, self._options, self._act)
        async with asyncio.timeout(20):
            await self._ready

    def _act(self, record: Record) -> None:
        number = record.fields["id"]
        match record.op:
            case "ready":
                self._ready.set_result(None)
            case "stopped":
                self._stopped.set()
            case "call":
                work = self._serve(number, record.fields["method"], record.payload)
                self._tasks[number] = asyncio.create_task(work, name=f"call {number} of Go")
            case "sent" if number in self._sent and not self._sent[number].done():
                self._sent[number].set_result(None)
            case "cancelled" if number in self._tasks:
                self._tasks[number].cancel()

    async def _serve(self, number: int, method: str, request: bytes) -> None:
        code, text, details, answer = StatusCode.OK, "", 0, b""
        try:
            if method in self._unary:
                answer = await self._unary[method](request)
            else:
                await self._send_all(number, self._streams[method](request))
        except RpcError as error:
            code, text = error.code or StatusCode.UNKNOWN, error.message
            details = getattr(error, "details", 0)
        finally:
            self._tasks.pop(number)
            self._sent.pop(number, None)
        self._peer.tell("end", number, answer, code=int(code), text=text, details=details)

    async def _send_all(self, number: int, messages: Any) -> None:
        async for message in messages:
            self._sent[number] = asyncio.get_running_loop().create_future()
            self._peer.tell("message", number, message)
            await self._sent[number]

    async def stop(self, grace: float = 0) -> None:
        """Stop gently for at most `grace` seconds, then at once, and end the process."""
        if grace and self._peer.is_alive:
            self._peer.tell("graceful stop")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._stopped.wait()
        if self._peer.is_alive:
            self._peer.tell("stop")
            async with asyncio.timeout(10):
                await self._peer.process.wait()
        await self.kill()

    async def kill(self) -> None:
        """Let it die without a chance to say goodbye."""
        for task in [*self._tasks.values()]:
            task.cancel()
        await self._peer.end()
