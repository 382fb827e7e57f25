"""The same calls made by ours, grpcio, grpclib and grpc-go; errors are always `RpcError`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, Self

import grpc
import grpclib
from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase

from kubedevices.errors import RpcError, StatusCode
from kubedevices.wire.unix_grpc import GrpcChannel
from tests.interop.go_client import GoClient
from tests.wire.behaviour import SERVICE


class PeerClient(Protocol):
    """What the contract tests ask of a client."""

    async def unary(self, method: str, payload: bytes, *, timeout: float = 10) -> bytes: ...

    def stream(self, method: str, payload: bytes) -> AsyncGenerator[bytes, None]: ...

    async def close(self) -> None: ...


def path_of(method: str) -> str:
    """Return the whole path of one of `Behaviour`'s methods; others are whole already."""
    return method if method.startswith("/") else f"/{SERVICE}/{method}"


class OurClient:
    """`GrpcChannel`."""

    def __init__(self, channel: GrpcChannel) -> None:
        self.channel = channel

    @classmethod
    async def dial(cls, path: Path) -> Self:
        return cls(await GrpcChannel.dial(path))

    async def unary(self, method: str, payload: bytes, *, timeout: float = 10) -> bytes:
        return await self.channel.unary(path_of(method), payload, timeout=timeout)

    def stream(self, method: str, payload: bytes) -> AsyncGenerator[bytes, None]:
        return self.channel.stream(path_of(method), payload)

    async def close(self) -> None:
        await self.channel.close()


def _grpcio_error(error: Any) -> RpcError:
    return RpcError(StatusCode(error.code().value[0]), error.details() or "")


class GrpcioClient:
    """grpcio's synchronous client, each call in a thread (its asyncio one owns a poller)."""

    def __init__(self, path: Path, **options: int) -> None:
        defaults = {
            "grpc.use_local_subchannel_pool": 1,
            "grpc.max_receive_message_length": -1,
            "grpc.max_send_message_length": -1,
        }
        named = [(f"grpc.{name}", value) for name, value in options.items()]
        self.channel = grpc.insecure_channel(f"unix:{path}", [*defaults.items(), *named])
        self.compression: Any = None

    @classmethod
    async def dial(cls, path: Path) -> Self:
        return cls(path)

    async def unary(self, method: str, payload: bytes, *, timeout: float = 10) -> bytes:
        call = self.channel.unary_unary(path_of(method)).future(
            payload, timeout=timeout, wait_for_ready=False, compression=self.compression
        )
        try:
            return await asyncio.to_thread(call.result)
        except grpc.RpcError as error:
            raise _grpcio_error(error) from None
        except asyncio.CancelledError:
            call.cancel()
            raise

    async def stream(self, method: str, payload: bytes) -> AsyncGenerator[bytes, None]:
        call = self.channel.unary_stream(path_of(method))(payload)
        try:
            while (message := await asyncio.to_thread(_next, call)) is not None:
                yield message
        except grpc.RpcError as error:
            raise _grpcio_error(error) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        await asyncio.to_thread(self.channel.close)


def _next(call: Iterator[bytes]) -> bytes | None:
    return next(call, None)


class BytesCodec(CodecBase):
    """grpclib with plain bytes as messages."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return data


def _grpclib_error(error: grpclib.GRPCError) -> RpcError:
    return RpcError(StatusCode(error.status.value), error.message or "")


class GrpclibClient:
    """grpclib's client."""

    def __init__(self, path: Path) -> None:
        self.channel = Channel(path=str(path), codec=BytesCodec())

    @classmethod
    async def dial(cls, path: Path) -> Self:
        return cls(path)

    async def unary(self, method: str, payload: bytes, *, timeout: float = 10) -> bytes:
        call: Any = UnaryUnaryMethod(self.channel, path_of(method), bytes, bytes)
        return await _translated(lambda: call(payload, timeout=timeout))

    async def stream(self, method: str, payload: bytes) -> AsyncGenerator[bytes, None]:
        call: Any = UnaryStreamMethod(self.channel, path_of(method), bytes, bytes)
        try:
            async with call.open() as stream:
                await stream.send_message(payload, end=True)
                async for message in stream:
                    yield message
        except grpclib.GRPCError as error:
            raise _grpclib_error(error) from None
        except (grpclib.exceptions.StreamTerminatedError, OSError) as error:
            raise RpcError(StatusCode.UNAVAILABLE, str(error)) from None

    async def close(self) -> None:
        self.channel.close()


async def _translated(call: Callable[[], Any]) -> bytes:
    try:
        return bytes(await call())
    except grpclib.GRPCError as error:
        raise _grpclib_error(error) from None
    except TimeoutError:
        raise RpcError(StatusCode.DEADLINE_EXCEEDED, "") from None
    except (grpclib.exceptions.StreamTerminatedError, OSError) as error:
        raise RpcError(StatusCode.UNAVAILABLE, str(error)) from None


class GrpcGoClient(GoClient):
    """grpc-go's client, in a process of its own."""

    async def unary(
        self, method: str, payload: bytes, *, timeout: float = 10, gzip: bool = False
    ) -> bytes:
        return await super().unary(path_of(method), payload, timeout=timeout, gzip=gzip)

    def stream(self, method: str, payload: bytes) -> AsyncGenerator[bytes, None]:
        return super().stream(path_of(method), payload)


CLIENTS: dict[str, Any] = {
    "ours": OurClient,
    "grpcio": GrpcioClient,
    "grpclib": GrpclibClient,
    "go": GrpcGoClient,
}
