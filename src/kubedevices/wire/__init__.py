"""gRPC calls over Unix sockets, on our own HTTP/2. Messages are bytes; no module decodes them.

`kubelet_api` decodes the messages. It needs only `unix_grpc` of this package.
The list goes from calls down to bytes. A module imports only modules below its own line:

unix_grpc          what other packages import: GrpcServer, GrpcChannel, FileIdentity
grpc_server        answers calls on a socket file
server_link        one connection of a server: starts handlers, answers calls
server_load        what each peer may use of a server, and who makes room
grpc_channel       connects to a socket file and makes calls
grpc_link          asyncio protocol: joins one socket with a server or client connection
server_connection  the server's half of gRPC, without I/O
client_connection  the client's half of gRPC, without I/O
grpc_connection    gRPC that client and server share: bytes in, events and bytes out; no I/O
grpc_events        the state of one call, and the events of a connection
grpc_headers       methods, timeouts and statuses as header fields
grpc_framing       gRPC messages in a byte stream
http2_session      the receiving half of HTTP/2 (frames, states of streams), without I/O
http2_output       the sending half of HTTP/2 (flow control, frames), without I/O
hpack              header blocks ⇄ header fields (HPACK)
huffman            the Huffman code of strings in header blocks
header_block       checks the fields of a header block
http2_limits       limits on the memory and the work that a peer can cause
http2_frames       frames as bytes
acceptor           accepts connections on a listening socket
byte_budget        one budget of bytes for many connections
peers              which process is at the other end, and places that no peer can take alone
socket_dial        connects to a socket file
unix_socket        socket files: bind, rename, unlink, and whose file it is
"""
