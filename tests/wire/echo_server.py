"""A server of ours with one method of each kind: an echo, and a stream that goes on for ever."""

import asyncio
from collections.abc import AsyncIterator

from kubedevices.wire.unix_grpc import GrpcServer, Methods

CALL = "/t.T/Call"
WATCH = "/t.T/Watch"


async def echo(payload: bytes) -> bytes:
    return payload


async def watch(_payload: bytes) -> AsyncIterator[bytes]:
    yield b"first"
    await asyncio.Event().wait()


def server_of(methods: Methods, **options: int) -> GrpcServer:
    return GrpcServer(methods, name="t", **{"max_receive": 4 * 2**20, **options})
