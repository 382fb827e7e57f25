"""What every server in the contract tests does, whichever library it is made with.

Handlers are plain asyncio functions over bytes; `peer_servers` offers them through ours, grpcio,
grpclib and grpc-go. What they see is written down here for the tests to look at.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from kubedevices.errors import RpcError, StatusCode

SERVICE = "test.Service"
UnaryHandler = Callable[[bytes], Awaitable[bytes]]
StreamHandler = Callable[[bytes], AsyncIterator[bytes]]

CHUNK = bytes(65536)


def failure(code: StatusCode, message: str) -> bytes:
    """Return the request that makes Fail or FailLate end with this status."""
    return json.dumps([code, message]).encode()


def _error(payload: bytes) -> RpcError:
    code, message = json.loads(payload)
    return RpcError(StatusCode(code), message)


class Behaviour:
    """One server's handlers and what happened in them."""

    def __init__(self) -> None:
        self.running = 0
        self.most_running = 0
        self.started = 0
        self.cancelled = 0
        self.sent = 0
        self.release = asyncio.Event()

    @property
    def unary(self) -> dict[str, UnaryHandler]:
        """Method name → handler of one answer."""
        return {"Echo": self.echo, "Fail": self.fail, "Hang": self.hang, "Big": self.big}

    @property
    def streams(self) -> dict[str, StreamHandler]:
        """Method name → handler of many answers."""
        return {
            "Count": self.count,
            "Watch": self.watch,
            "Flood": self.flood,
            "FailLate": self.fail_late,
        }

    async def echo(self, payload: bytes) -> bytes:
        """Answer with the question."""
        return payload

    async def fail(self, payload: bytes) -> bytes:
        """Fail as asked."""
        raise _error(payload)

    async def big(self, payload: bytes) -> bytes:
        """Answer with as many bytes as asked for."""
        return bytes(int(payload))

    async def hang(self, payload: bytes) -> bytes:
        """Answer once released."""
        await self._until_released()
        return payload

    async def count(self, payload: bytes) -> AsyncIterator[bytes]:
        """Count from nought."""
        for number in range(int(payload)):
            yield b"%d" % number

    async def watch(self, payload: bytes) -> AsyncIterator[bytes]:
        """Say one thing, then wait to be released, then say it again."""
        yield payload
        await self._until_released()
        yield payload

    async def flood(self, payload: bytes) -> AsyncIterator[bytes]:
        """Send 64 KiB messages, as many as asked for."""
        for _ in range(int(payload)):
            yield CHUNK
            self.sent += 1

    async def fail_late(self, payload: bytes) -> AsyncIterator[bytes]:
        """Fail as asked, after a message."""
        yield b"first"
        raise _error(payload)

    async def _until_released(self) -> None:
        self.running += 1
        self.started += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
