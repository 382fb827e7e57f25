"""What goes over the sockets; the only place that sees HTTP/2, gRPC and protobuf.

messages         message classes from our descriptors, in a private pool
convert          messages ⇄ our values
grpc_connection  gRPC over h2 without I/O: bytes in, events and bytes out
unix_grpc        asyncio over a Unix socket: listen, dial, stop
services         offer one of our objects as a gRPC service
clients          call the other side: values in, values out
"""
