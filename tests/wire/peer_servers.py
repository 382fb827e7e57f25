"""The same handlers served by four libraries: ours, grpcio, grpclib and grpc-go."""

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpclib
from grpclib.const import Cardinality, Handler, Status
from grpclib.server import Server

from kubedevices.errors import RpcError
from kubedevices.wire.unix_grpc import GrpcServer, StreamMethod, UnaryMethod
from tests.interop.go_server import GoServer
from tests.wire.behaviour import SERVICE, Behaviour, StreamHandler, UnaryHandler
from tests.wire.peer_clients import BytesCodec


class PeerServer(Protocol):
    """What the contract tests ask of a server."""

    behaviour: Behaviour

    async def start(self, path: Path) -> None: ...

    async def stop(self, grace: float = 0) -> None: ...


class OurServer:
    """`GrpcServer`."""

    def __init__(self, behaviour: Behaviour, **options: Any) -> None:
        self.behaviour = behaviour
        methods: dict[str, UnaryMethod | StreamMethod] = {}
        for name, unary in behaviour.unary.items():
            methods[f"/{SERVICE}/{name}"] = UnaryMethod(unary)
        for name, stream in behaviour.streams.items():
            methods[f"/{SERVICE}/{name}"] = StreamMethod(stream)
        options = {"max_receive": 4 * 2**20, **options}
        self.server = GrpcServer(methods, name="test server", **options)

    async def start(self, path: Path) -> None:
        await self.server.start(path)

    async def stop(self, grace: float = 0) -> None:
        await self.server.stop(grace)


class GrpcioServer:
    """grpcio's synchronous server; its threads hand every call to the test's loop."""

    def __init__(self, behaviour: Behaviour, *, compression: Any = None, **options: int) -> None:
        self.behaviour = behaviour
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(16)
        defaults = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1}
        named = [(f"grpc.{name}", value) for name, value in options.items()]
        self.server = grpc.server(
            self._threads, options=[*defaults.items(), *named], compression=compression
        )
        handlers = {
            **{
                name: grpc.unary_unary_rpc_method_handler(self._unary(each))
                for name, each in behaviour.unary.items()
            },
            **{
                name: grpc.unary_stream_rpc_method_handler(self._stream(each))
                for name, each in behaviour.streams.items()
            },
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self.server.add_generic_rpc_handlers((generic,))

    def _ask(self, context: Any, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        if not context.add_callback(future.cancel):
            future.cancel()
        try:
            return future.result()
        except RpcError as error:
            status = next(each for each in grpc.StatusCode if each.value[0] == error.code)
            context.abort(status, error.message)
        except CancelledError:
            context.abort(grpc.StatusCode.CANCELLED, "cancelled")

    def _unary(self, handler: UnaryHandler) -> Callable[[bytes, Any], Any]:
        return lambda payload, context: self._ask(context, handler(payload))

    def _stream(self, handler: StreamHandler) -> Callable[[bytes, Any], Any]:
        def answer(payload: bytes, context: Any) -> Any:
            messages = handler(payload)
            while (message := self._ask(context, _next(messages))) is not None:
                yield message

        return answer

    async def start(self, path: Path) -> None:
        self.server.add_insecure_port(f"unix:{path}")
        self.server.start()

    async def stop(self, grace: float = 0) -> None:
        stopped = self.server.stop(grace or None)
        await asyncio.to_thread(stopped.wait)
        await asyncio.to_thread(self._threads.shutdown)


async def _next(messages: Any) -> bytes | None:
    try:
        return bytes(await anext(messages))
    except StopAsyncIteration:
        return None


class GrpclibServer:
    """grpclib's server."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.server = Server([self], codec=BytesCodec())

    def __mapping__(self) -> dict[str, Handler]:
        unary, streams = self.behaviour.unary, self.behaviour.streams
        return {
            **{
                f"/{SERVICE}/{name}": Handler(
                    _grpclib_unary(each), Cardinality.UNARY_UNARY, bytes, bytes
                )
                for name, each in unary.items()
            },
            **{
                f"/{SERVICE}/{name}": Handler(
                    _grpclib_stream(each), Cardinality.UNARY_STREAM, bytes, bytes
                )
                for name, each in streams.items()
            },
        }

    async def start(self, path: Path) -> None:
        await self.server.start(path=str(path))

    async def stop(self, grace: float = 0) -> None:
        self.server.close()
        await self.server.wait_closed()


def _grpclib_unary(handler: UnaryHandler) -> Any:
    async def answer(stream: Any) -> None:
        payload = await stream.recv_message()
        try:
            await stream.send_message(await handler(payload))
        except RpcError as error:
            raise grpclib.GRPCError(Status(int(error.code)), error.message) from None

    return answer


def _grpclib_stream(handler: StreamHandler) -> Any:
    async def answer(stream: Any) -> None:
        payload = await stream.recv_message()
        try:
            async for message in handler(payload):
                await stream.send_message(message)
        except RpcError as error:
            raise grpclib.GRPCError(Status(int(error.code)), error.message) from None

    return answer


class GrpcGoServer(GoServer):
    """grpc-go's server, in a process of its own."""

    def __init__(self, behaviour: Behaviour, **options: Any) -> None:
        self.behaviour = behaviour
        unary = {f"/{SERVICE}/{name}": each for name, each in behaviour.unary.items()}
        streams = {f"/{SERVICE}/{name}": each for name, each in behaviour.streams.items()}
        super().__init__(unary, streams, **{"max_receive": 2**30, **options})


SERVERS: dict[str, Any] = {
    "ours": OurServer,
    "grpcio": GrpcioServer,
    "grpclib": GrpclibServer,
    "go": GrpcGoServer,
}
