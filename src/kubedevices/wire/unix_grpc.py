"""gRPC over Unix sockets with asyncio: listen, dial, stop. The two ends everybody else uses.

`GrpcServer` offers `Methods` on a socket file, `GrpcChannel` calls them over one connection. Bytes
in and out are all they see of a message; `kubelet_api` knows what the bytes mean.
"""

from kubedevices.wire.grpc_channel import GrpcChannel
from kubedevices.wire.grpc_server import GrpcServer, Methods, StreamMethod, UnaryMethod
from kubedevices.wire.unix_socket import FileIdentity

__all__ = ["FileIdentity", "GrpcChannel", "GrpcServer", "Methods", "StreamMethod", "UnaryMethod"]
