"""gRPC over Unix sockets with asyncio: the names of `wire` that other packages import.

`GrpcServer` serves `Methods` on a socket file. `GrpcChannel` calls them over one connection. Both
handle messages as bytes; `kubelet_api` encodes and decodes them.
"""

from kubedevices.wire.byte_budget import ByteBudget
from kubedevices.wire.grpc_channel import GrpcChannel
from kubedevices.wire.grpc_server import GrpcServer
from kubedevices.wire.peers import Peer
from kubedevices.wire.server_link import CALLER, Methods, StreamMethod, UnaryMethod
from kubedevices.wire.unix_socket import FileIdentity

__all__ = [
    "CALLER",
    "ByteBudget",
    "FileIdentity",
    "GrpcChannel",
    "GrpcServer",
    "Methods",
    "Peer",
    "StreamMethod",
    "UnaryMethod",
]
