"""grpc-go's client, by default dialled as a kubelet dials; errors are always `RpcError`."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Self

from kubedevices.errors import DialError, RpcError, StatusCode
from tests.interop.go_peer import GoPeer, Record
from tests.waiting import until


class GoStatusError(RpcError):
    """A failed call as grpc-go saw it; `details` counts the bytes of the status' details."""

    details = 0


class GoClient:
    """One `grpc.ClientConn`; `states` are those it has been in since it was ready."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states: list[str] = []
        self._last = 0
        self._calls: dict[int, asyncio.Queue[Record]] = {}
        self._dialled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._peer: GoPeer

    @classmethod
    async def dial(cls, path: Path, **options: Any) -> Self:
        """Dial with `clientOptions` of client.go; raises `DialError`."""
        client = cls(path)
        options = {"authority": "localhost", **options}
        client._peer = await GoPeer.start("client", path, options, client._act)
        async with asyncio.timeout(20):
            error = await client._dialled
        if error:
            await client._peer.end()
            raise DialError(str(path), error)
        return client

    def _act(self, record: Record) -> None:
        match record.op:
            case "ready" | "failed":
                self._dialled.set_result(record.fields.get("text", ""))
            case "state":
                self.states.append(record.fields["text"])
            case "message" | "end":
                self._calls[record.fields["id"]].put_nowait(record)

    def _begin(self, op: str, payload: bytes, **fields: Any) -> int:
        self._last += 1
        self._calls[self._last] = asyncio.Queue()
        self._peer.tell(op, self._last, payload, **fields)
        return self._last

    async def unary(
        self, method: str, payload: bytes, *, timeout: float = 10, gzip: bool = False
    ) -> bytes:
        """Call `/package.Service/Method`; no timeout is 0, as in a kubelet's Allocate."""
        call = self._begin("call", payload, method=method, timeout=timeout, gzip=gzip)
        try:
            return _answer(await self._calls[call].get())
        finally:
            self._peer.tell("cancel", call)

    async def stream(self, method: str, payload: bytes) -> AsyncGenerator[bytes, None]:
        """Yield every message; each is read from grpc-go only when it is asked for."""
        call = self._begin("call", payload, method=method, stream=True)
        try:
            while True:
                self._peer.tell("recv", call)
                record = await self._calls[call].get()
                if record.op == "end":
                    _answer(record)
                    return
                yield record.payload
        finally:
            self._peer.tell("cancel", call)

    async def load(
        self, method: str, payload: bytes, *, count: int, workers: int = 1
    ) -> list[float]:
        """Make `count` calls by each of `workers`; return the seconds of each."""
        call = self._begin("load", payload, method=method, count=count, workers=workers)
        record = await self._calls[call].get()
        _answer(record)
        return [micros / 1e6 for micros in record.fields["micros"]]

    async def gets(self, state: str, timeout: float = 10) -> None:
        """Wait until the connection has come to `state`, then forget where it has been."""
        await until(lambda: state in self.states, timeout, f"{state} among {self.states}")
        self.states.clear()

    async def close(self) -> None:
        """End it without a word, as a killed kubelet does."""
        await self._peer.end()


def _answer(record: Record) -> bytes:
    code = StatusCode(record.fields["code"])
    if code is StatusCode.OK:
        return record.payload
    error = GoStatusError(code, record.fields.get("text", ""))
    error.details = record.fields.get("details", 0)
    raise error
