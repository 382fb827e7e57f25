"""One connected socket, whatever event loop it came from."""

import asyncio
from typing import Any, cast

from kubedevices.wire.grpc_link import GrpcLink
from kubedevices.wire.server_connection import ServerConnection


class ForeignTransport:
    """Writes into a list; inherits nothing, as the transports of uvloop."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


async def test_a_transport_need_not_inherit_from_that_of_asyncio() -> None:
    """The first frames are sent to such a transport too."""
    loop = asyncio.get_running_loop()
    link = GrpcLink(ServerConnection(clock=loop.time))
    transport = ForeignTransport()
    link.connection_made(cast("Any", transport))
    assert b"".join(transport.written)
